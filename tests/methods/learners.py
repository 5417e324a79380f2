"""Methods on a small stream, watched while they learn."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from onpro.augment import Normalise
from onpro.data.tiny import tiny
from onpro.errors import UserError
from onpro.methods import Context, method
from onpro.methods.contrast import C, ContrastMethod
from onpro.methods.registry import AnyMethod
from onpro.methods.teacher import Teacher
from onpro.streams import Batch, ClassIncremental

DATA = tiny(classes=4, train_per_class=50, test_per_class=5, image_size=8)


@dataclass(frozen=True)
class Forward:
    """One pass through a method's encoder."""

    images: Tensor
    training: bool


class WithoutChance(ContrastMethod[C]):
    """No augmentation, given slices, the whole memory in order: to put before a method.

    Images arrive, and are stored, as network input.
    """

    slice_starts: list[int]

    def prepare(self, images: Tensor) -> Tensor:
        return images

    def vary(self, images: Tensor) -> Tensor:
        return images

    def draw(self, count: int) -> tuple[Tensor, Tensor]:
        return self.prepare(self.memory.images), self.memory.labels

    def slice_start(self, positions: int) -> Tensor:
        return torch.tensor([self.slice_starts.pop(0)])


def learner(name: str, *, float64: bool = False, **changes: Any) -> Any:
    """A method on images of 8×8; `num_classes`, `memory` and `seed` are those of the run."""
    run: dict[str, Any] = {"num_classes": 4, "memory": 200, "seed": 0}
    run |= {key: changes.pop(key) for key in list(changes) if key in run}
    settings = method(name).settings_type(**{"encoder": "slim"} | changes)
    context = Context(DATA.image_shape, Normalise(DATA.mean, DATA.std), **run)
    learner = method(name)(settings, context)
    return in_float64(learner) if float64 else learner


def in_float64(learner: AnyMethod) -> AnyMethod:
    """The method with all its networks in float64, to compare numbers on any processor.

    In float32 a network amplifies rounding, and with it the order in which a processor adds up.
    Augmentations are float32: leave them out.
    """
    for part in vars(learner).values():
        module = part.network if isinstance(part, Teacher) else part
        if isinstance(module, torch.nn.Module):
            module.double()
    normalise = learner.prepare
    learner.prepare = lambda images: normalise(images).double()  # type: ignore[method-assign] # of this object alone
    return learner


def batches(count: int, start: int = 0, size: int = 10) -> list[Batch]:
    """Batches of a stream of two tasks, of 10 batches of 10 images each."""
    return list(ClassIncremental(DATA, 2, batch_size=size))[start : start + count]


def watch(learner: AnyMethod) -> list[Forward]:
    """A list to which every pass through the encoder is added from now on."""
    forwards: list[Forward] = []

    def note(module: torch.nn.Module, inputs: tuple[Tensor]) -> None:
        forwards.append(Forward(inputs[0].detach().clone(), module.training))

    learner.network.encoder.register_forward_pre_hook(note)
    return forwards


def found_in(images: Tensor, others: Tensor) -> Tensor:
    """Which of the images (n, …) are among the others, (n,)."""
    return (images[:, None] == others[None]).flatten(2).all(dim=2).any(dim=1)


def refused(name: str, word: str, **changes: Any) -> None:
    """A bad value must be refused with one sentence that has the word."""
    with pytest.raises(UserError) as error:
        learner(name, **changes)
    sentence = str(error.value)
    assert word in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence
