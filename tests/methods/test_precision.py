"""fp32 is exact; otherwise float32 convolutions are rounded, in training and in predictions."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from onpro.augment import Normalise
from onpro.data.tiny import tiny
from onpro.figures.gradcam import gradcam
from onpro.methods import Context, method, methods, settings_for
from onpro.methods.registry import AnyMethod
from onpro.nn import Precision
from onpro.streams import ClassIncremental
from tests.methods.learners import stepper

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


@pytest.mark.parametrize(
    "name", [*sorted(methods()), "er-mkd", "er-calibrated", "er-gwm", "er-ccldc"]
)
def test_training_and_predictions_round_alike(name: str) -> None:
    rounded = learner(name, "tf32")
    assert heard_in(lambda: train(rounded)) == {"tf32"}
    assert heard_in(lambda: rounded.predict(DATA.test.images)) == {"tf32"}


@pytest.mark.parametrize(("precision", "rounding"), [("fp32", "ieee"), ("tf32", "tf32")])
def test_training_on_demand_rounds_as_other_training_does(
    precision: Precision, rounding: str
) -> None:
    asked = learner("gdumb", precision)
    stepper(asked).step(next(iter(ClassIncremental(DATA, 3))))
    assert heard_in(stepper(asked).settle) == {rounding}


@pytest.mark.parametrize("name", ["er", "gdumb", "gss", "mir", "dvc"])
def test_fp32_never_rounds(name: str) -> None:
    exact = learner(name, "fp32")
    assert heard_in(lambda: train(exact)) == {"ieee"}
    assert heard_in(lambda: exact.predict(DATA.test.images)) == {"ieee"}


@pytest.mark.parametrize("name", ["mir", "dvc"])
def test_what_chooses_images_in_bf16_is_rounded_to_tf32(name: str) -> None:
    half = learner(name, "bf16")
    assert heard_in(lambda: train(half)) == {"tf32"}


@pytest.mark.parametrize(("precision", "rounding"), [("fp32", "ieee"), ("tf32", "tf32")])
def test_maps_of_attention_round_as_predictions_do(precision: Precision, rounding: str) -> None:
    learned = learner("er", precision)
    assert heard_in(lambda: gradcam(learned, DATA.test.images[0])) == {rounding}


def test_predictions_in_bf16_are_rounded_to_tf32() -> None:
    half = learner("er", "bf16")
    train(half)
    assert heard_in(lambda: half.predict(DATA.test.images)) == {"tf32"}


@pytest.mark.parametrize(
    ("precision", "expected"),
    [("bf16", torch.bfloat16), ("fp16", torch.float32), ("fp32", torch.float32)],
)
def test_gss_compares_gradients_of_the_network_in_bf16(
    precision: Precision, expected: torch.dtype
) -> None:
    gss = learner("gss", precision)
    found = set()

    def note(module: nn.Module, arguments: object, output: torch.Tensor) -> None:
        if not module.training:
            found.add(output.dtype)

    gss.network.encoder.register_forward_hook(note)
    train(gss)
    assert found == {expected}
