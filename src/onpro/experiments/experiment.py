"""What is to be measured, as plain data: methods and data sets named here need not exist yet."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from onpro.errors import UserError

Measure = Literal["average_accuracy", "average_forgetting", "anytime_accuracy", "last_accuracy"]

MEASURES: dict[Measure, str] = {
    "average_accuracy": "accuracy",
    "average_forgetting": "forgetting",
    "anytime_accuracy": "anytime accuracy",
    "last_accuracy": "last accuracy",
}
"""What the tables call a measure."""

PAPER_MEASURES: tuple[Measure, ...] = ("average_accuracy", "average_forgetting")
"""Those that the paper reports, and that are printed by default."""

MOST_SEEDS = 10_000
"""Runs of one experiment; a larger number is a slip, and takes all memory to list."""

Pairs = tuple[tuple[str, Any], ...]
"""Names and values."""


def require_seeds(number: int) -> None:
    """Refuse a number of runs that cannot be meant."""
    if number < 1:
        raise UserError(f"the number of seeds must be at least 1, not {number}.")
    if number > MOST_SEEDS:
        raise UserError(f"the number of seeds must be at most {MOST_SEEDS}, not {number}.")


@dataclass(frozen=True)
class Experiment:
    """Runs that differ only in their seed."""

    title: str
    """What a table calls it, beside data set and memory."""
    method: str
    data: str
    memory: int
    seeds: tuple[int, ...]
    recipe: str | None = None
    settings: Pairs = ()
    """Settings of the method that differ from those of data set and recipe."""
    stream: Pairs = ()
    """What differs from the data set's own stream: fields of `RunConfig`."""

    def __str__(self) -> str:
        return f"{self.title} on {self.data}, M = {self.memory}"


@dataclass(frozen=True)
class Cell:
    """A number in a table: a measure of an experiment."""

    experiment: Experiment
    measure: Measure
    paper: tuple[float, float] | None = None
    """Mean and deviation that the paper reports."""


def experiments_of(cells: Iterable[Cell]) -> list[Experiment]:
    """The experiments behind the cells, each once, in the order of the cells."""
    return list(dict.fromkeys(cell.experiment for cell in cells))
