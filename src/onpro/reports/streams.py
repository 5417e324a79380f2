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
    differ only in when they are evaluated, the one with the most runs is shown; but anytime
    accuracies, which can be compared only between equal evaluations, have a table for each number
    of these.
    """
    places = sorted({f"{one.data}, M = {one.memory}" for one in experiments})
    with_place = len(places) > 1
    tables = []
    for measure in SHOWN:
        groups = _of_equal_evaluations(experiments) if measure == "anytime" else {"": experiments}
        for evaluations, members in groups.items():
            about = f" (evaluations={evaluations})" if len(groups) > 1 else ""
            tables.append(_table(members, measure, f"{measure}, %{about}", with_place=with_place))
    seeds = "; ".join(dict.fromkeys(map(seed_ranges, experiments)))
    where = "" if with_place else f"{places[0]}: "
    return "\n\n".join([*tables, f"{where}mean ± standard deviation in percent; seeds: {seeds}."])


def _of_equal_evaluations(experiments: Sequence[Experiment]) -> dict[str, list[Experiment]]:
    """Return experiments by their number of further evaluations, the fewest first."""
    groups: dict[str, list[Experiment]] = {}
    for one in experiments:
        evaluations = str(one.runs[0].configuration.get("evaluations") or 0)
        groups.setdefault(evaluations, []).append(one)
    return dict(sorted(groups.items(), key=lambda group: (len(group[0]), group[0])))


def _table(
    experiments: Sequence[Experiment], measure: Measure, title: str, *, with_place: bool
) -> str:
    cells = {
        (_name(one, with_place=with_place), stream_name(one.runs[0].configuration)): one
        for one in sorted(experiments, key=lambda one: len(one.runs))
    }
    order = {kind: number for number, kind in enumerate(stream_kinds())}
    found = sorted({stream for _, stream in cells})
    streams = sorted(found, key=lambda stream: order.get(stream.split()[0], len(order)))
    rows: dict[str, dict[str, Summary]] = {}
    for (name, stream), one in cells.items():
        if summary := one.summary(measure):
            rows.setdefault(name, {})[stream] = summary
    best_first = sorted(rows, key=lambda name: -fmean(c.mean for c in rows[name].values()))
    shown = [[name, *(_cell(rows[name].get(s)) for s in streams)] for name in best_first]
    return markdown([title, *streams], shown)


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
