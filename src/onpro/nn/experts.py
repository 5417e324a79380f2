"""MOSE's network: an expert after each stage of an encoder, with heads of its own."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from onpro.errors import UserError
from onpro.nn import GrowingLinear, seeded
from onpro.nn.batch_norm import BatchNorm
from onpro.nn.encoder import Encoder, mean_over_positions
from onpro.nn.network import Network
from onpro.randomness import derive_seed


class ExpertEncoder(Encoder):
    """An encoder with a gated branch after each stage but the last.

    The maps of a stage, multiplied by a gate, go through as many blocks as stages follow, and are
    pooled to as many features as the last stage has. The trunk goes on with the maps as they are.

    Args:
        trunk: An encoder with stages.
    """

    def __init__(self, trunk: Encoder) -> None:
        super().__init__()
        widths = trunk.stage_widths
        self.trunk = trunk
        self.experts = len(widths)
        self.out_features = self.experts * widths[-1]
        self.gates = nn.ModuleList([Gate(width) for width in widths[:-1]])
        self.branches = nn.ModuleList(
            [
                nn.Sequential(*(Block(a, b) for a, b in pairwise(widths[stage:])))
                for stage in range(self.experts - 1)
            ]
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return the features (n, experts·width) of all experts, the last stage's last."""
        *early, last = self.trunk.stages(images)
        branches = zip(early, self.gates, self.branches, strict=True)
        maps = [branch(gate(x) * x) for x, gate, branch in branches]
        return torch.cat([mean_over_positions(x) for x in (*maps, last)], dim=1)


class Block(nn.Module):
    """Two depth-wise separable 3×3 convolutions with batch norm, the first of stride 2."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.first = _separable(channels_in, channels_in, stride=2)
        self.bn1 = BatchNorm(channels_in)
        self.second = _separable(channels_in, channels_out, stride=1)
        self.bn2 = BatchNorm(channels_out)

    def forward(self, maps: Tensor) -> Tensor:
        """Map (n, channels_in, h, w) to (n, channels_out, h/2, w/2)."""
        halved = self.bn1(self.first(maps))
        result: Tensor = self.bn2(self.second(halved))
        return result


class Gate(nn.Module):
    """A number between 0 and 1 for each entry of maps (n, channels, h, w), computed from them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.block = Block(channels, channels)
        self.bn = BatchNorm(channels)

    def forward(self, maps: Tensor) -> Tensor:
        """Return the gate (n, channels, h, w)."""
        height, width = maps.shape[-2:]
        return upsampled(self.bn(self.block(maps)), height, width).sigmoid()


def _separable(channels_in: int, channels_out: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(
            channels_in,
            channels_in,
            3,
            stride=stride,
            padding=1,
            groups=channels_in,
            bias=False,
        ),
        nn.Conv2d(channels_in, channels_out, 1, bias=False),
    )


def upsampled(maps: Tensor, height: int, width: int) -> Tensor:
    """Resize maps (n, channels, h, w) bilinearly, as `interpolate` without aligned corners.

    The backward pass of matrix products is deterministic on a GPU, that of `interpolate` is not.
    """
    rows = _interpolation(maps.shape[2], height, maps)
    columns = _interpolation(maps.shape[3], width, maps)
    return rows @ maps @ columns.T


def _interpolation(size: int, new_size: int, like: Tensor) -> Tensor:
    """Return the weights (new_size, size) of linear interpolation between points."""
    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    points = torch.arange(size, dtype=dtype, device=like.device)
    wanted = (torch.arange(new_size, dtype=dtype, device=like.device) + 0.5) * (size / new_size)
    wanted = (wanted - 0.5).clamp(0, size - 1)
    return (1 - (wanted[:, None] - points).abs()).clamp(min=0).to(like.dtype)


class ExpertNetwork(Network):
    """Experts at several depths of an encoder, each with a classifier and a projector.

    The last expert is the encoder itself; its classifier is `classifier`. A linear `adaptation` of
    its features is compared with those of the other experts.
    """

    encoder: ExpertEncoder

    def __init__(
        self,
        encoder: str | Encoder,
        image_shape: tuple[int, int, int],
        classes: int,
        *,
        projection: int,
        outputs_per_class: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__(
            encoder, image_shape, classes, outputs_per_class=outputs_per_class, seed=seed
        )
        trunk: Encoder = self.encoder
        if not trunk.stage_widths:
            name = f"encoder '{encoder}'" if isinstance(encoder, str) else "pretrained encoder"
            raise UserError(f"the {name} has no stages to put experts after.")
        width, outputs = trunk.out_features, classes * outputs_per_class
        generator = torch.Generator().manual_seed(derive_seed(seed, "experts"))
        with seeded(derive_seed(seed, "branches")):
            self.encoder = ExpertEncoder(trunk)
            pretrained = set() if isinstance(encoder, str) else set(trunk.modules())
            for module in self.encoder.modules():
                if isinstance(module, nn.Conv2d) and module not in pretrained:
                    nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            self.projectors = nn.ModuleList(
                [nn.Linear(width, projection) for _ in range(self.encoder.experts)]
            )
            self.adaptation = nn.Linear(width, width)
        self.heads = nn.ModuleList(
            [
                GrowingLinear(width, outputs, generator=generator)
                for _ in range(self.encoder.experts - 1)
            ]
        )
        """Classifiers of the experts but the last."""

    def experts(self, features: Tensor) -> tuple[Tensor, ...]:
        """Features (n, width) of each expert, given those of all of them."""
        return features.chunk(self.encoder.experts, dim=1)

    def classifiers(self) -> tuple[GrowingLinear, ...]:
        """The classifier of each expert, that of the last one last."""
        early = (head for head in self.heads if isinstance(head, GrowingLinear))
        return *early, self.classifier

    def head(self, features: Tensor) -> Tensor:
        """Logits of the last expert, given the features of all of them, (n, outputs)."""
        return super().head(self.experts(features)[-1])
