"""Tables of methods on kinds of streams."""

from collections.abc import Sequence
from statistics import fmean

from onpro.experiments import Summary, summarise
from onpro.experiments.experiment import MEASURES, Measure
from onpro.experiments.naming import given_by_hand, stream_name
from onpro.reports.formats import markdown, with_spread
from onpro.reports.outcome import ranges
from onpro.runs import Finished
from onpro.streams import stream_kinds

SHOWN: tuple[Measure, ...] = ("average_accuracy", "anytime_accuracy")


def by_stream(runs: Sequence[Finished]) -> str:
    """Return a Markdown table for each measure: a row for each method, a column for each stream.

    A cell is mean ± standard deviation over the runs. The first row has the highest mean of all
    cells. Runs of versions that did not measure something are left out there.
    """
    places = sorted({f"{run.result['data']}, M = {run.result['memory']}" for run in runs})
    groups: dict[tuple[str, str], list[Finished]] = {}
    for run in runs:
        name = _name(run, with_place=len(places) > 1)
        groups.setdefault((name, stream_name(run)), []).append(run)
    order = {kind: number for number, kind in enumerate(stream_kinds())}
    found = sorted({stream for _, stream in groups})
    streams = sorted(found, key=lambda stream: order.get(stream.split()[0], len(order)))
    tables = []
    for measure in SHOWN:
        rows: dict[str, dict[str, Summary]] = {}
        for (name, stream), members in groups.items():
            values = [run.result[measure] for run in members if measure in run.result]
            if values:
                rows.setdefault(name, {})[stream] = summarise(values)
        best_first = sorted(rows, key=lambda name: -fmean(c.mean for c in rows[name].values()))
        cells = [[name, *(_cell(rows[name].get(s)) for s in streams)] for name in best_first]
        tables.append(markdown([MEASURES[measure], *streams], cells))
    seeds = ranges(sorted({run.result["seed"] for run in runs}))
    where = f"{places[0]}: " if len(places) == 1 else ""
    about = f"{where}percent, mean ± standard deviation over seeds {seeds}."
    return "\n\n".join([*tables, about])


def _name(run: Finished, *, with_place: bool) -> str:
    """Return the method and what was given by hand, but not the stream and when it is evaluated."""
    method, recipe = run.result["method"], run.result.get("recipe")
    changed = [
        value
        for value in given_by_hand(run)
        if value.partition("=")[0] not in ("stream", "evaluations")
    ]
    place = [run.result["data"], f"M = {run.result['memory']}"] if with_place else []
    return ", ".join([f"{method} ({recipe})" if recipe else method, *changed, *place])


def _cell(summary: Summary | None) -> str:
    return with_spread(summary.mean, summary.deviation) if summary else ""
