"""A memory of compressed images: more of them in the bytes of as many raw ones, for any method.

After Wang et al., "Memory Replay with Data Compression for Continual Learning", ICLR 2022, and
Caccia et al., "Online Learned Continual Compression with Adaptive Quantization Modules", ICML 2020.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor

from onpro.errors import UserError
from onpro.memory import Memory
from onpro.memory.codec import DIAGONALS, BlockCodec, by_amplitude, four_bits
from onpro.memory.memory import FieldSpec
from onpro.methods.base import Context, Method
from onpro.methods.registry import register_wrapper
from onpro.methods.settings import Settings
from onpro.methods.wrapper import Wrapper


@dataclass(frozen=True)
class CompressedSettings(Settings):
    """Settings of the compression."""

    frequencies: int = 12
    """Number of diagonals of frequencies kept of each block of 8×8 pixels, 1 to 15, at four bits a
    frequency: with fewer, more images are stored, but less sharp (default ours)."""

    ratio: float = 0.0
    """Replaces frequencies: compress each image to at most 1/ratio of the bytes of its pixels, with
    more bits for frequencies of larger amplitude; at least 1, or 0: use frequencies (default
    ours)."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        super().check()
        self.require_between(1, DIAGONALS, "frequencies")
        if self.ratio:
            self.require_at_least(1, "ratio")


@register_wrapper(
    "compressed",
    CompressedSettings,
    title="compressed memory",
    paper="Memory Replay with Data Compression for Continual Learning",
    year=2022,
    images_per_step="as many",
)
class Compressed(Wrapper[CompressedSettings]):
    """Stores as many compressed images as fit into the bytes of M raw ones.

    New images and those to predict are compressed too, so that stored ones do not look different.
    """

    keeps_loss = True

    def __init__(self, settings: CompressedSettings, context: Context) -> None:
        settings.check()
        shape, ratio = context.image_shape, settings.ratio
        size = int(prod(shape) / ratio) if ratio else 0
        tables = by_amplitude(shape, size) if ratio else four_bits(settings.frequencies)
        self.codec = BlockCodec(shape, *tables, context.device)
        super().__init__(settings, context)

    @classmethod
    def refusal(cls, base: type[Method[Any]]) -> str | None:
        """Refuse methods without images, and those whose memory is of a kind of its own."""
        if not base.has_plain_memory:
            return (
                "whose memory is of a kind of its own"
                if base.keeps_images
                else "which keeps no images"
            )
        return super().refusal(base)

    def memory_of(
        self,
        images: int,
        image_shape: tuple[int, ...],
        *,
        device: torch.device,
        extra: Mapping[str, FieldSpec],
    ) -> Memory:
        """A memory of as many bytes as one of raw images, labels and fields included."""
        specs = [*extra.values(), ((), torch.int64)]
        beside = sum(prod(shape) * dtype.itemsize for shape, dtype in specs)
        raw, stored = prod(image_shape), prod(self.codec.stored_shape)
        if stored >= raw:
            raise UserError(
                f"images of {image_shape[1]}×{image_shape[2]} pixels take {raw} bytes as they are, "
                f"compressed {stored}: set a ratio or fewer frequencies, or leave 'compressed' out."
            )
        fitting = images * (raw + beside) // (stored + beside)
        return Memory(fitting, image_shape, device=device, extra=extra, codec=self.codec)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state.

        Its memory is smaller than this one if outputs are stored, and their number was announced
        where it was saved but is not here, as in a classifier made of a run.
        """
        self.memory.shrink(state["memory"]["capacity"])
        super().load_state_dict(state)

    def normalise(self, images: Tensor) -> Tensor:
        """Convert images to network input as if they had been stored."""
        return super().normalise(self.codec.decode(self.codec.encode(images)))
