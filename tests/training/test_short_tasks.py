"""A task that is over before a method recognises any of its images is told of."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onpro.methods import settings_for
from onpro.methods.er import ER
from onpro.runs import RunConfig, prepare, run

CALM = [[90.0], [90.0, 10.0], [80.0, 0.0, 5.0]]
SHORT = [[90.0], [90.0, 0.0], [80.0, 70.0, 0.0]]


@pytest.mark.parametrize(
    ("rows", "by_replay_only", "told"),
    [(SHORT, True, 1), (SHORT, False, 0), (CALM, True, 0), ([[0.0], *CALM[1:]], True, 0)],
)
def test_the_first_such_task_is_told_of_where_new_classes_come_by_replay_only(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    rows: list[list[float]],
    by_replay_only: bool,
    told: int,
) -> None:
    left = iter(rows)
    monkeypatch.setattr("onpro.training.trainer.accuracies", lambda *_: next(left))
    monkeypatch.setattr(ER, "learns_new_by_replay_only", by_replay_only)
    settings = settings_for("er", "tiny")
    trainer = prepare(RunConfig("er", settings, "tiny", limit_per_class=10, device="cpu"))
    list(trainer.steps())
    assert len(caplog.records) == told
    if told:
        assert "er recognises no image of task 2 after its 2 steps" in caplog.text


@pytest.mark.parametrize(
    ("name", "changed", "by_replay_only"),
    [
        ("onpro", {}, True),
        ("onpro", {"cross_entropy": "both"}, False),
        ("onpro", {"cross_entropy": "separate"}, False),
        ("ocm", {}, True),
        ("er", {}, False),
    ],
)
def test_which_methods_meet_new_classes_by_replay_only(
    name: str, changed: dict[str, Any], by_replay_only: bool
) -> None:
    settings = replace(settings_for(name, "tiny"), **changed)
    trainer = prepare(RunConfig(name, settings, "tiny", limit_per_class=4, device="cpu"))
    assert trainer.method.learns_new_by_replay_only == by_replay_only


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "told"), [(40, 1), (140, 0)])
def test_onpro_on_few_and_on_more_digits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, limit: int, told: int
) -> None:
    settings = settings_for("onpro", "digits")
    run(RunConfig("onpro", settings, limit_per_class=limit, device="cpu"), tmp_path)
    assert caplog.text.count("recognises no image of task 2 after its 8 steps") == told
