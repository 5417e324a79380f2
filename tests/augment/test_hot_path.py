"""No augmentation causes a host–device sync, nor a copy to the device after the first call."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from onpro.augment import (
    NAMES,
    Normalise,
    build,
    interleaved_labels,
    interleaved_rotations,
    rotated_labels,
    rotations,
)

Step = Callable[[Tensor, torch.Generator], Tensor]


def steps(normalise: Normalise) -> dict[str, Step]:
    """Everything a training step may call."""

    def rotate(images: Tensor, _: torch.Generator) -> Tensor:
        labels = torch.arange(len(images), device=images.device)
        rotated_labels(labels, 16, 10)
        interleaved_labels(labels)
        interleaved_rotations(images)
        return rotations(images, 16)

    def from_uint8(images: Tensor, _: torch.Generator) -> Tensor:
        return normalise(images.to(torch.uint8))

    built: dict[str, Step] = {name: build(name, normalise) for name in NAMES}
    return {**built, "rotate": rotate, "from_uint8": from_uint8}


EVERY_STEP = (*NAMES, "rotate", "from_uint8")


class Watch(TorchDispatchMode):
    """Notes the name of every operation."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


WAITS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "unique_dim"}
UPLOADS = {"lift_fresh", "lift_fresh_copy", "scalar_tensor"}


@pytest.mark.parametrize("name", EVERY_STEP)
def test_neither_waits_nor_uploads(
    name: str, normalise: Normalise, generator: torch.Generator
) -> None:
    images = torch.rand((4, 3, 8, 8), generator=generator)
    step = steps(normalise)[name]
    step(images, generator)
    with Watch() as watch:
        step(images, generator)
    assert not (WAITS | UPLOADS).intersection(watch.operations)


def test_ocm_takes_few_operations_and_one_resampling(
    normalise: Normalise, generator: torch.Generator
) -> None:
    images = torch.rand((4, 3, 8, 8), generator=generator)
    step = build("ocm", normalise)
    step(images, generator)
    with Watch() as watch:
        step(images, generator)
    views = {"unsqueeze", "squeeze", "select", "slice", "expand", "view"}
    assert len([name for name in watch.operations if name not in views]) <= 40
    assert watch.operations.count("grid_sampler_2d") == 1


@pytest.mark.parametrize("name", EVERY_STEP)
def test_shapes_do_not_depend_on_values(
    name: str, normalise: Normalise, generator: torch.Generator
) -> None:
    """Fake tensors have no values, so whatever needs one fails on them."""
    step = steps(normalise)[name]
    images = torch.rand((4, 3, 8, 8), generator=generator)
    expected = step(images, generator).shape
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert step(torch.empty(4, 3, 8, 8), generator).shape == expected


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", EVERY_STEP)
def test_no_synchronisation_on_a_gpu(name: str, normalise: Normalise) -> None:
    device = torch.device("cuda")
    generator = torch.Generator(device).manual_seed(0)
    images = torch.rand((4, 3, 8, 8), generator=generator, device=device)
    step = steps(normalise)[name]
    step(images, generator)
    torch.cuda.set_sync_debug_mode("error")
    try:
        step(images, generator)
    finally:
        torch.cuda.set_sync_debug_mode("default")
