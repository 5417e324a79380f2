"""Tables of finished runs in every format."""

import csv
import io
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from onpro.errors import UserError
from onpro.experiments.comparison import compare
from onpro.experiments.grouping import found
from onpro.methods import settings_for
from onpro.reports.formats import Format
from onpro.reports.tables import comparisons, conditions, results
from onpro.runs import Finished
from onpro.runs.reading import read_runs
from tests.reports.made_up import result


def finished(method: str, seed: int, last: float, **more: Any) -> Finished:
    result = {
        "method": method,
        "data": "cifar10",
        "memory": 200,
        "seed": seed,
        "accuracy": [[90.0, None], [last, 80.0]],
        "average_accuracy": (last + 80.0) / 2,
        "average_forgetting": (90.0 - last) / 2,
        "precision": "fp32",
        "train_seconds": 10.0,
        "hardware": {"gpu": "NVIDIA H200", "threads": 4},
        "versions": {"torch": "2.11.0", "python": "3.12.3"},
        "config": {"settings": {}},
    } | more
    told = [str(result.get(key)) for key in ("method", "recipe", "data", "memory")]
    folder = Path(f"{method}-cifar10-m200-s{seed}-0123abcd")
    return Finished(folder, {"experiment": " ".join(told)} | result)


def table(runs: list[Finished], kind: Format = "markdown", **options: Any) -> list[list[str]]:
    """The cells of the rows of both tables in Markdown."""
    lines = results(found(runs), kind, **options).splitlines()
    rows = [line.strip("|").split(" | ") for line in lines if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows if "---" not in row[0]]


def test_runs_that_differ_in_their_seed_share_a_row() -> None:
    runs = [finished("onpro", seed, last) for seed, last in enumerate((50.0, 60.0, 55.0))]
    header, accuracy, second, forgetting = table(runs)
    assert header == [
        *("data", "memory", "method", "n"),
        *("accuracy, %", "95 % interval", "paper", "difference"),
    ]
    assert second[4] == "forgetting, %"
    assert accuracy[:4] == forgetting[:4] == ["cifar10", "200", "onpro", "3"]
    assert accuracy[4:] == ["67.5 ± 2.5", "61.3 to 73.7", "65.5 ± 1.0", "+2.0"]
    assert forgetting[4:] == ["17.5 ± 2.5", "11.3 to 23.7", "17.6 ± 1.4", "-0.1"]


def test_two_runs_are_too_few_for_an_interval() -> None:
    _, accuracy, *_ = table([finished("onpro", 0, 50.0), finished("onpro", 1, 60.0)])
    assert accuracy[4:6] == ["67.5 ± 3.5", "n too small"]


def test_hardware_and_versions_are_named_once() -> None:
    runs = [finished("onpro", seed, 50.0) for seed in range(2)]
    said = conditions(found(runs))
    assert said.count("NVIDIA H200, fp32, torch 2.11.0") == 1
    hardware = {"cpu": "x86_64", "threads": 1}
    one_thread = finished("er", 0, 50.0, hardware=hardware)
    assert "CPU, 1 thread, fp32, torch" in conditions(found([one_thread]))


def test_settings_given_by_hand_are_named_and_not_compared_with_the_paper() -> None:
    runs = []
    for number, values in enumerate(({}, {"replay_batch": 10, "momentum": 0.5})):
        settings = asdict(settings_for("er", "cifar10")) | values
        config = {"method": "er", "data": "cifar10", "recipe": None, "settings": settings}
        made = finished("er", 0, 50.0 - number, config=config, experiment=str(number))
        runs.append(made)
    _, usual, other, *_ = table(runs)
    assert usual[2] == "er"
    assert usual[6:8] == ["20.9 ± 0.9", "+44.1"]
    assert other[2] == "er, momentum=0.5, replay_batch=10"
    assert other[6:8] == ["", ""]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tasks", 10),
        ("batch_size", 100),
        ("class_order", "random"),
        ("image_size", 16),
        ("limit_per_class", 50),
    ],
)
def test_another_stream_is_named_and_not_compared_with_the_paper(name: str, value: Any) -> None:
    run = finished("er", 0, 50.0, config={name: value, "settings": {}})
    header, row, *_ = table([run])
    assert row[2] == f"er, {name}={value}"
    assert "paper" not in header


