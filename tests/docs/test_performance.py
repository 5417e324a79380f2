"""The page on speed shows what was measured, as the program prints it."""

import csv
import json
import re
from pathlib import Path

from onpro.reports.bench import bench_table

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "performance.md").read_text()
BLOCK = re.compile(r"<!-- onpro bench --show (.*?) -->\n(.*?)<!-- end -->", flags=re.DOTALL)


def test_stored_measurements_and_page_agree() -> None:
    for files, shown in BLOCK.findall(PAGE):
        tables = [bench_table(json.loads((ROOT / file).read_text())) for file in files.split()]
        assert shown.strip() == "\n\n".join(tables).strip(), f"run: onpro bench --show {files}"


def test_every_stored_measurement_is_shown() -> None:
    shown = {file for files, _ in BLOCK.findall(PAGE) for file in files.split()}
    stored = {str(path.relative_to(ROOT)) for path in (ROOT / "results" / "bench").glob("*.json")}
    assert stored == shown


def test_whole_runs_are_shown_as_they_were_measured() -> None:
    with (ROOT / "results/bench/whole-runs.csv").open() as file:
        for run in csv.DictReader(file):
            seconds = float(run["seconds"])
            (row,) = [line for line in PAGE.splitlines() if f"| `{run['command']}`" in line]
            assert row.endswith(f"| {seconds:.1f} | {seconds / int(run['runs']):.1f} |")
