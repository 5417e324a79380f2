"""`onpro report RUN…`: tables or a page of finished runs beside the paper's values."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from onpro.cli.parsing import parse
from onpro.cli.signals import importing
from onpro.errors import UserError
from onpro.text import visible

if TYPE_CHECKING:
    from onpro.experiments.experiment import Experiment
    from onpro.reports import Picture
    from onpro.reports.formats import Format

ENDINGS: "dict[str, Format | Literal['html']]" = {
    ".txt": "text",
    ".md": "markdown",
    ".tex": "latex",
    ".csv": "csv",
    ".json": "json",
    ".html": "html",
}


MOST_PLACES, MOST_PICTURED = 3, 4
"""Data sets with a size of the memory, and their experiments, of which a page has pictures."""

PICTURED = {
    "features": "Features of the first test images of each class at the end, in two dimensions by "
    "t-SNE. Crosses are classes of the last task, dots older ones.",
    "attention": "Where the networks look at the end: GradCAM++ of the predicted class, on one "
    "test image of each task, the same for all. An orange frame marks a wrong prediction.",
}
"""Figures of a page, and what it says of them."""


DEFAULT_MEASURES = "accuracy,forgetting"

CONTENTS = ("streams", "leaderboard", "coverage", "compare")
"""Options that take the place of the tables of results."""


@dataclass(frozen=True)
class Command:
    """Which runs to report, and how."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders, packed files, or folders that contain them at any depth; a packed file may be
    followed by a pattern of names, as in results.jsonl/er-*."""

    out: Path | None = None
    """File to write; its ending gives the format: .txt, .md, .tex, .csv, .json, or .html for a page
    with charts that needs no network. (default: print)"""

    format: Literal["text", "markdown", "latex", "csv", "json", "html"] | None = None
    """Format, if not that of the file. (default: text on a terminal, else markdown)"""

    measures: str = DEFAULT_MEASURES
    """Comma-separated measures to tabulate: accuracy, forgetting, incremental, anytime, last,
    seconds, or those of a shortcut, such as reliance and following."""

    by_task: bool = False
    """Show accuracy and forgetting after each task instead of intervals."""

    streams: bool = False
    """Print methods against kinds of streams: accuracy at the end, and anytime accuracy."""

    pictures: bool = True
    """In a page, show features and attention of the networks that runs have kept, which takes some
    seconds for each."""

    leaderboard: bool = False
    """Rank methods by accuracy in each data set and memory, beside all published values, with
    training time and images per step; without ablations and settings given by hand."""

    coverage: bool = False
    """Print all cells of the paper's tables, and which of them these runs measure. A cell agrees
    with the paper if the means differ by at most 2 points, or if the paper's is in the 95 %
    interval of ours."""

    compare: bool = False
    """Compare all pairs of rows with the same data set and memory by Welch's test, with Holm's
    correction."""


def main(arguments: Sequence[str]) -> int:
    """Print a report of finished runs, or write it to a file."""
    about = "Report finished runs beside the paper's values: print tables, or write a file."
    options = parse(Command, arguments, command="onpro report", about=about)
    if not options.runs:
        raise UserError("name at least one run folder, such as runs.")
    kind = _format(options)
    _require_one_content(options, kind)
    with importing():
        from onpro.experiments.grouping import found
        from onpro.reports import page
        from onpro.runs.files import require_folder_of, save
        from onpro.runs.reading import read_runs, warn

    if options.out:
        require_folder_of(options.out)

    passed_over: list[str] = []

    def skipped(folder: Path, reason: str) -> None:
        warn(folder, reason)
        passed_over.append(f"{folder}: {reason}.")

    experiments = found(read_runs(options.runs, skipped=skipped))
    if kind == "html":
        text = page(experiments, passed_over, _pictures(experiments) if options.pictures else ())
    else:
        text = _tables(experiments, kind, options) + "\n"
    if options.out:
        save(options.out, text.encode())
        print(f"saved {visible(str(options.out))}")
    else:
        sys.stdout.write(text)
    return 0


def _pictures(experiments: "Sequence[Experiment]") -> "list[Picture]":
    """Return figures of the networks kept, of the most accurate experiments of some places."""
    from onpro.figures import rendered
    from onpro.figures.models import lacks_model, lacks_scores
    from onpro.reports import Picture

    places: dict[tuple[str, int], list[Experiment]] = {}
    for one in experiments:
        if not lacks_model(one):
            places.setdefault((one.data, one.memory), []).append(one)
    pictures = []
    for (data, memory), members in list(places.items())[:MOST_PLACES]:
        for figure, about in PICTURED.items():
            try:
                if figure == "attention":
                    members = [one for one in members if not lacks_scores(one)]
                if not members:
                    continue
                png = rendered(figure, members[:MOST_PICTURED], "png", dpi=130)
            except UserError as error:
                sys.stderr.write(f"onpro: the page has no {figure} of {data}: {error}\n")
                continue
            pictures.append(Picture(f"{figure}, {data}, M = {memory}", about, png))
    return pictures


def _tables(experiments: "Sequence[Experiment]", kind: "Format", options: Command) -> str:
    from onpro.experiments.comparison import compare
    from onpro.experiments.coverage import coverage
    from onpro.experiments.experiment import named_measures
    from onpro.reports import by_stream
    from onpro.reports.coverage import coverage_tables
    from onpro.reports.leaderboard import entries, leaderboard, used_sources
    from onpro.reports.tables import comparisons, conditions, results

    measures = named_measures(options.measures or DEFAULT_MEASURES)
    for measure in measures:
        if not any(one.values(measure) for one in experiments):
            raise UserError(f"none of these runs has measured '{measure}'.")
    if options.coverage:
        return coverage_tables(coverage(experiments), kind)
    if options.streams:
        return by_stream(experiments)
    if options.leaderboard:
        entered = entries(experiments)
        if not entered:
            raise UserError(
                "none of these runs is in a leaderboard, which has neither ablations nor settings "
                "given by hand."
            )
        table = leaderboard(entered, kind)
        if kind not in ("text", "markdown"):
            return table
        return f"{table}\n\n{conditions(entered)}\n\n{used_sources(entered)}"
    if options.compare:
        compared = compare(experiments, measures)
        if not compared:
            raise UserError(
                "nothing to compare: no two experiments with the same data set and memory have two "
                "runs each."
            )
        return comparisons(compared, kind)
    tables = results(experiments, kind, measures=measures, by_task=options.by_task)
    if kind in ("text", "markdown"):
        return f"{tables}\n\n{conditions(experiments, measures)}"
    return tables


def _require_one_content(options: Command, kind: str) -> None:
    """Raise UserError for options that ask for different reports, or for what a page lacks."""
    asked = [name for name in CONTENTS if getattr(options, name)]
    if len(asked) > 1:
        raise UserError(f"--{asked[0]} and --{asked[1]} are different reports: choose one.")
    if asked and kind == "html":
        raise UserError(f"a page has no --{asked[0]}: leave it out, or choose another format.")
    if options.by_task and (asked or kind not in ("text", "markdown")):
        what = f"--{asked[0]}" if asked else kind
        raise UserError(
            f"--by-task is for tables as text or Markdown, not for {what}: leave it out."
        )
    if options.streams and kind not in ("text", "markdown"):
        raise UserError(f"--streams prints Markdown, not {kind}: leave out --format and --out.")


def _on_terminal() -> bool:
    return sys.stdout.isatty()


def _format(options: Command) -> "Format | Literal['html']":
    if options.format:
        return options.format
    if options.out is None:
        return "text" if _on_terminal() else "markdown"
    if options.out.suffix not in ENDINGS:
        raise UserError(
            f"the format of {options.out} is not clear: end it in {', '.join(ENDINGS)}, or add "
            "--format."
        )
    return ENDINGS[options.out.suffix]
