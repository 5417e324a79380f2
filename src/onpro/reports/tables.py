"""Tables of experiments beside the paper's values, in every format."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby

from onpro.experiments import Summary, summarise
from onpro.experiments.comparison import Comparison
from onpro.experiments.experiment import (
    CUE_MEASURES,
    IN_TABLES,
    LOWER_IS_BETTER,
    MEASURES,
    Experiment,
    Measure,
)
from onpro.experiments.grouping import short_digest
from onpro.experiments.statistics import accuracy_curve, evenly, forgetting_curve
from onpro.experiments.tables import paper_name
from onpro.reports import formats
from onpro.reports.formats import (
    Column,
    Format,
    Record,
    latex_row,
    latex_text,
    markdown_text,
    render,
    with_spread,
)
from onpro.runs.result import machine
from onpro.text import visible, written

PLACE = [
    Column("data", "data", heading="{}"),
    Column("memory", "memory", heading="M = {}"),
    Column("shared", "", heading="{}", for_people=True),
]

COMPARISONS = [
    Column("first", "first"),
    Column("second", "second"),
    *PLACE,
    Column("measure", "measure", heading="{}"),
    Column("test", "test"),
    Column("runs", "n", for_people=True),
    Column("n_first", "", for_programs=True),
    Column("n_second", "", for_programs=True),
    Column("difference", "difference", "+.2f"),
    Column("interval", "", for_programs=True),
    Column("bounds", "95 % interval", for_people=True),
    Column("p", "p", ".2g"),
    Column("p_holm", "p (Holm)", ".2g"),
    Column("wilcoxon", "p (Wilcoxon)", ".2g"),
    Column("note", "note"),
]

CURVES: dict[Measure, Callable[[Sequence[Sequence[float]]], list[float]]] = {
    "accuracy": accuracy_curve,
    "forgetting": forgetting_curve,
}
"""Measures that have a value after each task."""

MOST_TASKS = 10
"""Number of tasks that a table has room for."""

DATA_TITLES = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "tinyimagenet": "Tiny ImageNet",
    "imagenet100": "ImageNet-100",
    "imagenet1k": "ImageNet-1k",
}


def results(
    experiments: Sequence[Experiment],
    kind: Format,
    *,
    measures: Sequence[Measure] = IN_TABLES,
    by_task: bool = False,
) -> str:
    """Return tables of results: for people one for each measure, for programs one of all.

    Args:
        experiments: planned or found experiments.
        kind: format; in LaTeX columns are data sets and memories, as in the paper.
        measures: measures to show to people.
        by_task: show values after each task instead of intervals, to people.
    """
    if kind in ("csv", "json"):
        records = [_for_programs(one) for one in experiments]
        return render(records, _program_columns(records), kind)
    if kind == "latex":
        return "\n\n".join(_latex(experiments, measure) for measure in measures)
    tables = []
    shared = _shared(experiments, kind)
    for measure in measures:
        rows = [_record(one, measure, shared) for one in experiments]
        columns = _columns(measure)
        if by_task and measure in CURVES:
            tasks = evenly(max(map(_tasks, experiments), default=0), MOST_TASKS)
            rows = [
                row | _after_tasks(one, CURVES[measure], tasks)
                for one, row in zip(experiments, rows, strict=True)
            ]
            after = [Column(f"task {task}", f"after {task + 1}", ".1f") for task in tasks]
            columns = [c for c in columns if c.key != "bounds"]
            before = [column.key for column in columns].index("value")
            columns[before:before] = after
        tables.append(render(rows, columns, kind))
    return "\n\n".join(tables)


def with_comparisons(
    experiments: Sequence[Experiment],
    compared: Sequence[Comparison],
    kind: Format,
    *,
    measures: Sequence[Measure] = IN_TABLES,
) -> str:
    """Return tables of results and of comparisons; CSV, which is one table, has the first only."""
    tables = results(experiments, kind, measures=measures)
    if kind == "csv":
        return tables
    second = comparisons(compared, kind)
    if kind == "json":
        both = {"results": json.loads(tables), "comparisons": json.loads(second)}
        return json.dumps(both, indent=1)
    return f"{tables}\n\n{second}" if compared else tables


def comparisons(compared: Iterable[Comparison], kind: Format) -> str:
    """Return a table of differences with confidence intervals and p values."""
    compared = list(compared)
    shared = _shared([side for one in compared for side in (one.first, one.second)], kind)
    return render([_comparison(one, shared) for one in compared], COMPARISONS, kind)


def conditions(experiments: Iterable[Experiment], measures: Sequence[Measure] = IN_TABLES) -> str:
    """Return a sentence on the measures, and on hardware, precision and versions, each once."""
    kinds = dict.fromkeys(
        f"{machine(result['hardware'])}, {result['precision']}, "
        f"torch {result['versions']['torch']}, Python {result['versions']['python']}"
        for experiment in experiments
        for result in (run.result for run in experiment.runs)
    )
    unit = "" if "seconds" in measures else " in percent"
    about = f"Mean ± standard deviation{unit}; the interval is that of the mean."
    return f"{about} {'; '.join(map(markdown_text, kinds))}."


def seed_ranges(experiment: Experiment) -> str:
    """Return the seeds of the finished runs, such as 0, 1, 4–7."""
    seeds = enumerate(run.result["seed"] for run in experiment.runs)
    parts = []
    for _, stretch in groupby(seeds, key=lambda pair: pair[1] - pair[0]):
        found = [seed for _, seed in stretch]
        parts.append([f"{found[0]}–{found[-1]}"] if len(found) > 2 else map(str, found))
    return ", ".join(chain.from_iterable(parts))


def _columns(measure: Measure) -> list[Column]:
    unit = "s" if measure == "seconds" else "%"
    return [
        *PLACE,
        Column("name", "method"),
        Column("n", "n"),
        Column("value", f"{measure}, {unit}"),
        Column("bounds", "95 % interval"),
        Column("paper", "paper"),
        Column("difference", "difference", "+.1f"),
    ]


def _shared(experiments: Sequence[Experiment], kind: Format) -> tuple[str, ...]:
    """Return what is given by hand to all experiments, if tables have headings for it."""
    if kind != "text" or not experiments:
        return ()
    return tuple(
        part for part in experiments[0].by_hand if all(part in one.by_hand for one in experiments)
    )


def _name(experiment: Experiment, shared: Sequence[str]) -> str:
    own = tuple(part for part in experiment.by_hand if part not in shared)
    return replace(experiment, by_hand=own).name


def _record(
    experiment: Experiment, measure: Measure, shared: Sequence[str]
) -> dict[str, formats.Value]:
    record: dict[str, formats.Value] = {
        "name": _name(experiment, shared),
        "data": experiment.data,
        "memory": experiment.memory,
        "shared": ", ".join(shared) or None,
        "n": len(experiment.values(measure)),
    }
    paper = experiment.paper.get(measure)
    if paper:
        record["paper"] = with_spread(*paper)
    summary = experiment.summary(measure)
    if summary:
        record["value"] = with_spread(summary.mean, summary.deviation)
        record["bounds"] = bounds(summary)
        record["difference"] = summary.mean - paper[0] if paper else None
    return record


def bounds(summary: Summary) -> str:
    """Return the 95 % interval of a mean, or that there are too few runs."""
    if summary.interval is None:
        return "n too small"
    return _interval(summary.mean, summary.interval, ".1f")


def _interval(mean: float, half_width: float, spec: str) -> str:
    low, high = (written(mean + side * half_width, spec) for side in (-1, 1))
    return f"{low} to {high}"


def _tasks(experiment: Experiment) -> int:
    return max((len(run.result["accuracy"]) for run in experiment.runs), default=0)


def _after_tasks(
    experiment: Experiment,
    curve: Callable[[Sequence[Sequence[float]]], list[float]],
    tasks: Sequence[int],
) -> dict[str, formats.Value]:
    curves = [curve(run.result["accuracy"]) for run in experiment.runs]
    values = {task: [c[task] for c in curves if task < len(c)] for task in tasks}
    return {f"task {task}": summarise(seeds).mean for task, seeds in values.items() if seeds}


def _program_columns(records: Sequence[Record]) -> list[Column]:
    """Return the columns for programs; those of cues only if some runs have a shortcut."""
    measured = [
        measure
        for measure in MEASURES
        if measure not in CUE_MEASURES or any(f"{measure}_mean" in row for row in records)
    ]
    keys = (
        *("method", "recipe", "by_hand", "data", "memory", "precision", "experiment", "seeds", "n"),
        *(f"{measure}_{part}" for measure in measured for part in ("mean", "sd", "ci95")),
        *(f"paper_{measure}_{part}" for measure in IN_TABLES for part in ("mean", "spread")),
    )
    return [Column(key, key) for key in keys]


def _for_programs(experiment: Experiment) -> Record:
    record: dict[str, formats.Value] = {
        "method": experiment.method,
        "recipe": experiment.recipe,
        "by_hand": ", ".join(experiment.by_hand) or None,
        "data": experiment.data,
        "memory": experiment.memory,
        "n": len(experiment.runs),
    }
    if experiment.runs:
        first = experiment.runs[0]
        record["precision"] = first.result.get("precision")
        record["experiment"] = short_digest(first)
        record["seeds"] = seed_ranges(experiment)
    for measure in MEASURES:
        summary = experiment.summary(measure)
        if summary:
            record[f"{measure}_mean"] = summary.mean
            record[f"{measure}_sd"] = summary.deviation
            record[f"{measure}_ci95"] = summary.interval
        if measure in experiment.paper:
            mean, spread = experiment.paper[measure]
            record[f"paper_{measure}_mean"], record[f"paper_{measure}_spread"] = mean, spread
    return record


def _latex(experiments: Sequence[Experiment], measure: Measure) -> str:
    """Return a tabular with methods as rows and data sets and memories as columns.

    Methods have their names in the paper; the best value of a column is bold.
    """
    places = sorted({(one.data, one.memory) for one in experiments})
    best_of = min if measure in LOWER_IS_BETTER else max
    cells: dict[str, dict[tuple[str, int], Summary]] = {}
    for one in experiments:
        summary = one.summary(measure)
        row = cells.setdefault(_latex_name(one), {})
        if summary:
            row[one.data, one.memory] = summary
    means = {
        place: [float(written(row[place].mean, ".1f")) for row in cells.values() if place in row]
        for place in places
    }
    best = {place: best_of(values) for place, values in means.items() if values}
    lines = [
        "% needs \\usepackage{booktabs}",
        f"% {measure}: mean ± standard deviation over n runs",
        rf"\begin{{tabular}}{{l{'r' * len(places)}}}",
        r"\toprule",
        _data_header(places),
        latex_row(["Method", *(f"M = {memory}" for _, memory in places)]),
        r"\midrule",
    ]
    for name, row in cells.items():
        shown = [_latex_cell(row.get(place), best.get(place)) for place in places]
        lines.append(latex_row([latex_text(name), *shown]))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def _data_header(places: Sequence[tuple[str, int]]) -> str:
    spans = [""]
    for data, columns in groupby(places, key=lambda place: place[0]):
        title = latex_text(DATA_TITLES.get(data, visible(data)))
        spans.append(rf"\multicolumn{{{len(list(columns))}}}{{c}}{{{title}}}")
    return latex_row(spans)


def _latex_name(experiment: Experiment) -> str:
    known = paper_name(experiment.method, experiment.recipe)
    if known is None:
        return visible(experiment.name)
    return visible(", ".join(filter(None, [known, *experiment.by_hand, experiment.detail])))


def _latex_cell(summary: Summary | None, best: float | None) -> str:
    if summary is None:
        return "--"
    mean = float(written(summary.mean, ".1f"))
    text = latex_text(with_spread(summary.mean, summary.deviation))
    return rf"\textbf{{{text}}}" if mean == best else text


def _comparison(comparison: Comparison, shared: Sequence[str]) -> Mapping[str, formats.Value]:
    found, first, second = comparison.difference, comparison.first, comparison.second
    a, b = found.n
    return {
        "first": _name(first, shared),
        "second": _name(second, shared),
        "data": first.data,
        "memory": first.memory,
        "shared": ", ".join(shared) or None,
        "measure": comparison.measure,
        "test": found.test,
        "runs": f"{a} pairs" if found.test == "paired" else f"{a} + {b}",
        "n_first": a,
        "n_second": b,
        "difference": found.mean,
        "interval": found.interval,
        "bounds": None if found.interval is None else _interval(found.mean, found.interval, "+.2f"),
        "p": found.p,
        "p_holm": comparison.p_holm,
        "wilcoxon": found.wilcoxon,
        "note": "constant difference" if found.constant else None,
    }
