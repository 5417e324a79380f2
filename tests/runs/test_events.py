"""The log of a run is one JSON object a line, whatever happens."""

import json
import math
from pathlib import Path
from typing import Any

from onpro.runs.events import EventLog, TensorBoardLog
from onpro.training import EvaluationEvent, StepEvent

STEP = StepEvent(3, 1, {"new": 0.5, "replay": math.nan}, 30, train_seconds=1, elapsed_seconds=1.5)
EVALUATED = EvaluationEvent(4, 1, [50.0, 75.0], train_seconds=2, eval_seconds=1, elapsed_seconds=3)


def strictly(line: str) -> Any:
    """Parse a line of JSON as the standard defines it."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    return json.loads(line, parse_constant=refuse)


def test_steps_and_evaluations_are_lines(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.on_step(STEP)
    while_open = (tmp_path / "events.jsonl").read_text()
    log.on_evaluation(EVALUATED)
    log.close()
    first, second = map(strictly, (tmp_path / "events.jsonl").read_text().splitlines())
    assert strictly(while_open) == first, "a line is there at once"
    assert first == {
        "event": "step",
        "step": 3,
        "task": 1,
        "terms": {"new": 0.5, "replay": None},
        "images_seen": 30,
        "train_seconds": 1,
        "elapsed_seconds": 1.5,
    }
    assert second["event"] == "evaluation"
    assert second["accuracy"] == [50.0, 75.0]


def test_a_loss_that_diverges_is_still_json(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    for value in (math.nan, math.inf, -math.inf):
        log.on_step(StepEvent(1, 0, {"loss": value}, 10, 0.1, 0.1))
    log.close()
    for line in (tmp_path / "events.jsonl").read_text().splitlines():
        assert strictly(line)["terms"] == {"loss": None}


def test_tensorboard_gets_the_same_events(tmp_path: Path) -> None:
    log = TensorBoardLog(tmp_path)
    log.on_step(STEP)
    log.on_evaluation(EVALUATED)
    log.close()
    (file,) = tmp_path.iterdir()
    assert file.name.startswith("events.out.tfevents")
    content = file.read_bytes()
    for name in (b"loss/new", b"accuracy/task 0", b"accuracy/average"):
        assert name in content
