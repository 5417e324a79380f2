"""Keep the trained model of a run, and its networks after each task.

The model at the end is a classifier, see `OnlineClassifier.from_run`; after a task, only what
predictions need is kept.
"""

import logging
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from onpro.errors import UserError
from onpro.files import PRIVATE_FILE
from onpro.image_classifier import ImageClassifier
from onpro.memory import Memory
from onpro.memory.per_class import PerClassMemory
from onpro.methods.registry import AnyMethod
from onpro.nn import without_weights
from onpro.runs.config import RunConfig
from onpro.runs.folder import RunFolder
from onpro.training import EvaluationEvent, StepEvent, Trainer
from onpro.training.device import pick_precision
from onpro.training.statefile import freeze, load_state, save_state

LOG = logging.getLogger(__name__)


def save_model(path: Path, config: RunConfig, trainer: Trainer) -> None:
    """Write the model of a run that has been trained, atomically.

    A method whose state a classifier cannot take over ends no run: a warning says so, and there is
    no file.
    """
    keep_memory = config.model == "memory" or trainer.method.predicts_from_memory
    try:
        learned = _learned(trainer, keep_memory=keep_memory)
        classifier = ImageClassifier.from_state(_params(config, trainer), learned)
    except (LookupError, RuntimeError, TypeError, UserError, ValueError) as error:
        LOG.warning("the model of %s is not kept: %s", config.method, str(error).rstrip("."))
        return
    try:
        classifier.save(path)
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), str(path)) from error
    except ValueError as error:
        raise UserError(f"{error}.") from error


class NetworkKeeper:
    """Keeps the network of a run after each task but the last, after which the model is kept."""

    def __init__(self, place: RunFolder, trainer: Trainer) -> None:
        self._place = place
        self._trainer = trainer

    def on_step(self, step: StepEvent) -> None:
        """Do nothing."""

    def on_evaluation(self, evaluated: EvaluationEvent) -> None:
        """Save the network."""
        task = evaluated.task + 1
        if task < self._trainer.stream.num_tasks:
            save_network(self._place.network(task), self._trainer.method)


def save_network(path: Path, method: AnyMethod) -> None:
    """Write what predictions of a method need, atomically: its network, and for some more."""
    whole = method.state_dict()
    state = {name: whole[name] for name in method.predicting_parts}
    save_state(path, freeze(state, kind="network"), mode=PRIVATE_FILE)


def load_network(path: Path, method: AnyMethod) -> None:
    """Restore what `save_network` wrote, in a new method of the same kind."""
    state = load_state(path, kind="network")
    try:
        classes = method.classes_in(state)
        if classes > method.network.classes:
            method.grow(classes)
        method.load_state_dict(method.state_dict() | state)
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(f"{path} does not fit its run ({error}).") from error


def _params(config: RunConfig, trainer: Trainer) -> dict[str, Any]:
    """Return the arguments of a classifier that learns as the run did."""
    context = trainer.method.context
    _, height, width = context.image_shape
    usual = pick_precision("auto", context.device)
    return {
        "method": config.method,
        "memory": context.memory,
        "seed": context.seed,
        "device": context.device,
        "precision": "auto" if context.precision == usual else context.precision,
        "batch_size": config.batch_size,
        "image_size": height if height == width else None,
        "mean": context.normalise.mean,
        "std": context.normalise.std,
        **asdict(trainer.method.settings),
    }


def _learned(trainer: Trainer, *, keep_memory: bool) -> dict[str, Any]:
    """Return what the run has learned, as the state of an `onpro.fitted.FittedModel`."""
    method, stream = trainer.method, trainer.stream
    outputs = sorted(method.progress.seen)
    taken = outputs[-1] + 1
    names = _distinct(stream.classes)
    state = trainer.stepper.state_dict()
    # A classifier is told neither the number of classes nor where a task begins, and numbers
    # classes by their arrival. The last task is over, so that all of them are earlier ones.
    state["random"] = {"growth": method.random["growth"].get_state()} | state["random"]
    arrived = list(range(taken))
    state["progress"] |= {"announced": None, "seen": arrived, "seen_before_task": arrived}
    if not keep_memory and (emptied := _emptied(method)):
        state |= emptied
        state["progress"] |= {"task": -1, "task_open": False}  # nothing is left to replay
    return {
        "image_shape": method.context.image_shape,
        "device": method.context.device.type,
        "labels": [names[output] for output in outputs],
        "outputs": outputs,
        "taken": taken,
        "seen": stream.num_images,
        "method": state,
    }


def _emptied(method: AnyMethod) -> dict[str, Any]:
    """Return the states of the method's memories before anything was stored."""
    with without_weights():
        new = type(method)(method.settings, replace(method.context, num_classes=None))
    new.grow(method.network.classes)
    return {
        name: getattr(new, name).state_dict()
        for name, part in vars(method).items()
        if isinstance(part, (Memory, PerClassMemory)) and len(part.labels)
    }


def _distinct(names: Sequence[str]) -> list[str]:
    """Class names, those that several classes have with the number of the class.

    >>> _distinct(["crane", "wren", "crane"])
    ['crane (0)', 'wren', 'crane (2)']
    """
    times = Counter(names)
    return [f"{name} ({k})" if times[name] > 1 else name for k, name in enumerate(names)]
