"""What a run of many tasks prints stays short."""

from pathlib import Path

import pytest
from PIL import Image

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
