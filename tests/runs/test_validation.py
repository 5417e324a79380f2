"""Runs that are evaluated on held-out training images."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from onpro.errors import UserError
from onpro.experiments.grouping import found
from onpro.runs import prepare, read_config, run
from tests.tiny_runs import ER


def test_a_run_is_evaluated_on_training_images_that_it_did_not_see(tmp_path: Path) -> None:
    config = replace(ER, validation=0.25, limit_per_class=8)
    trainer = prepare(config)
    whole = prepare(replace(config, validation=0.0))
    known = {image.numpy().tobytes() for batch in whole.stream for image in batch.images}
    seen = {image.numpy().tobytes() for batch in trainer.stream for image in batch.images}
    tasks = range(trainer.stream.num_tasks)
    held_out = {
        image.numpy().tobytes() for task in tasks for image in trainer.stream.test(task).images
    }
    assert held_out <= known
    assert not held_out & seen
    assert len(held_out) == len(known) // 4

    finished = run(config, tmp_path)
    assert "-validation-" in finished.folder.name
    assert read_config(finished.folder) == config
    assert json.loads((finished.folder / "config.json").read_text())["validation"] == 0.25


def test_it_is_an_experiment_of_its_own(tmp_path: Path) -> None:
    runs = [run(replace(ER, validation=share), tmp_path) for share in (0.0, 0.25)]
    named = sorted(experiment.name for experiment in found(runs))
    assert len(named) == 2
    assert "validation=0.25" in named[1]


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_other_shares_are_refused(share: float) -> None:
    with pytest.raises(UserError, match="validation share must be"):
        replace(ER, validation=share)
