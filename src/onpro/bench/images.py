"""Random images to measure time with."""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from onpro.data.imageset import ImageSet, Split
from onpro.memory import Memory
from onpro.streams import Batch

BATCHES = 8
"""Batches that each task has; they come again as long as steps are measured."""

AT_ONCE = 1000
"""Images made in one go."""


def made_up_images(
    classes: int, tasks: int, *, batch_size: int, image_size: int, device: torch.device
) -> ImageSet:
    """Return random images: a few batches for each task, and a test image for each class."""
    each = math.ceil(BATCHES * batch_size * tasks / classes)
    labels = torch.arange(classes, device=device).repeat(each)
    generator = torch.Generator(device).manual_seed(0)
    images = random_pixels(len(labels), (3, image_size, image_size), generator)
    return ImageSet(
        name="made-up images",
        train=Split(images, labels),
        test=Split(images[:classes], labels[:classes]),
        classes=tuple(map(str, range(classes))),
        mean=(0.5, 0.5, 0.5),
        std=(0.29, 0.29, 0.29),
    )


def random_pixels(count: int, image_shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Images (count, 3, height, width) of uniformly random pixels, on the generator's device."""
    shape = (count, *image_shape)
    return torch.randint(
        256, shape, dtype=torch.uint8, generator=generator, device=generator.device
    )


def made_up_batches(
    count: int,
    size: int,
    classes: Sequence[int],
    *,
    task: int,
    image_shape: Sequence[int],
    generator: torch.Generator,
) -> Iterator[Batch]:
    """So many images of the classes in turn, in batches announced as those of a task."""
    for start in range(0, count, size):
        labels = [classes[i % len(classes)] for i in range(start, start + size)]
        yield Batch(
            images=random_pixels(size, image_shape, generator),
            labels=torch.tensor(labels, device=generator.device),
            task=task,
            classes=tuple(sorted(set(labels))),
        )


def fill(memory: Memory, classes: Sequence[int], generator: torch.Generator) -> None:
    """Put random images of the classes in turn into every slot; further fields are 0."""
    in_turn = torch.tensor(classes, device=memory.device)
    for slots in torch.arange(memory.capacity, device=memory.device).split(AT_ONCE):
        fields = {
            name: stored.new_zeros(len(slots), *stored.shape[1:])
            for name, stored in memory.fields.items()
        }
        images = random_pixels(len(slots), memory.image_shape, generator)
        memory.write(slots, images, in_turn[slots % len(classes)], **fields)
    memory.advance(memory.capacity)
