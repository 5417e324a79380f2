"""Which folders are runs, and what is said of the others."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from onpro.errors import UserError
from onpro.runs.reading import read_runs
from onpro.runs.schema import checksum
from tests.reports.made_up import result, save

MISSING = object()


def spoil(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "result.json").write_text(text)
    return folder


def test_broken_and_foreign_folders_are_named_and_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = save(tmp_path, result())
    spoil(tmp_path / "cut", '{"method": "er", "acc')
    spoil(tmp_path / "binary", "\x00\x01")
    spoil(tmp_path / "other", '{"loss": 1}')
    spoil(tmp_path / "list", "[1, 2]")
    spoil(tmp_path / "deep", "[" * 100_000)
    (tmp_path / "notes").mkdir()
    (tmp_path / "started").mkdir()
    (tmp_path / "started" / "config.json").write_text("{}")
    (tmp_path / "report.html").write_text("a file is nothing to warn of")
    (tmp_path / ".hidden").mkdir()
    assert read_runs([tmp_path]) == [good]
    said = capsys.readouterr().err.splitlines()
    reasons = {
        "cut": "cannot be read",
        "binary": "cannot be read",
        "other": "lacks method, data",
        "list": "does not hold a result",
        "deep": "",
        "notes": "not the folder of a run",
        "started": "not finished",
    }
    assert len(said) == len(reasons)
    for name, reason in reasons.items():
        (line,) = [line for line in said if f"skipped {tmp_path / name}:" in line]
        assert reason in line


def test_run_folders_named_one_by_one_may_be_broken(tmp_path: Path) -> None:
    good = save(tmp_path, result())
    bad = spoil(tmp_path / "bad", "{")
    told: list[Path] = []
    runs = read_runs([good.folder, bad], skipped=lambda folder, _: told.append(folder))
    assert runs == [good]
    assert told == [bad]


def test_a_run_named_twice_counts_once(tmp_path: Path) -> None:
    good = save(tmp_path, result())
    assert read_runs([tmp_path, good.folder]) == [good]


def test_a_copy_of_a_run_counts_once_and_a_repetition_twice(tmp_path: Path) -> None:
    first = save(tmp_path / "here", result())
    save(tmp_path / "copied", result())
    again = save(tmp_path / "repeated", result() | {"train_seconds": 1.25})
    folders = [tmp_path / name for name in ("here", "copied", "repeated")]
    assert read_runs(folders) == [first, again]


def test_not_a_single_good_run_is_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(tmp_path / "bad", "{")
    with pytest.raises(UserError, match="no finished run"):
        read_runs([tmp_path])
    assert "bad" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("method", 3),
        ("method", "\ud800"),
        ("memory", "200"),
        ("memory", True),
        ("seed", -1),
        ("accuracy", []),
        ("accuracy", [[1.0, None], [1.0]]),
        ("accuracy", [[None]]),
        ("accuracy", [[float("nan")]]),
        ("accuracy", [[101.0]]),
        ("accuracy", [["90"]]),
        ("average_forgetting", None),
        ("average_accuracy", float("inf")),
        ("average_accuracy", 10**400),
        ("confusion", [[1, -1], [0, 1]]),
        ("confusion", [[1, 2]]),
        ("confusion", {}),
        ("classes", ["one"]),
        ("classes", [1, 2, 3, 4, 5, 6]),
        ("class_accuracy", [[90.0] * 6, [90.0] * 5]),
        ("memory_content", [[1] * 6, [1] * 7]),
        ("engine", ["eager"]),
        ("recipe", 1),
        ("train_seconds", -1.0),
        ("hardware", {}),
        ("hardware", "H200"),
        ("versions", {"torch": 2}),
        ("precision", MISSING),
        ("confusion", MISSING),
        ("accuracy", MISSING),
    ],
)
def test_a_result_that_cannot_be_used_is_not(tmp_path: Path, key: str, value: Any) -> None:
    content = result() | {key: value}
    if value is MISSING:
        del content[key]
    spoil(tmp_path / "bad", json.dumps(content))
    good = save(tmp_path, result())
    told: list[str] = []
    assert read_runs([tmp_path], skipped=lambda _, reason: told.append(reason)) == [good]
    assert len(told) == 1
    assert key in told[0] or "surrogates not allowed" in told[0]


def test_classes_need_no_names(tmp_path: Path) -> None:
    content = result()
    del content["classes"], content["recipe"]
    assert read_runs([save(tmp_path, content).folder])


def test_results_without_a_checksum_are_said_to_be_unchecked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    older, newer = result(), result(seed=1)
    save(tmp_path, older)
    save(tmp_path, newer | {"checksum": checksum(newer)})
    assert len(read_runs([tmp_path])) == 2
    assert [record.message for record in caplog.records] == [
        "1 of 2 results have no checksum: read unchecked."
    ]


def test_runs_are_found_at_any_depth(tmp_path: Path) -> None:
    save(tmp_path / "a", result(seed=0))
    save(tmp_path / "a" / "deeper" / "still", result(seed=1))
    (tmp_path / "a" / "back").symlink_to(tmp_path)
    assert {run.result["seed"] for run in read_runs([tmp_path])} == {0, 1}


def test_a_copy_of_a_run_counts_once_whatever_its_name(tmp_path: Path) -> None:
    run = save(tmp_path, result())
    shutil.copytree(run.folder, tmp_path / "copy")
    assert len(read_runs([tmp_path])) == 1
