"""A leaderboard: our results and published ones by data set and memory, the best first."""

from collections.abc import Iterable, Sequence
from statistics import mean, mode

from onpro.experiments.experiment import Experiment
from onpro.experiments.published import Published, published, sources
from onpro.experiments.tables import paper_tables
from onpro.reports.formats import Column, Format, Value, render, with_spread
from onpro.reports.tables import PLACE, bounds
from onpro.runs.result import is_timed, machine
from onpro.text import written

Key = tuple[str, str | None, str, int]
"""Method, recipe, data set and memory."""

Ranked = tuple[tuple[str, int, float], dict[str, Value]]
"""What a row is ordered by, and the row."""

COLUMNS = [
    *PLACE,
    Column("name", "method"),
    Column("n", "n"),
    Column("accuracy", "accuracy, %"),
    Column("bounds", "95 % interval"),
    Column("published", "published"),
    Column("images", "images per step", ",.0f"),
    Column("seconds", "time, s", ",.0f"),
    Column("at_once", "runs at once"),
]


def entries(experiments: Iterable[Experiment]) -> list[Experiment]:
    """Return the experiments of a leaderboard: registered methods, and recipes but for ablations.

    Of experiments that differ in nothing but their precision, it has the one with most runs.
    """
    best: dict[Key, Experiment] = {}
    for one in filter(_enters, experiments):
        known = best.get(_key(one))
        if known is None or len(one.runs) > len(known.runs):
            best[_key(one)] = one
    return list(best.values())


def leaderboard(entered: Sequence[Experiment], kind: Format) -> str:
    """Return a table of methods in the cells that the entries have.

    Rows are ordered by our accuracy, or the highest published one where there is none of ours.
    Times are those on the hardware of most runs, since others cannot be compared with them.
    """
    machines = [machine(run.result["hardware"]) for one in entered for run in one.runs]
    usual = mode(machines) if machines else None
    cells = {(one.data, one.memory) for one in entered}
    of_others: dict[Key, list[Published]] = {}
    for value in published():
        if (value.data, value.memory) in cells:
            of_others.setdefault(_key(value), []).append(value)
    rows = [_row(one, of_others.get(_key(one), ()), usual) for one in entered]
    for one in entered:
        of_others.pop(_key(one), None)
    rows += [_published_row(values) for values in of_others.values()]
    return render([row for _, row in sorted(rows, key=lambda row: row[0])], COLUMNS, kind)


def used_sources(entered: Iterable[Experiment]) -> str:
    """Return the references of published values in the cells of the entries, as Markdown."""
    cells = {(one.data, one.memory) for one in entered}
    used = {value.source for value in published() if (value.data, value.memory) in cells}
    return "\n".join(f"- {name}: {about}." for name, about in sources().items() if name in used)


def _enters(experiment: Experiment) -> bool:
    """Return whether an experiment is that of a method and not of an ablation."""
    ablations = {
        (row.method, row.recipe)
        for name, table in paper_tables().items()
        if name not in ("table1", "table2")
        for row in table.rows
        if row.recipe
    }
    method, recipe = experiment.method, experiment.recipe or ""
    ablated = (method, recipe) in ablations or recipe.startswith("without-")
    return bool(experiment.runs) and not experiment.by_hand and not ablated


def _key(one: Experiment | Published) -> Key:
    return one.method, one.recipe, one.data, one.memory


def _row(one: Experiment, values: Sequence[Published], usual: str | None) -> Ranked:
    accuracy, seconds = one.summary("accuracy"), one.summary("seconds")
    comparable = all(
        is_timed(run.result) and machine(run.result["hardware"]) == usual for run in one.runs
    )
    row: dict[str, Value] = {
        "data": one.data,
        "memory": one.memory,
        "name": one.name,
        "n": len(one.runs),
        "published": _listed(values),
        "images": mean(run.result["images_seen"] / run.result["steps"] for run in one.runs),
    }
    if accuracy:
        row["accuracy"] = with_spread(accuracy.mean, accuracy.deviation)
        row["bounds"] = bounds(accuracy)
    if seconds and comparable:
        row["seconds"] = seconds.mean
        row["at_once"] = max(run.result["shared_by"] for run in one.runs)
    return (one.data, one.memory, -accuracy.mean if accuracy else 0.0), row


def _published_row(values: Sequence[Published]) -> Ranked:
    first = values[0]
    row: dict[str, Value] = {
        "data": first.data,
        "memory": first.memory,
        "name": f"{first.method} ({first.recipe})" if first.recipe else first.method,
        "published": _listed(values),
    }
    return (first.data, first.memory, -max(value.mean for value in values)), row


def _listed(values: Iterable[Published]) -> str | None:
    """Return published values with their sources, rounded to one decimal."""
    texts = []
    for value in values:
        numbers = [written(float(part), ".1f") for part in value.text.split("±")]
        about = ", ".join(filter(None, [value.source, value.note]))
        texts.append(f"{' ± '.join(numbers)} ({about})")
    return "; ".join(texts) or None
