"""The tables in the documentation are what the program prints of the stored runs."""

import re
from dataclasses import asdict
from pathlib import Path

import pytest

from onpro.experiments import settings_for
from onpro.experiments.files import read_json
from onpro.experiments.plan import Place, plan
from onpro.experiments.reading import read_runs
from onpro.experiments.sweep import read_sweep
from onpro.reports import report
from onpro.reports.outcome import outcomes

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"<!-- onpro report (.*?) -->\n(.*?)<!-- end -->", flags=re.DOTALL)


@pytest.mark.parametrize("page", ["docs/results.md", "results/tuned/README.md"])
def test_stored_results_and_pages_agree(page: str) -> None:
    blocks = BLOCK.findall((ROOT / page).read_text())
    assert blocks
    for folders, shown in blocks:
        runs = read_runs([ROOT / folder for folder in folders.split()])
        assert shown.strip() == report(runs).strip(), f"run: onpro report {folders}"


def test_stored_runs_are_complete() -> None:
    folders = ("cifar10", "cifar10-eager", "cifar10-original", "cifar10-variants")
    for run in read_runs([ROOT / "results" / name for name in folders]):
        assert (run.folder / "config.json").is_file()
        assert run.result["steps"] == 5000
        assert sum(map(sum, run.result["confusion"])) == 10000


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
