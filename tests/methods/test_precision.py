"""fp32 is exact, tf32 rounds convolutions in training, and what decides is always exact."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from onpro.augment import Normalise
from onpro.data.tiny import tiny
from onpro.methods import Context, method, methods, settings_for
from onpro.methods.registry import AnyMethod
from onpro.nn import Precision
from onpro.streams import ClassIncremental
from tests.methods.learners import stepper

DECIDING = {"aser", "dvc", "gss", "mir", "pass"}
"""Methods that compute scores or prototypes in training: these are always exact."""

DATA = tiny(train_per_class=20)


def switch() -> str:
    """How cuDNN would compute a float32 convolution now."""
    cudnn: Any = torch.backends.cudnn  # whose types know no `conv`
    return str(cudnn.conv.fp32_precision)


@contextmanager
def listening() -> Iterator[set[str]]:
    """Values of the switch in the forward and backward passes of all convolutions inside."""
    heard: set[str] = set()

    def note(module: nn.Module, arguments: object, output: torch.Tensor) -> None:
        if isinstance(module, nn.Conv2d):
            heard.add(switch())
            if output.requires_grad:
                output.register_hook(lambda gradient: heard.add(switch()))

    hook = register_module_forward_hook(note)
    try:
        yield heard
    finally:
        hook.remove()


def learner(name: str, precision: Precision) -> AnyMethod:
    context = Context(
        DATA.image_shape,
        Normalise(DATA.mean, DATA.std),
        num_classes=6,
        memory=20,  # soon full, so that methods choose what they keep
        precision=precision,
    )
    return method(name)(settings_for(name, "tiny"), context)


def heard_in(work: Callable[[], object]) -> set[str]:
    with listening() as heard:
        work()
    return heard


def train(learner: AnyMethod) -> None:
    """Two of three tasks."""
    stream = ClassIncremental(DATA, 3)
    for batch in stream:
        if batch.task == 2:
            break
        stepper(learner).step(batch)
    stepper(learner).finish_task()


@pytest.mark.parametrize("name", sorted(methods()))
def test_what_decides_is_exact_and_only_training_rounds(name: str) -> None:
    rounded = learner(name, "tf32")
    in_training = heard_in(lambda: train(rounded))
    assert in_training == ({"tf32", "ieee"} if name in DECIDING else {"tf32"})
    assert heard_in(lambda: rounded.predict(DATA.test.images)) == {"ieee"}


@pytest.mark.parametrize(("precision", "rounding"), [("fp32", "ieee"), ("tf32", "tf32")])
def test_training_on_demand_rounds_as_other_training_does(
    precision: Precision, rounding: str
) -> None:
    asked = learner("gdumb", precision)
    stepper(asked).step(next(iter(ClassIncremental(DATA, 3))))
    assert heard_in(stepper(asked).settle) == {rounding}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ["er", "gdumb"])
def test_other_precisions_never_round_to_tf32(name: str, precision: Precision) -> None:
    exact = learner(name, precision)
    assert heard_in(lambda: train(exact)) == {"ieee"}
    assert heard_in(lambda: exact.predict(DATA.test.images)) == {"ieee"}
