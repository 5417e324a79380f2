"""Networks: encoders, heads and fused kernels."""

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
from onpro.nn.precision import AUTOCAST, Precision, Rounding, convolutions, float32_by_default
from onpro.nn.pretrained import Pretrained, PretrainedEncoder, is_pretrained, without_weights
from onpro.nn.resnet import ResNet18
from onpro.nn.slim import Slim
from onpro.randomness import seeded

__all__ = [
    "AUTOCAST",
    "ENCODERS",
    "Encoder",
    "EncoderKind",
    "GrowingLinear",
    "Precision",
    "Pretrained",
    "PretrainedEncoder",
    "Rounding",
    "build_encoder",
    "check_image_size",
    "convolutions",
    "encoder_kind",
    "float32_by_default",
    "fused_kernels_exist",
    "fused_kernels_work",
    "is_pretrained",
    "normalised_apart",
    "seeded",
    "use_fused_kernels",
    "without_weights",
]


@dataclass(frozen=True)
class EncoderKind:
    """An encoder that can be built by name."""

    build: Callable[[tuple[int, int, int]], Encoder]
    """Build the encoder for images of this shape: channels, height and width."""
    minimum_side: int
    """Smallest height and width of images: the factor by which it reduces the resolution."""


ENCODERS: dict[str, EncoderKind] = {
    "resnet18": EncoderKind(ResNet18, 8),
    "resnet18-4x4": EncoderKind(lambda shape: ResNet18(shape, pool="4x4"), 8),
    "resnet18-nf20": EncoderKind(lambda shape: ResNet18(shape, width=20, pool="4x4"), 8),
    "resnet18-imagenet": EncoderKind(lambda shape: ResNet18(shape, stem="imagenet"), 32),
    "slim": EncoderKind(lambda shape: Slim(shape[0]), 4),
}


def encoder_kind(name: str) -> EncoderKind:
    """Return the encoder with this name; raise `UserError` if there is none."""
    if name not in ENCODERS:
        raise unknown("encoder", name, ENCODERS)
    return ENCODERS[name]


def build_encoder(name: str, image_shape: tuple[int, int, int], *, seed: int) -> Encoder:
    """Build an encoder on the CPU.

    Args:
        name: A key of `ENCODERS`.
        image_shape: Channels, height and width.
        seed: Seed of the initial weights; the global random state is neither read nor changed.
    """
    check_image_size(name, image_shape)
    with seeded(seed):
        return encoder_kind(name).build(image_shape)


def check_image_size(name: str, image_shape: tuple[int, int, int]) -> None:
    """Refuse images that are too small for an encoder; pretrained ones resize them."""
    if is_pretrained(name):
        return
    least = encoder_kind(name).minimum_side
    _, height, width = image_shape
    if min(height, width) < least:
        fitting = [other for other, k in ENCODERS.items() if min(height, width) >= k.minimum_side]
        raise UserError(
            f"images of {height}×{width} pixels are too small for the encoder '{name}': "
            f"use images of at least {least}×{least}"
            + (f", or the encoder {' or '.join(fitting)}." if fitting else ".")
        )
