"""The page on speed shows what was measured, and so does the page of the stored files."""

import csv
import json
import re
from pathlib import Path

import pytest

from onpro.reports.bench import bench_table

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "performance.md").read_text()
BENCH = ROOT / "results" / "bench"
STORED = (BENCH / "README.md").read_text()
BLOCK = re.compile(r"<!-- onpro bench --show (.*?) -->\n(.*?)<!-- end -->", flags=re.DOTALL)


def shown_rows(marker: str) -> list[list[str]]:
    """The table of the page between a marker and the next end: header and rows."""
    _, _, after = PAGE.partition(f"<!-- {marker} -->\n")
    header, _, *rows = after.partition("<!-- end -->")[0].strip().splitlines()
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in [header, *rows]]


def test_stored_measurements_are_shown_as_the_program_prints_them() -> None:
    for files, shown in BLOCK.findall(STORED):
        tables = [bench_table(json.loads((ROOT / file).read_text())) for file in files.split()]
        assert shown.strip() == "\n\n".join(tables).strip(), f"run: onpro bench --show {files}"
    shown_files = {file for files, _ in BLOCK.findall(STORED) for file in files.split()}
    assert shown_files == {str(path.relative_to(ROOT)) for path in BENCH.glob("*.json")}


def test_every_stored_file_is_described() -> None:
    described = re.findall(r"^\| `([^`]+)` \|", STORED, flags=re.MULTILINE)
    assert sorted(described) == sorted(
        path.name for path in BENCH.iterdir() if path.name != "README.md"
    )


@pytest.mark.parametrize("name", sorted(path.name for path in BENCH.glob("*.csv")))
def test_tables_of_the_page_are_the_stored_ones(name: str) -> None:
    if name != "whole-runs.csv":  # it has a test of its own
        with (BENCH / name).open() as file:
            assert shown_rows(f"results/bench/{name}") == list(csv.reader(file))


def test_steps_of_all_methods_are_those_stored() -> None:
    results = json.loads((BENCH / "h200.json").read_text())["results"]
    _, *rows = shown_rows("steps of results/bench/h200.json")
    assert len(rows) == len(results)
    for row, result in zip(rows, results, strict=True):
        last = result["phases"][-1]
        assert row == [
            result["method"],
            *(f"{phase['ms']:.2f}" for phase in result["phases"]),
            f"{last['images']:,}",
            f"{100 * last['outside_network']:.0f} %",
            f"{last['memory_allocated'] / 2**30:.1f} GiB",
        ]


def test_whole_runs_are_shown_as_they_were_measured() -> None:
    with (ROOT / "results/bench/whole-runs.csv").open() as file:
        for run in csv.DictReader(file):
            seconds = float(run["seconds"])
            (row,) = [line for line in PAGE.splitlines() if f"| `{run['command']}`" in line]
            assert row.endswith(f"| {seconds:.1f} | {seconds / int(run['runs']):.1f} |")
