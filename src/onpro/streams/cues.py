"""Paint the cues of a shortcut into images."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from onpro.errors import UserError
from onpro.streams.shortcut import ShortcutSettings

PALETTE = (
    (255, 245, 50),  # yellow
    (0, 0, 245),  # blue
    (255, 62, 0),  # orange
    (30, 236, 240),  # cyan
    (235, 75, 250),  # magenta
    (0, 135, 50),  # green
    (255, 255, 255),  # white
    (0, 0, 0),  # black
    (255, 195, 60),  # amber
    (180, 0, 30),  # dark red
)
"""Colours of cues. In grayscale they are 10 different levels, at equal distances of about 28."""


@dataclass(frozen=True, eq=False)
class Cues:
    """Paints the cue of a class into images; computed on their device, without host–device sync.

    The patch is centred in a quadrant of the image. It has one colour if a task has at most as many
    classes as there are colours, else two or more as concentric squares: the digits of the class's
    position in its task, from the outside in. So flips and rotations do not change a cue.

    The arithmetic is on integers, so that all devices paint the same pixels.
    """

    positions: Tensor
    """(classes,): position of each class in its task; classes of one position have one cue."""
    patches: Tensor
    """(classes, 3, edge, edge): the patch of each class, int32 from 0 to 255."""
    top: int
    left: int
    opacity: int
    """From 0 to 255."""

    @classmethod
    def of(
        cls,
        shortcut: ShortcutSettings,
        task_classes: Sequence[Sequence[int]],
        image_shape: tuple[int, int, int],
        quadrant: int,
    ) -> "Cues":
        """Return the cues of a stream.

        Args:
            shortcut: size and strength of the patch.
            task_classes: labels of each task.
            image_shape: channels, height and width.
            quadrant: place of the patch, from 0 to 3.
        """
        _, height, width = image_shape
        edge = max(1, round(shortcut.size * min(height, width)))
        most = max(map(len, task_classes))
        squares = 1
        while len(PALETTE) ** squares < most:
            squares += 1
        if edge < 2 * squares - 1:
            raise UserError(
                f"a cue of {edge}×{edge} pixels has no room for the {squares} colours that tell "
                f"{most} classes of a task apart: use a larger shortcut size or more tasks."
            )
        positions = [place for labels in task_classes for place in range(len(labels))]
        down, right = divmod(quadrant, 2)
        return cls(
            torch.tensor(positions),
            torch.stack([_patch(place, squares, edge) for place in positions]),
            top=_corner(height, down, edge),
            left=_corner(width, right, edge),
            opacity=max(1, round(255 * shortcut.strength)),
        )

    def to(self, device: torch.device) -> "Cues":
        """Return the cues on another device."""
        tensors = self.positions.to(device), self.patches.to(device)
        return Cues(*tensors, self.top, self.left, self.opacity)

    def same(self, labels: Tensor, others: Tensor) -> Tensor:
        """Return which pairs of classes have the same cue, (n,)."""
        return self.positions[labels] == self.positions[others]

    def paint(self, images: Tensor, labels: Tensor, chosen: Tensor | None = None) -> Tensor:
        """Return copies of images with the cues of some classes.

        Args:
            images: uint8 (n, 3, height, width); they are not changed.
            labels: (n,): whose cue each image gets.
            chosen: (n,): which images get one; default: all.
        """
        edge = self.patches.shape[-1]
        rows, columns = slice(self.top, self.top + edge), slice(self.left, self.left + edge)
        there = images[:, :, rows, columns].int()
        cue = self.patches.index_select(0, labels)
        mixed = (there * (255 - self.opacity) + cue * self.opacity + 127) // 255
        if chosen is not None:
            mixed = torch.where(chosen[:, None, None, None], mixed, there)
        painted = images.clone()
        painted[:, :, rows, columns] = mixed.to(images.dtype)
        return painted


def other_labels(labels: Tensor, task_classes: Sequence[Sequence[int]]) -> Tensor:
    """Return the label of another class of the same task for each image, on the CPU.

    The images of a class get the other classes of its task in turn.
    """
    others = torch.empty_like(labels)
    classes = [(own, place) for own in task_classes for place in range(len(own))]
    for images, (own, place) in zip(by_group(labels, len(classes)), classes, strict=True):
        turn = torch.arange(len(images)) % (len(own) - 1)
        others[images] = torch.tensor(own)[(place + 1 + turn) % len(own)]
    return others


def choose_share(labels: Tensor, classes: int, share: float, generator: torch.Generator) -> Tensor:
    """Return which images (n,) are a random share of those of their class, rounded."""
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    for images in by_group(labels, classes):
        shuffled = images[torch.randperm(len(images), generator=generator)]
        chosen[shuffled[: round(share * len(images))]] = True
    return chosen


def by_group(group_of_image: Tensor, groups: int) -> tuple[Tensor, ...]:
    """Return the indices of each group's images, in the order of the data set."""
    counts = torch.bincount(group_of_image, minlength=groups).tolist()
    return torch.split(group_of_image.argsort(stable=True), counts)


def _patch(place: int, squares: int, edge: int) -> Tensor:
    """Return a patch (3, edge, edge) of concentric squares."""
    patch = torch.empty(3, edge, edge, dtype=torch.int32)
    for square in range(squares):
        digit = place // len(PALETTE) ** (squares - 1 - square) % len(PALETTE)
        inset = max(square, square * edge // (2 * squares))
        inner = slice(inset, edge - inset)
        patch[:, inner, inner] = torch.tensor(PALETTE[digit], dtype=torch.int32)[:, None, None]
    return patch


def _corner(side: int, half: int, edge: int) -> int:
    """Return where a patch begins that is centred in the first or the second half of a side."""
    return min(max(0, round(side * (0.25 + 0.5 * half) - edge / 2)), side - edge)
