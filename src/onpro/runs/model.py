"""Keep the trained model of a run as a classifier, see `OnlineClassifier.from_run`."""

import logging
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from onpro.errors import UserError
from onpro.memory import Memory
from onpro.memory.per_class import PerClassMemory
from onpro.methods.registry import AnyMethod
from onpro.runs.config import RunConfig
from onpro.training import Trainer
from onpro.training.device import pick_precision

LOG = logging.getLogger(__name__)


def save_model(path: Path, config: RunConfig, trainer: Trainer) -> None:
    """Write the model of a run that has been trained, atomically.

    A method whose state a classifier cannot take over ends no run: a warning says so, and there is
    no file.
    """
    from onpro.classifier import OnlineClassifier  # imports scikit-learn

    keep_memory = config.model == "memory" or trainer.method.predicts_from_memory
    try:
        learned = _learned(trainer, keep_memory=keep_memory)
        classifier = OnlineClassifier.from_state(_params(config, trainer), learned)
    except (LookupError, RuntimeError, TypeError, UserError, ValueError) as error:
        LOG.warning("the model of %s is not kept: %s", config.method, str(error).rstrip("."))
        return
    try:
        classifier.save(path)
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), str(path)) from error
    except ValueError as error:
        raise UserError(f"{error}.") from error


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
    # A classifier is told neither the number of classes nor where a task begins.
    state["random"] = {"growth": method.random["growth"].get_state()} | state["random"]
    state["progress"] |= {"announced": None, "seen": list(range(taken))}
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
