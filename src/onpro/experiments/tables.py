"""The tables of the paper as data: what each cell runs, how often, and the paper's value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from onpro.errors import UserError, unknown
from onpro.experiments import paper
from onpro.experiments.experiment import Measure, Pairs, Setup, Value

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
"""Names of the methods in the paper."""

DEFAULT_MEMORY = 100
"""Memory on a data set that is not in the table."""

CellKey = tuple[str, int, Measure]
"""Data set, memory, measure."""


@dataclass(frozen=True)
class Row:
    """A method, or a variant of one."""

    title: str
    """Name in the paper."""
    method: str
    recipe: str | None = None
    values: Mapping[CellKey, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper, or a part of it.

    Methods and variants are the rows, also of tables that the paper prints the other way round.
    """

    name: str
    about: str
    runs: int
    """Number of runs behind each cell of the paper."""
    rows: tuple[Row, ...]
    places: tuple[tuple[str, int], ...]
    """Data sets and memories."""
    measures: tuple[Measure, ...] = ("accuracy",)

    def setups(self, seeds: Sequence[int] | None = None, stream: Pairs = ()) -> list[Setup]:
        """Return the experiments of the table, row by row.

        Args:
            seeds: seeds of each experiment; default: as many as the paper has runs, from 0.
            stream: fields of `RunConfig` that differ from the paper's streams.
        """
        chosen = tuple(range(self.runs) if seeds is None else seeds)
        return [
            Setup(row.method, data, memory, chosen, row.recipe, stream=stream)
            for row in self.rows
            for data, memory in self.places
        ]

    def narrowed(
        self,
        *,
        data: Sequence[str] = (),
        methods: Sequence[str] = (),
        memory: Sequence[int] = (),
    ) -> "PaperTable":
        """Return the part for some data sets, methods or variants, and memories; default: all.

        Data sets, memories and registered methods that the paper's table does not have are added.
        """
        named = (row for name in methods for row in self._rows_of(name))
        once = {(row.method, row.recipe): row for row in named}
        rows = tuple(once.values()) or self.rows
        return replace(self, rows=rows, places=self._places_for(data, memory))

    def _rows_of(self, name: str) -> list[Row]:
        # Imported here: a list of tables needs no torch.
        from onpro.methods import methods as registered_methods
        from onpro.methods import wrappers
        from onpro.methods.method_file import resolve

        found = [row for row in self.rows if name in (row.method, row.recipe)]
        resolved = resolve(name)
        registered = name in registered_methods() or name.rpartition("-")[2] in wrappers()
        if not found and (resolved != name or registered):
            return [Row(resolved, resolved)]
        if not found:
            known = {name for row in self.rows for name in (row.method, row.recipe) if name}
            raise unknown(
                f"method or variant of {self.name}", name, known | {*registered_methods()}
            )
        return found

    def _places_for(
        self, data: Sequence[str], memory: Sequence[int]
    ) -> tuple[tuple[str, int], ...]:
        if data:
            return tuple((name, m) for name in data for m in memory or self._memories_on(name))
        places = tuple(place for place in self.places if not memory or place[1] in memory)
        if not places:
            sizes = ", ".join(map(str, dict.fromkeys(m for _, m in self.places)))
            raise UserError(
                f"{self.name} has no memory of {', '.join(map(str, memory))} but {sizes}: "
                "name a data set with --data to run another one."
            )
        return places

    def _memories_on(self, data: str) -> list[int]:
        own = [memory for name, memory in self.places if name == data]
        return own or [DEFAULT_MEMORY]


def paper_table(name: str) -> PaperTable:
    """Return the table of a name, in any case, with or without the word.

    >>> paper_table("A1") is paper_table("tablea1") is paper_table("tableA1")
    True
    """
    for known in paper_tables().values():
        if _number(name) == _number(known.name):
            return known
    raise unknown("table", name, paper_tables())


def _number(name: str) -> str:
    return name.lower().removeprefix("table")


@cache
def paper_tables() -> dict[str, PaperTable]:
    """Return all tables of the paper by name."""
    return {
        made.name: made
        for made in (
            _benchmark("table1", "average accuracy", "accuracy", paper.AVERAGE_ACCURACY),
            _benchmark("table2", "average forgetting", "forgetting", paper.AVERAGE_FORGETTING),
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


def reported(method: str, recipe: str | None, data: str, memory: int) -> dict[Measure, Value]:
    """Return the paper's values of an experiment by measure.

    >>> reported("onpro", "without-apf", "cifar10", 100)
    {'accuracy': (52.0, 1.5), 'forgetting': (34.6, 2.4)}
    """
    rows = _rows().get((method, None if recipe == "paper" else recipe), ())
    return {
        measure: value
        for row in reversed(rows)
        for (*place, measure), value in row.values.items()
        if place == [data, memory]
    }


def paper_name(method: str, recipe: str | None = None) -> str | None:
    """Return the name of a method or variant in the first table that has it.

    >>> paper_name("derpp"), paper_name("onpro", "without-apf"), paper_name("er", "tuned")
    ('DER++', 'w/o APF', None)
    """
    rows = _rows().get((method, None if recipe == "paper" else recipe))
    return rows[0].title if rows else None


@cache
def _rows() -> dict[tuple[str, str | None], list[Row]]:
    """Return all rows of all tables by method and recipe."""
    rows: dict[tuple[str, str | None], list[Row]] = {}
    for table in paper_tables().values():
        for row in table.rows:
            rows.setdefault((row.method, row.recipe), []).append(row)
    return rows


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
    places: Sequence[tuple[str, int]],
    named: Sequence[Named],
    values: Mapping[str, str],
    measures: tuple[Measure, ...] = ("accuracy",),
) -> PaperTable:
    """Build a table whose rows are named in the order of the paper's."""
    cells = [(*place, measure) for place in places for measure in measures]
    rows = tuple(
        Row(title, method, recipe, dict(zip(cells, paper.entries(entries), strict=True)))
        for (title, method, recipe), entries in zip(named, values.values(), strict=True)
    )
    return PaperTable(name, about, runs, rows, tuple(places), measures)


def _benchmark(name: str, about: str, measure: Measure, values: Mapping[str, str]) -> PaperTable:
    named: list[Named] = [(TITLES[method], method, None) for method in values]
    return _table(name, about, 15, paper.COLUMNS, named, values, (measure,))


def _ablation(
    name: str, about: str, named: Sequence[Named], values: Mapping[str, str]
) -> PaperTable:
    places = (("cifar10", 100), ("cifar100", 500))
    return _table(name, about, 15, places, named, values, ("accuracy", "forgetting"))


def _on_cifar10(
    name: str, about: str, runs: int, named: Sequence[Named], values: Mapping[str, str]
) -> PaperTable:
    places = [("cifar10", memory) for memory in (100, 200, 500)]
    return _table(name, about, runs, places, named, values)


def _imagenet() -> PaperTable:
    places = [("imagenet100", 1000), ("imagenet1k", 5000)]
    named: list[Named] = [(TITLES[name], name, None) for name in paper.IMAGENET]
    return _table("tableA2", "average accuracy on ImageNet", 3, places, named, paper.IMAGENET)


def _feedback() -> PaperTable:
    places = [("cifar10", 200), ("cifar100", 500)]
    named: list[Named] = [
        (f"α = {recipe.removeprefix('alpha-')}", "onpro", recipe) for recipe in paper.FEEDBACK
    ]
    return _table("tableA5", "share of feedback in OnPro", 5, places, named, paper.FEEDBACK)
