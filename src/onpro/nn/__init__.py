"""What sees the images: encoders and heads."""

from collections.abc import Callable
from dataclasses import dataclass

from onpro.errors import UserError, unknown
from onpro.nn.batch_norm import (
    fused_kernels_exist,
    fused_kernels_work,
    normalised_apart,
    use_fused_kernels,
)
from onpro.nn.encoder import Encoder
from onpro.nn.heads import GrowingLinear
from onpro.nn.precision import AUTOCAST, Precision, convolutions
from onpro.nn.resnet import ResNet18
from onpro.nn.seeding import seeded
from onpro.nn.slim import Slim

__all__ = [
    "AUTOCAST",
    "ENCODERS",
    "Encoder",
    "EncoderKind",
    "GrowingLinear",
    "Precision",
    "build_encoder",
    "check_image_size",
    "convolutions",
    "encoder_kind",
    "fused_kernels_exist",
    "fused_kernels_work",
    "normalised_apart",
    "seeded",
    "use_fused_kernels",
]


@dataclass(frozen=True)
class EncoderKind:
    """An encoder that can be asked for by name."""

    build: Callable[[int], Encoder]
    """Makes one for images of so many channels."""
    minimum_side: int
    """The smallest image side: how many pixels wide one pixel of its last map stands for."""


ENCODERS: dict[str, EncoderKind] = {
    "resnet18": EncoderKind(lambda channels: ResNet18(64, channels), 8),
    "resnet18-nf20": EncoderKind(lambda channels: ResNet18(20, channels), 8),
    "resnet18-imagenet": EncoderKind(lambda channels: ResNet18(64, channels, "imagenet"), 32),
    "slim": EncoderKind(Slim, 4),
}


def encoder_kind(name: str) -> EncoderKind:
    """The encoder of this name, or a mistake of the user."""
    if name not in ENCODERS:
        raise unknown("encoder", name, ENCODERS)
    return ENCODERS[name]


def build_encoder(name: str, image_shape: tuple[int, int, int], *, seed: int) -> Encoder:
    """The encoder of this name for images of this shape, on the CPU, its weights from the seed.

    Args:
        name: A key of `ENCODERS`.
        image_shape: Channels, height and width.
        seed: Two encoders of one seed are equal; the global random state is neither read nor moved.
    """
    check_image_size(name, image_shape)
    with seeded(seed):
        return encoder_kind(name).build(image_shape[0])


def check_image_size(name: str, image_shape: tuple[int, int, int]) -> None:
    """Refuse images that are too small for an encoder; see `build_encoder`."""
    least = encoder_kind(name).minimum_side
    _, height, width = image_shape
    if min(height, width) < least:
        fitting = [other for other, k in ENCODERS.items() if min(height, width) >= k.minimum_side]
        raise UserError(
            f"images of {height}×{width} pixels are too small for the encoder '{name}': "
            f"take images of at least {least}×{least}"
            + (f", or the encoder {' or '.join(fitting)}." if fitting else ".")
        )
