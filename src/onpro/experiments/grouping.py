"""Runs that differ only in their seed belong together."""

from collections import Counter
from collections.abc import Callable, Sequence

from onpro.experiments.naming import configuration, name_of
from onpro.runs.runner import Finished


def by_experiment(runs: Sequence[Finished]) -> dict[str, list[Finished]]:
    """Runs of one experiment under a title that tells it from the others."""
    groups: dict[tuple[str, ...], list[Finished]] = {}
    for run in runs:
        names = (str(run.result.get(key) or "") for key in ("method", "recipe", "data", "memory"))
        groups.setdefault((*names, settings_hash(run)), []).append(run)
    members = list(groups.values())
    titles = [_title(group[0]) for group in members]
    for detail in DETAILS:  # only where names alone do not do it
        times = Counter(titles)
        titles = [
            f"{title}, {detail(group[0])}" if times[title] > 1 else title
            for title, group in zip(titles, members, strict=True)
        ]
    return dict(zip(titles, members, strict=True))


def settings_hash(run: Finished) -> str:
    """Eight digits that tell the settings of a run from others."""
    return run.folder.name.rpartition("-")[2]


def _title(run: Finished) -> str:
    return f"{name_of(run)}, {run.result['data']}, M = {run.result['memory']}"


def _precision(run: Finished) -> str:
    precision = str(run.result.get("precision", ""))
    return f"{precision}, deterministic" if configuration(run).get("deterministic") else precision


DETAILS: tuple[Callable[[Finished], str], ...] = (_precision, settings_hash)
