"""Runs that differ only in their seed belong together."""

from collections.abc import Sequence

from onpro.experiments.run import Finished


def by_experiment(runs: Sequence[Finished]) -> dict[str, list[Finished]]:
    """Runs of one experiment under a title that tells it from the others."""
    groups: dict[tuple[str, ...], list[Finished]] = {}
    for run in runs:
        result = run.result
        settings = run.folder.name.rpartition("-")[2]
        recipe = result.get("recipe")
        name = f"{result['method']} ({recipe})" if recipe else result["method"]
        key = (str(result["data"]), str(result["memory"]), name, settings)
        groups.setdefault(key, []).append(run)
    titles = [f"{name}, {data}, M = {memory}" for data, memory, name, _ in groups]
    return {
        title if titles.count(title) == 1 else f"{title} ({key[-1]})": members
        for title, (key, members) in zip(titles, groups.items(), strict=True)
    }
