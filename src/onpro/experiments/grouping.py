"""Group finished runs that differ only in their seed."""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence

from onpro.errors import UserError
from onpro.experiments.naming import configuration, name_of
from onpro.runs import Finished
from onpro.runs.config import read_config


def by_experiment(runs: Sequence[Finished]) -> dict[str, list[Finished]]:
    """Return the runs of each experiment, under a title that tells it from the others.

    Runs on different kinds of device, or with different engines, are different experiments.
    """
    groups: dict[Hashable, list[Finished]] = {}
    for run in runs:
        where = run.result.get("device"), run.result.get("engine")
        groups.setdefault((experiment_of(run) or run.folder, *where), []).append(run)
    members = list(groups.values())
    titles = [_title(group[0]) for group in members]
    for detail in DETAILS:  # only where names alone are not enough
        times = Counter(titles)
        titles = [
            f"{title}, {detail(group[0])}" if times[title] > 1 else title
            for title, group in zip(titles, members, strict=True)
        ]
    return dict(zip(titles, members, strict=True))


def experiment_of(run: Finished) -> str | None:
    """Return the digest of what a run computes but for its seed; None where nothing says it.

    Results of older versions do not hold it; then it is that of the run's configuration.
    """
    known = run.result.get("experiment")
    if isinstance(known, str):
        return known
    try:
        return read_config(run.folder).experiment
    except UserError:
        return None


def _title(run: Finished) -> str:
    return f"{name_of(run)}, {run.result['data']}, M = {run.result['memory']}"


def _precision(run: Finished) -> str:
    precision = str(run.result.get("precision", ""))
    return f"{precision}, deterministic" if configuration(run).get("deterministic") else precision


def _place(run: Finished) -> str:
    return " ".join(str(run.result.get(key, "unknown")) for key in ("engine", "device"))


def settings_code(run: Finished) -> str:
    """Return eight digits that tell what a run computes from others, or the name of its folder."""
    return (experiment_of(run) or "")[:8] or run.folder.name


DETAILS: tuple[Callable[[Finished], str], ...] = (_precision, _place, settings_code)
