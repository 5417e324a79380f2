"""Gradients of groups of images in one backward pass, compared with a pass for each group."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, cross_entropy

from onpro.nn import build_encoder, convolutions, per_group, seeded
from onpro.nn.network import Network
from onpro.nn.per_group import Groups, group_gradients, inner_products


class Standardised(nn.Conv2d):
    """A convolution whose weights are computed from its parameters."""

    def forward(self, x: Tensor) -> Tensor:
        return conv2d(x, self.weight - self.weight.mean(dim=(1, 2, 3), keepdim=True), self.bias)


class Scale(nn.Module):
    """A parameter outside any layer, and one that is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x


class Shared(nn.Module):
    """A layer that is used twice, and perhaps its weight once more."""

    def __init__(self, *, elsewhere: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 5)
        self.elsewhere = elsewhere

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(torch.relu(self.layer(x)))
        return y @ self.layer.weight if self.elsewhere else y


class ChannelsAsImages(nn.Module):
    """A convolution of each channel of (n, 3, 3, 3) by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 5, 3)

    def forward(self, x: Tensor) -> Tensor:
        maps: Tensor = self.convolution(x.reshape(-1, 1, 3, 3))
        return maps.view(-1, 3, 5).mean(dim=1)


def network(encoder: str, shape: tuple[int, int, int]) -> nn.Module:
    return Network(build_encoder(encoder, shape, seed=0), shape, 5)


def odd_layers() -> nn.Module:
    """Biases, strides, dilation, groups of channels, kernels that are not square."""
    return nn.Sequential(
        nn.Conv2d(3, 6, (3, 2), stride=(2, 1), padding=(0, 1)),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Conv2d(6, 9, 3, padding=2, dilation=2, groups=3),
        nn.Conv2d(9, 4, 1, bias=False),
        nn.Flatten(),
        nn.Linear(4 * 4 * 9, 7),
        nn.ReLU(),
        nn.Linear(7, 5, bias=False),
    )


def linear(*further: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(27, 5), *further)


Built = tuple[Callable[[], nn.Module], tuple[int, int, int]]

TOGETHER: dict[str, Built] = {
    "resnet18-nf20": (lambda: network("resnet18-nf20", (3, 8, 8)), (3, 8, 8)),
    "resnet18": (lambda: network("resnet18", (3, 32, 32)), (3, 32, 32)),
    "slim": (lambda: network("slim", (1, 8, 8)), (1, 8, 8)),
    "odd layers": (odd_layers, (3, 9, 8)),
    "shared": (lambda: linear(Shared(elsewhere=False)), (3, 3, 3)),
}
APART: dict[str, Built] = {
    "derived weights": (lambda: nn.Sequential(Standardised(3, 5, 3), nn.Flatten()), (3, 3, 3)),
    "other parameters": (lambda: linear(Scale()), (3, 3, 3)),
    "shared with more than layers": (lambda: linear(Shared(elsewhere=True)), (3, 3, 3)),
    "channels as images": (ChannelsAsImages, (3, 3, 3)),
}
SMALL = sorted((TOGETHER | APART).keys() - {"resnet18"})


def built(name: str) -> tuple[nn.Module, Callable[[int], Tensor]]:
    """A module in eval mode with running statistics, and a source of images, in float64."""
    build, shape = (TOGETHER | APART)[name]
    generator = torch.Generator().manual_seed(0)

    def images(count: int) -> Tensor:
        return torch.randn(count, *shape, generator=generator, dtype=torch.float64) + 1

    with seeded(0):
        module = build().double()
    for _ in range(3):
        module(images(20))
    return module.eval(), images


@pytest.mark.parametrize("groups", [Groups(4, 2), Groups(0, 3), Groups(3, 0)])
@pytest.mark.parametrize("name", SMALL)
def test_each_group_has_its_own_gradient(name: str, groups: Groups) -> None:
    module, images = built(name)
    batch = images(groups.singles + 5 * groups.batches)
    labels = torch.arange(len(batch)) % 5
    found = group_gradients(module, batch, labels, groups)
    parameters = list(module.parameters())
    assert [rows.shape for rows in found] == [(sum(groups), *p.shape) for p in parameters]
    sizes = [1] * groups.singles + [5] * groups.batches
    parts = zip(batch.split(sizes), labels.split(sizes), *found, strict=True)
    for some, of_some, *gradients in parts:
        loss = cross_entropy(module(some), of_some)
        truth = torch.autograd.grad(loss, parameters, materialize_grads=True)
        torch.testing.assert_close(gradients, list(truth))


@pytest.mark.parametrize("name", SMALL)
def test_a_pass_for_each_group_only_where_one_does_not_do(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart: list[Tensor] = []
    monkeypatch.setattr(per_group, "gradients_group_by_group", lambda *_: apart)
    module, images = built(name)
    found = group_gradients(module, images(8), torch.arange(8) % 5, Groups(2, 2))
    assert (found is apart) == (name in APART)


def near(rows: list[Tensor], truth: list[Tensor], tolerance: float) -> bool:
    """Whether the gradient of each group is, up to this share of its length."""
    rows, truth = ([of.double().cpu() for of in part] for part in (rows, truth))
    gaps = [some - exact for some, exact in zip(rows, truth, strict=True)]
    lengths = [inner_products(part, part).diagonal().sqrt() for part in (gaps, truth)]
    return bool((lengths[0] < tolerance * lengths[1]).all())


@pytest.mark.parametrize("name", ["resnet18-nf20", "odd layers", "derived weights"])
def test_half_precision_is_near(name: str) -> None:
    module, images = built(name)
    groups, batch, labels = Groups(4, 2), images(14), torch.arange(14) % 5
    truth = group_gradients(module, batch, labels, groups)
    half = group_gradients(module.float(), batch.float(), labels, groups, autocast=torch.bfloat16)
    assert all(rows.dtype == torch.float32 for rows in half)
    assert near(half, truth, 0.2)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", ["resnet18", "resnet18-nf20", "odd layers", "derived weights"])
def test_a_gpu_computes_the_same(name: str, layout: torch.memory_format) -> None:
    module, images = built(name)
    groups, batch, labels = Groups(4, 2), images(14), torch.arange(14) % 5
    truth = group_gradients(module, batch, labels, groups)
    module.to("cuda", torch.float32, memory_format=layout)  # type: ignore[call-overload]
    on_gpu = batch.to("cuda", torch.float32, memory_format=layout), labels.cuda(), groups
    with convolutions("ieee"):
        assert near(group_gradients(module, *on_gpu), truth, 0.005)
    with convolutions("tf32"):
        assert near(group_gradients(module, *on_gpu), truth, 0.1)
    assert near(group_gradients(module, *on_gpu, autocast=torch.bfloat16), truth, 0.3)


def test_inner_products_run_over_all_parameters() -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = [(4, 3, 2, 2), (4,), (5, 4), ()]

    def gradients(count: int) -> list[Tensor]:
        return [torch.randn(count, *s, generator=generator, dtype=torch.float64) for s in shapes]

    some, others = gradients(3), gradients(2)
    one, two = (torch.cat([g.reshape(len(g), -1) for g in part], dim=1) for part in (some, others))
    torch.testing.assert_close(inner_products(some, others), one @ two.T)
