"""Rotations that make new classes out of one: 4 of the whole image, 16 with those of its halves."""

from collections.abc import Callable

import torch
from torch import Tensor

from onpro.errors import UserError

QUARTER_TURNS = (0, 2, 1, 3)
"""Counter-clockwise quarter turns of the whole image, in OnPro's order."""


def rotate4(images: Tensor) -> Tensor:
    """The images (n, c, s, s) turned by 0°, 180°, 90°, 270° counter-clockwise, (4n, c, s, s).

    Block-major: all images unturned, then all images turned by 180°, and so on.
    """
    return torch.cat([images.rot90(turns, (-2, -1)) for turns in QUARTER_TURNS])


def rotate16(images: Tensor) -> Tensor:
    """The 16 rotations of OCM in OnPro's order, block-major, (16n, c, s, s).

    Block q = 4·r + k holds inner variant k turned as a whole by rotation r of `rotate4`. The
    inner variants turn neither half, the left half, both halves, the right half by 180° in place.
    """
    left, right = images.chunk(2, dim=-1)
    turned_left, turned_right = left.flip(-2, -1), right.flip(-2, -1)
    inner = [
        images,
        torch.cat((turned_left, right), dim=-1),
        torch.cat((turned_left, turned_right), dim=-1),
        torch.cat((left, turned_right), dim=-1),
    ]
    return rotate4(torch.cat(inner))


def _unrotated(images: Tensor) -> Tensor:
    return images


_ROTATIONS: dict[int, Callable[[Tensor], Tensor]] = {1: _unrotated, 4: rotate4, 16: rotate16}


def rotations(images: Tensor, blocks: int) -> Tensor:
    """The images in 1, 4 or 16 rotation blocks, block-major; block 0 is the images unchanged."""
    return _ROTATIONS[blocks](images)


def rotated_labels(labels: Tensor, blocks: int, num_classes: int) -> Tensor:
    """Labels of `rotations`: y + num_classes·q for block q, (blocks·n,).

    Labels of mixed images may be fractional; they stay so, shifted by whole classes.
    """
    shifts = torch.arange(blocks, device=labels.device) * num_classes
    return (labels + shifts[:, None]).flatten()


def check_rotation(image_shape: tuple[int, int, int], blocks: int) -> None:
    """Refuses images (channels, height, width) that cannot be rotated into that many blocks."""
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
    """PASS's four rotations: each image by 0°, 90°, 180°, 270°, then the next, (4n, c, s, s)."""
    return torch.stack([images.rot90(turns, (-2, -1)) for turns in range(4)], dim=1).flatten(0, 1)


def interleaved_labels(labels: Tensor) -> Tensor:
    """Labels of `interleaved_rotations`: 4·y + k for k quarter turns, (4n,)."""
    return (4 * labels[:, None] + torch.arange(4, device=labels.device)).flatten()
