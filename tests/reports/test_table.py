"""Tables of finished runs."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from onpro.errors import UserError
from onpro.methods import settings_for
from onpro.reports import report
from onpro.runs import Finished
from onpro.runs.reading import read_runs


def finished(method: str, seed: int, last: float, **more: Any) -> Finished:
    result = {
        "method": method,
        "data": "cifar10",
        "memory": 200,
        "seed": seed,
        "accuracy": [[90.0, None], [last, 80.0]],
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


def test_runs_that_differ_in_their_seed_share_a_row() -> None:
    text = report([finished("onpro", 0, 50.0), finished("onpro", 1, 60.0)])
    shown = [line for line in text.splitlines() if line.startswith("| onpro")]
    accuracy, forgetting = ([cell.strip() for cell in row.strip("|").split("|")] for row in shown)
    assert accuracy[4] == forgetting[4] == "0, 1"
    assert accuracy[5:] == ["90.0 ± 0.0", "67.5 ± 3.5", "65.5 ± 1.0 (+2.0)", "10"]
    assert forgetting[5:] == ["0.0 ± 0.0", "17.5 ± 3.5", "17.6 ± 1.4 (−0.1)"]
    assert "NVIDIA H200, torch 2.11.0" in text


def test_settings_given_by_hand_are_named_and_not_compared_with_the_paper(tmp_path: Path) -> None:
    runs = []
    for number, values in enumerate(({}, {"replay_batch": 10, "momentum": 0.5})):
        settings = asdict(settings_for("er", "cifar10")) | values
        config = {"method": "er", "data": "cifar10", "recipe": None, "settings": settings}
        made = finished("er", 0, 50.0 - number, config=config, experiment=str(number))
        runs.append(made)
    usual, other, *_ = (line for line in report(runs).splitlines() if line.startswith("| er"))
    assert usual.startswith("| er | cifar10 |")
    assert "(+44.1)" in usual
    assert other.startswith("| er, momentum=0.5, replay_batch=10 | cifar10 |")
    assert "(" not in other


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
def test_another_stream_is_named_and_not_compared_with_the_paper(
    tmp_path: Path, name: str, value: Any
) -> None:
    text = report([finished("er", 0, 50.0, config={name: value})])
    rows = [line for line in text.splitlines() if line.startswith("| er")]
    assert len(rows) == 2
    for row in rows:
        assert row.startswith(f"| er, {name}={value} | cifar10 |")
        assert "(" not in row


def test_of_a_long_stream_some_tasks_are_shown() -> None:
    accuracy = [[50.0] * t + [float(t)] + [None] * (99 - t) for t in range(100)]
    text = report([finished("er", 0, 50.0, data="tinyimagenet", memory=1000, accuracy=accuracy)])
    header, _, row, *_ = text.splitlines()
    shown = [cell.strip() for cell in header.strip("|").split("|") if "after task" in cell]
    assert shown == [f"after task {task}" for task in range(10, 101, 10)]
    assert "| 50.5 | 1.2 ± 0.1 (+49.3) |" in row, "the last one beside the paper's"


def test_a_long_and_a_short_stream_are_both_shown_to_their_ends() -> None:
    accuracy = [[50.0] * t + [float(t)] + [None] * (19 - t) for t in range(20)]
    text = report(
        [finished("er", 0, 70.0), finished("er", 0, 50.0, data="birds", accuracy=accuracy)]
    )
    header, _, *rows = text.splitlines()[:4]
    titles = [cell.strip() for cell in header.strip("|").split("|")]
    for row, last, value in zip(rows, (20, 2), ("48.5", "75.0"), strict=True):
        assert row.strip("|").split("|")[titles.index(f"after task {last}")].strip() == value


def test_one_thread_is_one() -> None:
    hardware = {"cpu": "x86_64", "threads": 1}
    assert "CPU, 1 thread, torch" in report([finished("er", 0, 50.0, hardware=hardware)])


def test_names_cannot_break_a_row() -> None:
    text = report([finished("er", 0, 50.0, data="folder:/home/a|b\nc<b>")])
    header, _, row, *_ = text.splitlines()
    assert "| folder:/home/a\\|b c\\<b> |" in row
    assert row.replace("\\|", "").count("|") == header.count("|")


def test_a_variant_has_a_row_of_its_own_and_no_value_of_the_full_method() -> None:
    variant = finished("onpro", 0, 40.0, recipe="without-apf")
    variant = Finished(Path("onpro-cifar10-m200-s0-ffffffff"), variant.result)
    text = report([finished("onpro", 0, 50.0), variant])
    rows = [line for line in text.splitlines() if "without-apf" in line]
    assert len(rows) == 2
    assert not any("(+" in row or "(−" in row for row in rows)


def test_a_variant_stands_beside_what_the_paper_has_of_it() -> None:
    text = report([finished("onpro", 0, 40.0, recipe="without-apf", memory=100)])
    assert "| 60.0 | 52.0 ± 1.5 (+8.0) |" in text
    assert "| 25.0 | 34.6 ± 2.4 (−9.6) |" in text


def test_the_recipe_that_changes_nothing_is_the_papers_own() -> None:
    text = report([finished("er", 0, 40.0, recipe="paper")])
    assert "20.9 ± 0.9" in text


def test_a_folder_without_runs_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no finished run"):
        read_runs([tmp_path])
    with pytest.raises(UserError, match="no folder"):
        read_runs([tmp_path / "nothing"])