def test_a_run_without_a_readable_configuration_is_not_compared_with_the_paper() -> None:
    header, *_ = table([finished("er", 0, 50.0, config=None)])
    assert "paper" not in header


def test_values_after_each_task() -> None:
    runs = [finished("onpro", seed, last) for seed, last in enumerate((50.0, 60.0))]
    header, accuracy, _, forgetting = table(runs, by_task=True)
    assert header[4:7] == ["after 1", "after 2", "accuracy, %"]
    assert accuracy[4:7] == ["90.0", "67.5", "67.5 ± 3.5"]
    assert forgetting[4:7] == ["0.0", "17.5", "17.5 ± 3.5"]


def test_what_is_given_to_all_by_hand_is_above_the_table() -> None:
    runs = [finished(name, seed, 50.0 + seed) for name in ("er", "onpro") for seed in (0, 1)]
    first, second = found(runs)
    given = [
        replace(first, by_hand=("limit_per_class=8",)),
        replace(second, by_hand=("limit_per_class=8", "rate=1")),
    ]
    names = ["er", "onpro, rate=1"]
    heading, _, _, *rows = results(given, "text", measures=["accuracy"]).splitlines()
    assert heading == "cifar10, M = 200, limit_per_class=8"
    assert [row.split("  ")[0] for row in rows] == names
    assert "er, limit_per_class=8 |" in results(given, "markdown", measures=["accuracy"])
    heading, _, _, row = comparisons(compare(given, ["accuracy"]), "text").splitlines()
    assert heading == "cifar10, M = 200, limit_per_class=8, accuracy"
    assert row.split()[:3] == ["er", "onpro,", "rate=1"]


def test_of_a_long_stream_some_tasks_are_shown() -> None:
    accuracy = [[50.0] * t + [float(t)] + [None] * (99 - t) for t in range(100)]
    header, row, *_ = table([finished("er", 0, 50.0, accuracy=accuracy)], by_task=True)
    shown = [title for title in header if "after" in title]
    assert shown == [f"after {task}" for task in range(10, 101, 10)]
    assert row[header.index("after 100")] == "50.5"


def test_of_streams_of_other_lengths_only_common_tasks_have_a_value() -> None:
    accuracy = [[50.0] * t + [float(t)] + [None] * (19 - t) for t in range(20)]
    runs = [finished("er", 0, 70.0), finished("er", 0, 50.0, data="birds", accuracy=accuracy)]
    header, long, short, *_ = table(runs, by_task=True)
    assert long[header.index("after 20")] == "48.5"
    assert short[header.index("after 2")] == "75.0"
    assert short[header.index("after 20")] == ""


def test_names_cannot_break_a_row() -> None:
    text = results(found([finished("er", 0, 50.0, data="folder:/home/a|b\nc<b>")]), "markdown")
    header, _, row, *_ = text.splitlines()
    assert "| folder:/home/a\\|b c\\<b> |" in row
    assert row.replace("\\|", "").count("|") == header.count("|")


def test_a_variant_has_a_row_of_its_own_and_no_value_of_the_full_method() -> None:
    runs = [finished("onpro", 0, 50.0), finished("onpro", 0, 40.0, recipe="without-apf")]
    _, whole, variant, *_ = table(runs)
    assert (whole[2], variant[2]) == ("onpro", "onpro (without-apf)")
    assert whole[6]
    assert not variant[6]


def test_a_variant_stands_beside_what_the_paper_has_of_it() -> None:
    run = finished("onpro", 0, 40.0, recipe="without-apf", memory=100)
    _, accuracy, _, forgetting = table([run])
    assert accuracy[4:8] == ["60.0", "n too small", "52.0 ± 1.5", "+8.0"]
    assert forgetting[4:8] == ["25.0", "n too small", "34.6 ± 2.4", "-9.6"]


