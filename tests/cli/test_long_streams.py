"""What a run of many tasks prints stays short."""

import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from onpro.cli.summary import print_accuracy
from tests.cli.conftest import Command

TASKS = 20


@pytest.fixture
def many_classes(tmp_path: Path) -> Path:
    """A folder of 20 classes, each of one colour."""
    for label in range(TASKS):
        images = tmp_path / "colours" / f"{label:02}"
        images.mkdir(parents=True)
        for k in range(3):
            Image.new("RGB", (8, 8), (12 * label, 100, 80 * k)).save(images / f"{k}.png")
    return tmp_path / "colours"


def test_a_long_stream_is_told_by_its_means(onpro: Command, many_classes: Path) -> None:
    answer = onpro(
        "run", "er", "--data", f"folder:{many_classes}", "--tasks", str(TASKS), "--image-size", "8"
    )  # fmt: skip
    assert answer.status == 0
    lines = [line for line in answer.err.splitlines() if line.startswith("task ")]
    assert len(lines) == TASKS
    assert not any("(" in line for line in lines), "the accuracy on each task"
    rows = [line.split()[2] for line in answer.out.splitlines() if "after task" in line]
    assert rows == [str(task) for task in range(2, TASKS + 1, 2)]


def result(tasks: int) -> dict[str, Any]:
    accuracy = [[100.0] * (task + 1) + [None] * (tasks - task - 1) for task in range(tasks)]
    return {"method": "er", "data": "digits", "seed": 0, "accuracy": accuracy}


@pytest.mark.parametrize("tasks", range(1, 11))
def test_the_table_of_ten_tasks_fits_80_columns_in_one_line_a_task(
    monkeypatch: pytest.MonkeyPatch, tasks: int
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = io.StringIO()
    print_accuracy(result(tasks), out)
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    rows = [line.split() for line in lines if "after task" in line]
    assert rows == [
        ["after", "task", str(task), *["100.0"] * (task + 1)] for task in range(1, tasks + 1)
    ]


def test_the_table_of_a_hundred_tasks_shows_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = io.StringIO()
    print_accuracy(result(100), out)
    rows = [line.split()[2] for line in out.getvalue().splitlines() if "after task" in line]
    assert rows == [str(task) for task in range(10, 101, 10)]
