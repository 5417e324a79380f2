"""Runs with a shortcut: identity, result, every method, resuming."""

import signal
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from onpro.methods import methods, settings_for
from onpro.runs import Interrupted, RunConfig, prepare, read_config, run
from onpro.runs.files import write_json
from onpro.runs.result import collect, describe
from onpro.runs.schema import fault
from onpro.training import CueRates
from tests.tiny_runs import ER, lasting

CUED = replace(ER, shortcut=0.9)


def test_a_run_without_a_shortcut_is_the_run_it_always_was() -> None:
    assert not {name for name in ER.what() if "shortcut" in name}
    assert replace(ER, shortcut=0.0, shortcut_size=0.4).identity == ER.identity


def test_the_identity_is_that_of_share_size_and_strength() -> None:
    changes: dict[str, Any] = {"shortcut": 0.5, "shortcut_size": 0.3, "shortcut_strength": 0.5}
    others = [replace(CUED, **{name: value}) for name, value in changes.items()]
    assert len({config.experiment for config in [ER, CUED, *others]}) == 5
    assert replace(CUED, shortcut_size=0.2, shortcut_strength=1).identity == CUED.identity
    assert "-tiny-shortcut-m20-" in CUED.folder


def test_the_configuration_is_read_back(tmp_path: Path) -> None:
    config = replace(CUED, shortcut_size=0.3)
    write_json(tmp_path / "config.json", describe(config))
    assert read_config(tmp_path) == config


def test_the_result_has_the_measures_and_the_rates_of_each_task(tmp_path: Path) -> None:
    done = run(CUED, tmp_path)
    result = done.result
    assert fault(result) is None
    assert result["no_cue_accuracy"] == result["average_accuracy"]
    reliance = result["true_cue_accuracy"] - result["no_cue_accuracy"]
    assert result["shortcut_reliance"] == pytest.approx(reliance)
    assert set(result["cues"]) == set(CueRates._fields)
    for matrix in result["cues"].values():
        assert [[value is None for value in row] for row in matrix] == [
            [False, True, True],
            [False, False, True],
            [False, False, False],
        ]
    assert not {name for name in run(ER, tmp_path).result if "cue" in name or "shortcut" in name}


def test_unusable_rates_are_a_fault(tmp_path: Path) -> None:
    result = run(CUED, tmp_path).result
    del result["checksum"]
    assert fault(result | {"cues": {"true_cue": [[1.0]]}}) == (
        "result.json has an unusable value of cues"
    )
    assert fault(result | {"cue_following": "all"}) == (
        "result.json has an unusable value of cue_following"
    )


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.thorough if name == "gss" else ()) for name in methods()],
)
def test_every_method_learns_from_images_with_cues(name: str) -> None:
    settings = settings_for(name, "tiny")
    once: dict[str, Any] = {"rotations": 1} if hasattr(settings, "rotations") else {}
    config = RunConfig(
        method=name,
        settings=replace(settings, **once),
        data="tiny",
        memory=20,
        limit_per_class=4,
        tasks=2,
        shortcut=0.9,
        device="cpu",
    )
    trainer = prepare(config)
    trainer.run()
    assert [len(row) for row in trainer.cue_rates] == [1, 2]
    assert fault(collect(config, trainer)) is None


def test_a_resumed_run_ends_as_one_in_one_go(tmp_path: Path) -> None:
    whole = run(CUED, tmp_path / "whole")
    asked = count()
    with pytest.raises(Interrupted):
        run(CUED, tmp_path / "parts", stop=lambda: signal.SIGTERM if next(asked) > 2 else None)
    resumed = run(CUED, tmp_path / "parts")
    assert lasting(resumed.result) == lasting(whole.result)