def test_the_recipe_that_changes_nothing_is_the_papers_own() -> None:
    _, row, *_ = table([finished("er", 0, 40.0, recipe="paper")])
    assert row[6] == "20.9 ± 0.9"


def test_measures_can_be_chosen() -> None:
    text = results(found([finished("er", 0, 40.0)]), "text", measures=["seconds"])
    assert "seconds, s" in text
    assert "accuracy" not in text


RUNS = [
    finished(method, seed, last, memory=memory)
    for method, lasts in {"onpro": (50.0, 60.0), "er": (20.0,), "mine": (9.0,)}.items()
    for memory in (200, 500)
    for seed, last in enumerate(lasts)
]


def test_latex_has_the_papers_names_and_columns_and_the_best_in_bold() -> None:
    accuracy, forgetting = results(found(RUNS), "latex").split("\n\n")
    assert all(rule in accuracy for rule in (r"\toprule", r"\midrule", r"\bottomrule"))
    assert r" & \multicolumn{2}{c}{CIFAR-10} \\" in accuracy
    assert r"Method & M = 200 & M = 500 \\" in accuracy
    best = r"\textbf{67.5 $\pm$ 3.5}"
    assert rf"OnPro & {best} & {best} \\" in accuracy
    assert r"ER & 50.0 & 50.0 \\" in accuracy
    assert r"mine & 44.5 & 44.5 \\" in accuracy
    assert r"OnPro & \textbf{17.5 $\pm$ 3.5}" in forgetting, "the least forgetting is the best"


def test_the_best_in_latex_is_a_number_not_a_text() -> None:
    runs = [finished("onpro", 0, 40.0), finished("er", 0, -70.5)]
    assert r"\textbf{60.0}" in results(found(runs), "latex")


def test_latex_shows_what_is_missing_and_sets_special_letters_as_text() -> None:
    run = Finished(Path("x-1"), result("my_method & 100%", recipe="a\nb\\c", memory=100))
    text = results(found([run, *RUNS]), "latex")
    assert r"my\_method \& 100\% (a b\textbackslash{}c) & " in text
    assert "-- & --" in text


def test_programs_get_one_table_of_unrounded_numbers() -> None:
    experiments = found(RUNS)
    rows = list(csv.DictReader(io.StringIO(results(experiments, "csv"))))
    assert [row["method"] for row in rows] == ["onpro", "er", "mine"] * 2
    assert float(rows[0]["accuracy_mean"]) == 67.5
    assert float(rows[0]["accuracy_sd"]) == pytest.approx(3.5355339)
    assert rows[0]["accuracy_ci95"] == "", "two runs are too few"
    assert float(rows[0]["paper_accuracy_mean"]) == 65.5
    assert rows[0]["seeds"] == "0, 1"
    assert rows[1]["accuracy_sd"] == ""
    (first, *_) = json.loads(results(experiments, "json"))
    assert first["accuracy_mean"] == 67.5
    assert first.keys() == rows[0].keys()


def test_seeds_that_follow_each_other_are_a_range() -> None:
    runs = [finished("er", seed, 50.0) for seed in (0, 1, 4, 5, 6, 7)]
    (row,) = csv.DictReader(io.StringIO(results(found(runs), "csv")))
    assert row["seeds"] == "0, 1, 4–7"


def test_runs_on_part_of_the_data_are_named_for_programs(tmp_path: Path) -> None:
    folder = tmp_path / "onpro-cifar10-m200-s0-0123abcd"
    folder.mkdir()
    (folder / "config.json").write_text('{"limit_per_class": 50}')
    text = results(found([Finished(folder, result("onpro"))]), "csv")
    (row,) = csv.DictReader(io.StringIO(text))
    assert row["paper_accuracy_mean"] == ""
    assert row["by_hand"] == "limit_per_class=50"


def test_a_folder_without_runs_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no finished run"):
        read_runs([tmp_path])
    with pytest.raises(UserError, match="no folder"):
        read_runs([tmp_path / "nothing"])
