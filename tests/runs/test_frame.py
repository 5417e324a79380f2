"""Finished runs as a data frame."""

import sys
from pathlib import Path

import pytest

import onpro
from onpro.errors import UserError
from tests.reports.made_up import result, save


def test_runs_are_rows(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    for seed in range(3):
        save(tmp_path / "deep", result("er", seed), settings={"learning_rate": 0.5})
    frame = onpro.load_runs(tmp_path)
    assert sorted(frame["seed"]) == [0, 1, 2]
    assert set(frame["settings.learning_rate"]) == {0.5}
    assert frame.groupby("method")["average_accuracy"].count()["er"] == 3
    assert len(frame["accuracy"][0]) == 3
    assert all(Path(run).is_dir() for run in frame["run"])


def test_no_run_is_a_mistake(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    with pytest.raises(UserError, match="no finished run"):
        onpro.load_runs(tmp_path)


def test_a_missing_pandas_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"onpro\[pandas\]"):
        onpro.load_runs(tmp_path)
