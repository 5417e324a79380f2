"""Rotations as extra classes: 4 of the whole image, 16 together with those of its halves."""

from collections.abc import Callable

import torch
from torch import Tensor

from onpro.errors import UserError

QUARTER_TURNS = (0, 2, 1, 3)
"""Counter-clockwise quarter turns of the whole image, in OnPro's order."""


def rotate4(images: Tensor) -> Tensor:
    """Rotate images (n, c, s, s) by 0°, 180°, 90°, 270° counter-clockwise, (4n, c, s, s).

    The result is block-major: all images unrotated, then all images rotated by 180°, and so on.
    """
    return torch.cat([images.rot90(turns, (-2, -1)) for turns in QUARTER_TURNS])


def rotate16(images: Tensor) -> Tensor:
    """Return OCM's 16 rotations of images (n, c, s, s) in OnPro's order, (16n, c, s, s).

    Block q = 4·r + k holds inner variant k under rotation r of `rotate4`. The inner variants rotate
    neither half, the left half, both halves, the right half by 180° in place.
    """
    left, right = images.chunk(2, dim=-1)
    rotated_left, rotated_right = left.flip(-2, -1), right.flip(-2, -1)
    inner = [
        images,
        torch.cat((rotated_left, right), dim=-1),
        torch.cat((rotated_left, rotated_right), dim=-1),
        torch.cat((left, rotated_right), dim=-1),
    ]
    return rotate4(torch.cat(inner))


_ROTATIONS: dict[int, Callable[[Tensor], Tensor]] = {
    1: lambda images: images,
    4: rotate4,
    16: rotate16,
}


def rotations(images: Tensor, blocks: int) -> Tensor:
    """Rotate images (n, c, s, s) into 1, 4 or 16 blocks, block-major; block 0 is unrotated."""
    return _ROTATIONS[blocks](images)


def rotated_labels(labels: Tensor, blocks: int, num_classes: int) -> Tensor:
    """Return the labels (blocks·n,) of `rotations`: y + num_classes·q in block q.

    Labels of mixup images may be fractional.
    """
    shifts = torch.arange(blocks, device=labels.device) * num_classes
    return (labels + shifts[:, None]).flatten()


def check_rotation(image_shape: tuple[int, int, int], blocks: int) -> None:
    """Raise `UserError` if images (channels, height, width) do not have that many rotations."""
    if blocks not in _ROTATIONS:
        raise UserError(f"the number of rotations must be 1, 4 or 16, not {blocks}.")
    _, height, width = image_shape
    if blocks > 1 and height != width:
        raise UserError(
            f"images of {height}×{width} pixels cannot be rotated, only square ones: "
            "make them square or set the number of rotations to 1."
        )
    if blocks == 16 and width % 2:
        raise UserError(
            f"images of {height}×{width} pixels cannot be halved for 16 rotations: "
            "give them an even side or set the number of rotations to 4 or 1."
        )


def interleaved_rotations(images: Tensor) -> Tensor:
    """Rotate images by 0°, 90°, 180°, 270° for PASS, image-major, (4n, c, s, s)."""
    return torch.stack([images.rot90(turns, (-2, -1)) for turns in range(4)], dim=1).flatten(0, 1)


def interleaved_labels(labels: Tensor) -> Tensor:
    """Return the labels (4n,) of `interleaved_rotations`: 4·y + k for k quarter turns."""
    return (4 * labels[:, None] + torch.arange(4, device=labels.device)).flatten()
