"""The tables in the documentation are what the program prints of the stored runs."""

import re
from dataclasses import asdict
from pathlib import Path
from statistics import mean

import pytest

from onpro.experiments.naming import stream_name
from onpro.experiments.plan import Place, configurations, plan
from onpro.experiments.statistics import curve
from onpro.experiments.sweep import read_sweep
from onpro.methods import settings_for
from onpro.reports import by_stream, comparisons, report
from onpro.reports.outcome import Outcome, outcomes
from onpro.runs.files import read_json
from onpro.runs.reading import read_runs
from onpro.text import written

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"<!-- onpro report (.*?) -->\n(.*?)<!-- end -->", flags=re.DOTALL)


@pytest.mark.parametrize("page", ["docs/results.md", "results/tuned/README.md"])
def test_stored_results_and_pages_agree(page: str) -> None:
    blocks = BLOCK.findall((ROOT / page).read_text())
    assert blocks
    for folders, shown in blocks:
        runs = read_runs([ROOT / folder for folder in folders.split()])
        assert shown.strip() == report(runs).strip(), f"run: onpro report {folders}"


def test_stored_results_and_the_page_on_streams_agree() -> None:
    ((asked, shown),) = BLOCK.findall((ROOT / "docs/streams.md").read_text())
    assert asked == "results/streams --streams"
    runs = read_runs([ROOT / "results/streams"])
    assert shown.strip() == by_stream(runs).strip(), f"run: onpro report {asked}"
    wanted = {cell.experiment for cell in read_sweep(ROOT / "results/streams/streams.toml")}
    place = Place(device="cpu", precision="fp32")
    planned = {config.identity for e in wanted for config in configurations(e, place)}
    assert {run.result["identity"] for run in runs} == planned
    assert len({(run.result["method"], stream_name(run)) for run in runs}) == 14 * 7
    for run in runs:
        assert (run.folder / "config.json").is_file()
        assert sum(map(sum, run.result["confusion"])) == 355


def compared(*patterns: str) -> dict[tuple[str, str], list[str]]:
    """Return what `onpro report --compare` prints on accuracy, from the column n on."""
    folders = [folder for pattern in patterns for folder in sorted(ROOT.glob(pattern))]
    lines = comparisons(read_runs(folders)).splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {(row[0], row[1]): row[6:] for row in rows if row[4:5] == ["accuracy"]}


def test_p_values_of_ablations_are_those_of_the_command() -> None:
    rows = compared("results/cifar10/onpro-cifar10-m100-*")
    assert len(rows) == 6
    recipes = ("without-ope", "without-apf", "baseline")
    last_two = [rows["onpro", f"onpro ({recipe})"][-2:] for recipe in recipes]
    p, adjusted = ("{}, {} and {}".format(*column) for column in zip(*last_two, strict=True))
    text = " ".join((ROOT / "docs/results.md").read_text().split())
    assert f"p = {p}, adjusted for all six pairs {adjusted} (`onpro report" in text


def test_p_values_of_tuned_methods_are_those_of_the_command() -> None:
    names = ("aser", "er", "gdumb", "gss", "mir")
    rows = compared("results/cifar10-tuned", *(f"results/cifar10/{name}-*" for name in names))
    assert len(rows) == 45
    text = (ROOT / "docs/results.md").read_text()
    for name in names:
        (pair,) = (pair for pair in rows if {*pair} == {name, f"{name} (tuned)"})
        assert f"| {' | '.join([*pair, *rows[pair]])} |" in text


def test_stored_runs_are_complete() -> None:
    folders = sorted((ROOT / "results").glob("cifar*"))
    assert len(folders) > 1
    for run in read_runs(folders):
        assert (run.folder / "config.json").is_file()
        assert run.result["steps"] == 5000
        assert sum(map(sum, run.result["confusion"])) == 10000


def onpro(memory: int, recipe: str | None = None) -> Outcome:
    """What its runs on CIFAR-10 say."""
    (found,) = (
        outcome
        for outcome in outcomes(read_runs([ROOT / "results/cifar10"]))
        if (outcome.result["method"], outcome.result["memory"]) == ("onpro", memory)
        and outcome.result.get("recipe") == recipe
    )
    return found


OFFICIAL = {
    (100, 3): (66.9, 66.8),
    (100, 4): (57.7, 61.2),
    (200, 3): (69.7, 68.8, 73.9, 72.1, 68.7, 69.6),
    (200, 4): (60.5, 59.7, 65.4, 66.7, 60.6, 63.0),
    (200, 5): (63.1, 63.9, 61.7, 64.7),
    (500, 3): (75.5, 74.2),
    (500, 4): (71.9, 72.7),
}
"""Average accuracy of OnPro's official implementation, by memory and tasks seen."""


@pytest.mark.parametrize(("memory", "tasks"), OFFICIAL)
def test_onpro_keeps_up_with_its_official_implementation(memory: int, tasks: int) -> None:
    found, official = onpro(memory), OFFICIAL[memory, tasks]
    assert len(found.runs) >= 3
    ours = mean(curve(run.result["accuracy"])[tasks - 1] for run in found.runs)
    gap = ours - mean(official)
    assert gap > -3
    shown = f"{written(ours, '.1f')} ({written(gap, '+.1f')})".replace("-", "−")
    cells = [str(memory), str(tasks), ", ".join(map(str, official))]
    cells += [written(mean(official), ".1f"), shown]
    assert f"| {' | '.join(cells)} |" in (ROOT / "docs/results.md").read_text()


@pytest.mark.parametrize("recipe", ["baseline", "without-apf", "without-ope"])
def test_onpro_loses_by_an_ablation(recipe: str) -> None:
    found = onpro(100, recipe)
    assert len(found.runs) >= 2
    assert found.accuracy.mean < onpro(100).accuracy.mean


def test_precisions_of_onpro_agree() -> None:
    """Over the same three seeds the means differ by less than the seeds of one precision do."""
    stored = read_runs([ROOT / "results/cifar10", ROOT / "results/cifar10-precision"])
    compared = [
        run
        for run in stored
        if (run.result["method"], run.result["memory"]) == ("onpro", 200)
        and run.result["seed"] in range(3)
    ]
    found = outcomes(compared)
    assert {outcome.result["precision"] for outcome in found} == {"tf32", "fp16", "bf16"}
    assert all(outcome.seeds == "0–2" for outcome in found)
    means = [outcome.accuracy.mean for outcome in found]
    assert max(means) - min(means) < max(outcome.accuracy.deviation or 0.0 for outcome in found)


@pytest.mark.parametrize("name", ["aser", "er", "gdumb", "gss", "mir"])
def test_the_recipe_tuned_is_the_winner_of_its_search(name: str) -> None:
    runs = [run for run in read_runs([ROOT / "results/tuned"]) if run.result["method"] == name]
    best = max(outcomes(runs), key=lambda outcome: outcome.accuracy.mean)
    assert best.seeds == "100, 101"
    won = read_json(best.runs[0].folder / "config.json")["settings"]
    assert won == asdict(settings_for(name, "cifar10", "tuned"))


def test_the_search_is_complete() -> None:
    """What is stored is what the file asks for, no more and no less."""
    cells = read_sweep(ROOT / "results/tuned/search.toml")
    asked = plan(cells, ROOT / "results/tuned", Place(precision="bf16"))
    assert not asked.left()
    assert len(asked.runs()) == len(read_runs([ROOT / "results/tuned"]))
