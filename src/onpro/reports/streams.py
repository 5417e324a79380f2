"""Tables of methods on kinds of streams."""

from collections.abc import Sequence
from statistics import fmean

from onpro.experiments import Summary
from onpro.experiments.experiment import Experiment, Measure
from onpro.experiments.grouping import stream_name
from onpro.reports.formats import markdown, with_spread
from onpro.reports.tables import seed_ranges
from onpro.streams import stream_kinds

SHOWN: tuple[Measure, ...] = ("accuracy", "anytime")


def by_stream(experiments: Sequence[Experiment]) -> str:
    """Return a Markdown table for each measure: a row for each method, a column for each stream.

    A cell is mean ± standard deviation over the runs. The first row has the highest mean of all
    cells. Runs of versions that did not measure something are left out there. Of experiments that
    differ only in when they are evaluated, the one with the most runs is shown.
    """
    places = sorted({f"{one.data}, M = {one.memory}" for one in experiments})
    cells = {
        (_name(one, with_place=len(places) > 1), stream_name(one.runs[0].configuration)): one
        for one in sorted(experiments, key=lambda one: len(one.runs))
    }
    order = {kind: number for number, kind in enumerate(stream_kinds())}
    found = sorted({stream for _, stream in cells})
    streams = sorted(found, key=lambda stream: order.get(stream.split()[0], len(order)))
    tables = []
    for measure in SHOWN:
        rows: dict[str, dict[str, Summary]] = {}
        for (name, stream), one in cells.items():
            if summary := one.summary(measure):
                rows.setdefault(name, {})[stream] = summary
        best_first = sorted(rows, key=lambda name: -fmean(c.mean for c in rows[name].values()))
        shown = [[name, *(_cell(rows[name].get(s)) for s in streams)] for name in best_first]
        tables.append(markdown([f"{measure}, %", *streams], shown))
    seeds = "; ".join(dict.fromkeys(map(seed_ranges, experiments)))
    where = f"{places[0]}: " if len(places) == 1 else ""
    about = f"{where}mean ± standard deviation in percent; seeds: {seeds}."
    return "\n\n".join([*tables, about])


def _name(experiment: Experiment, *, with_place: bool) -> str:
    """Return the method and what was given by hand, but not the stream and when it is evaluated."""
    changed = [
        value
        for value in experiment.by_hand
        if value.partition("=")[0] not in ("stream", "evaluations")
    ]
    place = [experiment.data, f"M = {experiment.memory}"] if with_place else []
    detail = [experiment.detail] if experiment.detail else []
    return ", ".join([experiment.method_and_recipe, *changed, *detail, *place])


def _cell(summary: Summary | None) -> str:
    return with_spread(summary.mean, summary.deviation) if summary else ""
