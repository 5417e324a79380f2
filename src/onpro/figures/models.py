"""Load the kept model of an experiment and the test images of its stream."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from onpro.classifier import OnlineClassifier
from onpro.data.imageset import Split
from onpro.errors import UserError
from onpro.experiments.experiment import Experiment
from onpro.fitted import MODEL_FILE
from onpro.methods.registry import AnyMethod
from onpro.runs import load_images, make_stream, read_config


@dataclass(frozen=True)
class KeptModel:
    """A trained method and the test images of its stream."""

    method: AnyMethod
    test: Split
    """On the CPU, by task."""
    classes: tuple[str, ...]
    task_classes: tuple[tuple[int, ...], ...]


def load_model(experiment: Experiment, data_dir: Path | None = None) -> KeptModel:
    """Load the model of the first run of an experiment that has kept one."""
    folders = [run.folder for run in experiment.runs if (run.folder / MODEL_FILE).exists()]
    if not folders:
        raise UserError(
            f"no run of {experiment} has kept its model: train it again with onpro run and the "
            "options --model --fresh."
        )
    config = read_config(folders[0])
    config = replace(config, device="cpu", data_dir=data_dir or config.data_dir)
    stream = make_stream(config, load_images(config))
    try:
        classifier = OnlineClassifier.from_run(folders[0], device="cpu", precision="fp32")
    except (OSError, ValueError) as error:
        raise UserError(f"{str(error).rstrip('.')}.") from error
    splits = [stream.test(task) for task in range(stream.num_tasks)]
    test = Split(
        torch.cat([split.images for split in splits]), torch.cat([split.labels for split in splits])
    )
    return KeptModel(classifier.method_, test, stream.classes, stream.task_classes)


def first_of_each(labels: Tensor, classes: Sequence[int], count: int) -> Tensor:
    """Return the indices of the first `count` images of each of some classes."""
    return torch.cat([(labels == label).nonzero()[:count, 0] for label in classes])
