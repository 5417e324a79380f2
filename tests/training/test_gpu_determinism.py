"""On a GPU: a deterministic run gives the same bits again, whatever the method."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from onpro.methods import methods, settings_for
from onpro.runs import RunConfig, prepare
from onpro.training import Checkpoints, CheckpointWriter, Stopped, Trainer
from onpro.training.device import WORKSPACE
from tests.tiny_runs import CHANGING

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def trainer_of(name: str, *, encoder: str = "resnet18", **values: Any) -> Trainer:
    """A short run of 18 steps in 3 tasks, the memory full before the first is over."""
    settings = replace(settings_for(name, "tiny"), encoder=encoder)
    run: dict[str, Any] = {"data": "tiny", "memory": 40, "image_size": 32, "limit_per_class": 30}
    config = RunConfig(name, settings, deterministic=True, device="cuda", **run | values)
    return prepare(config)


def final_state(name: str, **values: Any) -> dict[str, Any]:
    """Weights, averages, memory, generators, accuracies: all there is after a run."""
    trainer = trainer_of(name, **values)
    trainer.run()
    return trainer.state_dict()


def differences(a: Any, b: Any, where: str = "") -> list[str]:
    """Where two states are not the same, bit for bit, times aside."""
    if isinstance(a, Tensor):
        return [] if a.dtype == b.dtype and torch.equal(a, b) else [where]
    if isinstance(a, dict):
        return [
            place
            for key in a.keys() | b.keys()
            if key not in CHANGING
            for place in differences(a.get(key), b.get(key), f"{where}.{key}")
        ]
    if isinstance(a, (list, tuple)) and len(a) == len(b):
        pairs = enumerate(zip(a, b, strict=True))
        return [place for k, (x, y) in pairs for place in differences(x, y, f"{where}.{k}")]
    return [] if a == b else [where]


@pytest.mark.parametrize(
    ("precision", "engine"), [("fp32", "eager"), ("fp16", "auto"), ("bf16", "auto")]
)
@pytest.mark.parametrize("name", sorted(methods()))
def test_two_runs_are_equal_bit_for_bit(name: str, precision: str, engine: str) -> None:
    first, second = (final_state(name, precision=precision, engine=engine) for _ in range(2))
    assert not differences(first, second)


@pytest.mark.parametrize("encoder", ["slim", "resnet18-nf20", "resnet18-imagenet"])
def test_two_runs_of_any_encoder_are_equal(encoder: str) -> None:
    first, second = (final_state("onpro", precision="bf16", encoder=encoder) for _ in range(2))
    assert not differences(first, second)


@pytest.mark.parametrize("name", sorted(methods()))
def test_a_run_that_was_stopped_ends_the_same(name: str, tmp_path: Path) -> None:
    straight = final_state(name, precision="bf16")
    checkpoints = Checkpoints(tmp_path)
    stopped = trainer_of(name, precision="bf16")
    stopped.checkpointer = CheckpointWriter(
        checkpoints, 0, stop=lambda: 15 if stopped.stream.position > 8 else None
    )
    with pytest.raises(Stopped):
        stopped.run()
    resumed = trainer_of(name, precision="bf16")
    state = checkpoints.load()
    assert state is not None
    resumed.load_state_dict(state["trainer"])
    resumed.run()
    assert not differences(resumed.state_dict(), straight)


def test_the_command_needs_nothing_but_the_option(tmp_path: Path) -> None:
    """A process in which nobody has set the variable cuBLAS reads."""
    surroundings = {name: value for name, value in os.environ.items() if name != WORKSPACE}
    options = ["--data", "tiny", "--limit-per-class", "20", "--deterministic", "--seeds", "2"]
    answers = []
    for out in ("first", "second"):
        answer = subprocess.run(
            [
                sys.executable,
                "-m",
                "onpro",
                "run",
                *options,
                "--json",
                "--out",
                str(tmp_path / out),
            ],
            env=surroundings,
            capture_output=True,
            text=True,
            check=True,
        )
        answers.append(json.loads(answer.stdout.splitlines()[-1]))
    for first, second in zip(*answers, strict=True):
        assert first["device"] == "cuda"
        assert first["confusion"] == second["confusion"]
        assert Path(first["run"]).name == Path(second["run"]).name
        assert losses(Path(first["run"])) == losses(Path(second["run"]))


def losses(run: Path) -> list[Any]:
    """All loss terms in a run's log."""
    lines = (run / "events.jsonl").read_text().splitlines()
    return [json.loads(line).get("terms") for line in lines]
