"""The tables of the paper as data: what each cell runs, how often, and what the paper found."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain

from onpro.errors import UserError, unknown
from onpro.experiments import paper
from onpro.experiments.experiment import Cell, Experiment, Measure, Pairs
from onpro.methods import methods as registered_methods
from onpro.methods import wrappers
from onpro.runs.method_file import resolve

TITLES = {
    "icarl": "iCaRL",
    "derpp": "DER++",
    "pass": "PASS",
    "agem": "AGEM",
    "gss": "GSS",
    "er": "ER",
    "mir": "MIR",
    "gdumb": "GDumb",
    "aser": "ASER",
    "scr": "SCR",
    "cope": "CoPE",
    "dvc": "DVC",
    "ocm": "OCM",
    "onpro": "OnPro",
}
"""The methods of the paper, as it writes them."""

DEFAULT_MEMORY = 100
"""On a data set that a table does not have, where nobody says how much."""


@dataclass(frozen=True)
class Column:
    """Where something is measured, and what."""

    data: str
    memory: int
    measure: Measure = "average_accuracy"


@dataclass(frozen=True)
class Row:
    """A method, or a variant of one."""

    title: str
    method: str
    recipe: str | None
    values: Mapping[Column, tuple[float, float]]
    """What the paper reports, mean and deviation."""


@dataclass(frozen=True)
class Table:
    """A table of the paper, or a part of it.

    Methods and variants are the rows, also of tables that the paper prints the other way round.
    """

    name: str
    about: str
    runs: int
    """How many runs the paper made for each cell."""
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]

    def cells(self, seeds: Sequence[int] | None = None, stream: Pairs = ()) -> Iterator[Cell]:
        """The table row by row.

        Args:
            seeds: of each cell; else as many as the paper has runs, from 0.
            stream: what differs from the paper's streams; the paper's values are then left out.
        """
        chosen = tuple(range(self.runs) if seeds is None else seeds)
        for row in self.rows:
            for column in self.columns:
                experiment = Experiment(
                    title=row.title,
                    method=row.method,
                    data=column.data,
                    memory=column.memory,
                    seeds=chosen,
                    recipe=row.recipe,
                    stream=stream,
                )
                value = None if stream else row.values.get(column)
                yield Cell(experiment, column.measure, value)

    def narrowed(
        self,
        *,
        data: Sequence[str] = (),
        methods: Sequence[str] = (),
        memory: Sequence[int] = (),
    ) -> "Table":
        """The part for some data sets, methods or variants, and memories; without any, all.

        A data set, memory or registered method that the paper does not have in the table becomes a
        column or row without values of the paper.
        """
        named = (row for name in methods for row in self._rows_of(name))
        once = {(row.method, row.recipe): row for row in named}
        rows = tuple(once.values()) or self.rows
        return replace(self, rows=rows, columns=self._columns_for(data, memory))

    def _rows_of(self, name: str) -> list[Row]:
        found = [row for row in self.rows if name in (row.method, row.recipe)]
        resolved = resolve(name)
        registered = name in registered_methods() or name.rpartition("-")[2] in wrappers()
        if not found and (resolved != name or registered):
            return [Row(resolved, resolved, None, {})]
        if not found:
            known = {name for row in self.rows for name in (row.method, row.recipe) if name}
            raise unknown(f"method or variant of {self.name}", name, known)
        return found

    def _columns_for(self, data: Sequence[str], memory: Sequence[int]) -> tuple[Column, ...]:
        if not data:
            columns = tuple(c for c in self.columns if not memory or c.memory in memory)
            if not columns:
                sizes = ", ".join(map(str, dict.fromkeys(c.memory for c in self.columns)))
                raise UserError(
                    f"{self.name} has no memory of {', '.join(map(str, memory))} but {sizes}: "
                    "name a data set with --data to run another one."
                )
            return columns
        return tuple(
            Column(name, size, measure)
            for name in data
            for size in memory or self._memories_on(name)
            for measure in dict.fromkeys(column.measure for column in self.columns)
        )

    def _memories_on(self, data: str) -> list[int]:
        own = dict.fromkeys(column.memory for column in self.columns if column.data == data)
        return list(own) or [DEFAULT_MEMORY]


def table(name: str) -> Table:
    """The table of that name, in any case, with or without the word.

    >>> table("A1") is table("tablea1") is table("tableA1")
    True
    """
    for known in tables().values():
        if _number(name) == _number(known.name):
            return known
    raise unknown("table", name, tables())


def _number(name: str) -> str:
    return name.lower().removeprefix("table")


@cache
def tables() -> dict[str, Table]:
    """All tables of the paper by name."""
    return {
        made.name: made
        for made in (
            _benchmark("table1", "average accuracy", "average_accuracy", paper.AVERAGE_ACCURACY),
            _benchmark(
                "table2", "average forgetting", "average_forgetting", paper.AVERAGE_FORGETTING
            ),
            _ablation("table3", "ablations of OnPro", ABLATIONS, paper.ABLATIONS),
            _on_cifar10(
                "table4",
                "random mixup and adaptive prototypical feedback",
                15,
                [("Random", "onpro", "random-mixup"), ("APF", "onpro", None)],
                paper.MIXUP,
            ),
            _on_cifar10(
                "tableA1",
                "ER with knowledge distillation",
                5,
                [("ER", "er", None), ("ER with KD", "er-kd", None)],
                paper.DISTILLATION,
            ),
            _imagenet(),
            _ablation("tableA3", "placement of cross-entropy", CROSS_ENTROPY, paper.CROSS_ENTROPY),
            _on_cifar10(
                "tableA4",
                "baselines with rotated copies",
                5,
                [
                    (f"{TITLES[name]}-Rot", f"{name}-rot", None)
                    for name in ("er", "aser", "scr", "dvc")
                ]
                + [(TITLES[name], name, None) for name in ("ocm", "onpro")],
                paper.ROTATION,
            ),
            _feedback(),
            _on_cifar10(
                "tableA6",
                "OnPro without projector",
                5,
                [("no Projector", "onpro", "without-projector"), ("OnPro", "onpro", None)],
                paper.PROJECTOR,
            ),
        )
    }


def reported(
    method: str, recipe: str | None, data: str, memory: int, measure: Measure
) -> tuple[float, float] | None:
    """What the paper found, mean and deviation, in the first table that has it.

    >>> reported("onpro", "without-apf", "cifar10", 100, "average_forgetting")
    (34.6, 2.4)
    """
    variant = None if recipe == "paper" else recipe
    column = Column(data, memory, measure)
    for row in chain.from_iterable(table.rows for table in tables().values()):
        if (row.method, row.recipe) == (method, variant) and column in row.values:
            return row.values[column]
    return None


Named = tuple[str, str, str | None]
"""Title, method and recipe of a row."""

ABLATIONS: list[Named] = [
    ("baseline", "onpro", "baseline"),
    ("w/o OPE", "onpro", "without-ope"),
    ("w/o APF", "onpro", "without-apf"),
    ("w/o L_new", "onpro", "without-new"),
    ("w/o L_seen", "onpro", "without-seen"),
    ("L_seen w/o C_new", "onpro", "seen-without-new"),
    ("OnPro", "onpro", None),
]

CROSS_ENTROPY: list[Named] = [
    ("CE(both)", "onpro", "ce-both"),
    ("CE(sepa)", "onpro", "ce-separate"),
    ("OnPro", "onpro", None),
]


def _table(
    name: str,
    about: str,
    runs: int,
    columns: Sequence[Column],
    named: Sequence[Named],
    values: Mapping[str, str],
) -> Table:
    """A table whose rows are named in the order of the paper's."""
    rows = tuple(
        Row(title, method, recipe, dict(zip(columns, paper.entries(entries), strict=True)))
        for (title, method, recipe), entries in zip(named, values.values(), strict=True)
    )
    return Table(name, about, runs, rows, tuple(columns))


