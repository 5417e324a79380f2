"""Which cells of the paper's tables are measured."""

import csv
import io
from pathlib import Path

import pytest

from onpro.experiments.coverage import Cell, coverage
from onpro.experiments.experiment import Experiment, Setup
from onpro.experiments.grouping import found
from onpro.experiments.plan import Place, configurations
from onpro.experiments.tables import paper_tables
from onpro.nn import Precision
from onpro.reports.coverage import coverage_tables
from onpro.runs import Finished
from tests.reports.made_up import result


def measured(
    *accuracies: float, method: str = "er", memory: int = 200, precision: Precision = "bf16"
) -> list[Finished]:
    """Runs on CIFAR-10 with these accuracies."""
    setup = Setup(method, "cifar10", memory, tuple(range(len(accuracies))))
    runs = []
    for config, accuracy in zip(
        configurations(setup, Place(precision=precision)), accuracies, strict=True
    ):
        content = result(method, config.seed, memory=memory, precision=precision)
        content |= {"experiment": config.experiment, "average_accuracy": accuracy}
        what = config.what() | {"identity": config.identity}
        runs.append(Finished(Path(config.folder), content, what))
    return runs


def cells(*runs: list[Finished]) -> dict[tuple[str, str, str, int, str], Cell]:
    found_cells = coverage(found([run for several in runs for run in several]))
    return {(c.table.name, c.row.title, c.data, c.memory, c.measure): c for c in found_cells}


def test_all_cells_are_listed_and_none_is_measured_without_runs() -> None:
    listed = coverage([])
    assert len(listed) == sum(
        len(table.rows) * len(table.places) * len(table.measures)
        for table in paper_tables().values()
    )
    assert {cell.status for cell in listed} == {"not measured"}
    assert listed[0].command == "onpro run icarl --data cifar10 --memory 100 --seeds 3"


@pytest.mark.parametrize(
    ("accuracies", "status"),
    [
        ([22.9], "agrees"),  # the paper has 20.9
        ([18.94, 18.94], "agrees"),  # 2.0 as printed
        ([23.0], "differs"),
        ([23.0, 23.1, 23.2], "differs"),
        ([20.0, 24.0, 28.0], "agrees"),  # 24.0 ± 9.9
        ([22.305, 23.255, 24.205], "agrees"),  # 2.355 away, ± 2.36
        ([22.43, 23.44, 24.45], "differs"),  # 2.54 away, ± 2.51
    ],
)
def test_a_cell_agrees_within_two_points_or_its_interval(
    accuracies: list[float], status: str
) -> None:
    cell = cells(measured(*accuracies))["table1", "ER", "cifar10", 200, "accuracy"]
    assert cell.status == status


def test_a_run_counts_in_every_table_that_has_it() -> None:
    every = cells(measured(63.0, 64.0, method="onpro"))
    there = {key for key, cell in every.items() if cell.status != "not measured"}
    assert there == {
        ("table1", "OnPro", "cifar10", 200, "accuracy"),
        ("table2", "OnPro", "cifar10", 200, "forgetting"),
        ("table4", "APF", "cifar10", 200, "accuracy"),
        ("tableA4", "OnPro", "cifar10", 200, "accuracy"),
        ("tableA5", "α = 0.25", "cifar10", 200, "accuracy"),
        ("tableA6", "OnPro", "cifar10", 200, "accuracy"),
    }


def test_the_precision_with_the_most_runs_counts() -> None:
    both = measured(30.0, precision="fp32"), measured(20.0, 21.0, 22.0)
    for runs in (both, both[::-1]):
        cell = cells(*runs)["table1", "ER", "cifar10", 200, "accuracy"]
        assert cell.summary
        assert cell.summary.mean == 21.0
        assert cell.command.endswith("er --data cifar10 --memory 200 --seeds 3 --precision bf16")


def test_one_memory_counts_for_all_where_no_images_are_kept() -> None:
    every = cells(measured(30.0, 31.0, method="pass"), measured(35.0, method="pass", memory=500))
    there = [cell for key, cell in every.items() if key[:3] == ("table1", "PASS", "cifar10")]
    assert [cell.memory for cell in there] == [100, 200, 500]
    assert [cell.difference for cell in there] == [pytest.approx(-3.2)] * 3
    assert {cell.command.split(" --seeds")[0] for cell in there} == {
        "onpro run pass --data cifar10 --memory 200"
    }
    other = every["table1", "PASS", "cifar100", 500, "accuracy"]
    assert other.status == "not measured"


def test_other_settings_do_not_count() -> None:
    setup = Setup("er", "cifar10", 200, (0,), settings=(("replay_batch", 10),))
    (config,) = configurations(setup, Place())
    content = result("er") | {"experiment": config.experiment}
    one = Experiment("er", "cifar10", 200, runs=(Finished(Path("a"), content, config.what()),))
    assert {cell.status for cell in coverage([one])} == {"not measured"}


def test_tables_for_people_and_for_programs() -> None:
    listed = list(cells(measured(20.0, 21.0, 22.0)).values())
    text = coverage_tables(listed, "markdown")
    assert "| Table 1 | average accuracy | 126 | 1 | 0 | 125 |" in text
    assert "| ER | – (paper 19.4) | 21.0 ± 1.0 (3), +0.1 ✓ | – (paper 26.0) |" in text
    rows = list(csv.DictReader(io.StringIO(coverage_tables(listed, "csv"))))
    assert len(rows) == len(listed)
    (row,) = (r for r in rows if r["table"] == "table1" and r["n"] == "3")
    assert (row["mean"], row["paper"], row["difference"]) == ("21.0", "20.9", "0.1")
    assert row["hardware"] == "CPU, 2 threads"
