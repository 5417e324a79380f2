"""The tables in the documentation are what the program prints of the stored runs."""

import re
from pathlib import Path

import pytest

from onpro.experiments.reading import read_runs
from onpro.reports import report

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"<!-- onpro report (.*?) -->\n(.*?)<!-- end -->", flags=re.DOTALL)


@pytest.mark.parametrize("page", ["docs/results.md"])
def test_stored_results_and_pages_agree(page: str) -> None:
    blocks = BLOCK.findall((ROOT / page).read_text())
    assert blocks
    for folders, shown in blocks:
        runs = read_runs([ROOT / folder for folder in folders.split()])
        assert shown.strip() == report(runs).strip(), f"run: onpro report {folders}"


def test_stored_runs_are_complete() -> None:
    for run in read_runs([ROOT / "results" / name for name in ("cifar10", "cifar10-eager")]):
        assert (run.folder / "config.json").is_file()
        assert run.result["steps"] == 5000
        assert sum(map(sum, run.result["confusion"])) == 10000