def _benchmark(name: str, about: str, measure: Measure, values: Mapping[str, str]) -> Table:
    columns = [Column(data, memory, measure) for data, memory in paper.COLUMNS]
    return _table(name, about, 15, columns, [(TITLES[m], m, None) for m in values], values)


def _ablation(name: str, about: str, named: Sequence[Named], values: Mapping[str, str]) -> Table:
    measures: tuple[Measure, ...] = ("average_accuracy", "average_forgetting")
    places = (("cifar10", 100), ("cifar100", 500))
    columns = [Column(*place, measure) for place in places for measure in measures]
    return _table(name, about, 15, columns, named, values)


def _on_cifar10(
    name: str, about: str, runs: int, named: Sequence[Named], values: Mapping[str, str]
) -> Table:
    columns = [Column("cifar10", memory) for memory in (100, 200, 500)]
    return _table(name, about, runs, columns, named, values)


def _imagenet() -> Table:
    columns = [Column("imagenet100", 1000), Column("imagenet1k", 5000)]
    named: list[Named] = [(TITLES[name], name, None) for name in paper.IMAGENET]
    return _table("tableA2", "average accuracy on ImageNet", 3, columns, named, paper.IMAGENET)


def _feedback() -> Table:
    columns = [Column("cifar10", 200), Column("cifar100", 500)]
    named: list[Named] = [
        (f"α = {recipe.removeprefix('alpha-')}", "onpro", recipe) for recipe in paper.FEEDBACK
    ]
    return _table("tableA5", "share of feedback in OnPro", 5, columns, named, paper.FEEDBACK)
