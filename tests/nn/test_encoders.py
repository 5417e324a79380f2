import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from onpro.errors import UserError
from onpro.nn import ENCODERS, build_encoder, normalised_apart, seeded, use_fused_kernels
from onpro.nn.macs import macs
from onpro.nn.resnet import FirstConvolution, ShortcutConvolution, Strided1x1
from tests.golden.values import Golden


def random_images(count: int, side: int, channels: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, channels, side, side, generator=generator)


@pytest.mark.parametrize(
    ("name", "out_features"),
    [
        ("resnet18", 512),
        ("resnet18-4x4", 512),
        ("resnet18-nf20", 160),
        ("resnet18-imagenet", 512),
        ("slim", 160),
    ],
)
def test_features_have_the_announced_size_for_every_image_size(
    name: str, out_features: int
) -> None:
    smallest = ENCODERS[name].minimum_side
    for side, channels in ((smallest, 3), (smallest + 5, 1)):
        encoder = build_encoder(name, (channels, side, side), seed=0)
        assert encoder.out_features == out_features
        assert encoder(random_images(2, side, channels)).shape == (2, out_features)


@pytest.mark.parametrize(
    ("name", "of_32", "of_64", "of_84"),
    [
        ("resnet18", 512, 512, 512),
        ("resnet18-4x4", 512, 2048, 2048),
        ("resnet18-nf20", 160, 640, 640),
    ],
)
def test_a_fixed_pool_gives_larger_images_more_features(
    name: str, of_32: int, of_64: int, of_84: int
) -> None:
    for side, expected in ((32, of_32), (64, of_64), (84, of_84)):
        encoder = build_encoder(name, (3, side, side), seed=0).eval()
        features = encoder(images := random_images(1, side))
        assert features.shape == (1, expected) == (1, encoder.out_features)
        maps = encoder.stages(images)[-1]
        width = maps.shape[1]
        squares = expected // width
        pooled = maps if squares == 1 else maps[..., :8, :8].unfold(2, 4, 4).unfold(3, 4, 4)
        means = pooled.flatten(-2).mean(-1)
        torch.testing.assert_close(features, means.reshape(1, expected))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_every_weight_of_an_encoder_learns(layout: torch.memory_format) -> None:
    for name in ("slim", "resnet18-nf20"):
        encoder = build_encoder(name, (3, 16, 16), seed=0)
        encoder = encoder.to(memory_format=layout)
        features = encoder(random_images(4, 16).to(memory_format=layout))
        torch.autograd.backward(features.square().sum())
        assert all(p.grad is not None and p.grad.any() for p in encoder.parameters())


def test_a_single_small_image_trains() -> None:
    encoder = build_encoder("slim", (3, 8, 8), seed=0)
    assert encoder(random_images(1, 8)).isfinite().all()


@pytest.mark.golden("onpro/model.*")
def test_the_official_weights_fit(golden: Golden) -> None:
    weights = dict(golden.group("onpro/model."))
    heads = {k for k in weights if k.startswith(("linear.", "simclr."))}
    encoder = build_encoder("resnet18-nf20", (3, 32, 32), seed=0)
    encoder.load_state_dict({k: v for k, v in weights.items() if k not in heads}, strict=True)
    assert weights["linear.weight"].shape[1] == encoder.out_features


def test_sizes_are_those_of_the_paper() -> None:
    full = build_encoder("resnet18", (3, 32, 32), seed=0)
    assert sum(p.numel() for p in full.parameters()) == pytest.approx(11.17e6, rel=1e-3)
    assert macs(full, (3, 32, 32)) == pytest.approx(0.555e9, rel=2e-3)
    assert macs(full, (3, 64, 64)) == pytest.approx(2.22e9, rel=2e-3)
    reduced = build_encoder("resnet18-nf20", (3, 32, 32), seed=0)
    assert sum(p.numel() for p in reduced.parameters()) == pytest.approx(1.1e6, rel=1e-2)


def test_the_imagenet_stem_is_the_usual_one() -> None:
    encoder = build_encoder("resnet18-imagenet", (3, 224, 224), seed=0)
    assert macs(encoder, (3, 224, 224)) == pytest.approx(1.814e9, rel=2e-3)


def test_slim_is_slim() -> None:
    encoder = build_encoder("slim", (3, 8, 8), seed=0)
    assert macs(encoder, (3, 8, 8)) < 1e6


def test_counting_leaves_the_module_alone() -> None:
    encoder = build_encoder("slim", (3, 8, 8), seed=0)
    before = {k: v.clone() for k, v in encoder.state_dict().items()}
    macs(encoder, (3, 8, 8))
    assert encoder.training
    assert all(torch.equal(v, before[k]) for k, v in encoder.state_dict().items())


def test_batch_norm_is_set_as_in_the_paper() -> None:
    encoder = build_encoder("resnet18-nf20", (3, 32, 32), seed=0)
    norms = [m for m in encoder.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert {(m.eps, m.momentum) for m in norms} == {(1e-5, 0.1)}


@pytest.mark.parametrize("name", ["slim", "resnet18-nf20"])
def test_weights_depend_on_the_seed_alone(name: str) -> None:
    one, same, other = (build_encoder(name, (3, 8, 8), seed=s).state_dict() for s in (3, 3, 4))
    assert all(torch.equal(one[k], same[k]) for k in one)
    assert not torch.equal(one["conv1.weight"], other["conv1.weight"])


def test_an_unknown_encoder_is_named_with_its_neighbour() -> None:
    with pytest.raises(UserError, match="did you mean 'resnet18'"):
        build_encoder("resnet81", (3, 32, 32), seed=0)


def test_images_too_small_are_refused_with_advice() -> None:
    with pytest.raises(UserError, match=r"8×8.*at least 32×32.*slim"):
        build_encoder("resnet18-imagenet", (3, 8, 8), seed=0)
    with pytest.raises(UserError, match=r"at least 4×4\.$"):
        build_encoder("slim", (3, 3, 9), seed=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("channels", [1, 3, 8])
def test_zero_padded_input_channels_change_nothing(channels: int) -> None:
    with seeded(0):
        cpu = FirstConvolution(channels, 16, 3, padding=1, bias=False).double()
    gpu = copy.deepcopy(cpu).cuda()
    images = random_images(4, 9, channels).double()
    expected, maps = cpu(images), gpu(images.cuda())
    torch.autograd.backward([expected.square().sum(), maps.square().sum()])
    assert cpu.weight.grad is not None
    assert gpu.weight.grad is not None
    assert torch.allclose(maps.cpu(), expected)
    assert torch.allclose(gpu.weight.grad.cpu(), cpu.weight.grad)


@pytest.mark.parametrize("shape", [(2, 3, 6, 6), (1, 3, 5, 7), (2, 3, 1, 1)])
@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (2, 3)])
def test_a_strided_1x1_convolution_has_the_values_and_gradients_of_torch(
    shape: tuple[int, ...], stride: tuple[int, int]
) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, dtype=torch.double, generator=generator)
    x = x.contiguous(memory_format=torch.channels_last).requires_grad_()
    weight = torch.randn(4, 3, 1, 1, dtype=torch.double, generator=generator, requires_grad=True)
    expected = conv2d(x, weight, stride=stride)
    found = Strided1x1.apply(x, weight, stride)
    outer = torch.randn(expected.shape, dtype=torch.double, generator=generator)
    torch.testing.assert_close(found, expected)
    for wanted in ([x, weight], [x], [weight]):
        gradients = torch.autograd.grad(found, wanted, outer, retain_graph=True)
        in_torch = torch.autograd.grad(expected, wanted, outer, retain_graph=True)
        torch.testing.assert_close(gradients, in_torch)
    with torch.no_grad():
        assert not Strided1x1.apply(x, weight, stride).requires_grad


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16, None], ids=str)
@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize(
    "build",
    [
        lambda: FirstConvolution(3, 64, 3, padding=1, bias=False),
        lambda: ShortcutConvolution(64, 128, 1, stride=2, bias=False),
        lambda: ShortcutConvolution(128, 256, 1, stride=2, bias=False),
    ],
    ids=["first", "shortcut", "later-shortcut"],
)
def test_convolutions_for_a_gpu_differ_by_rounding_only(
    build: Callable[[], nn.Conv2d], captured: bool, precision: torch.dtype | None
) -> None:
    """Eager and captured, they agree with torch's convolution in double precision."""
    with seeded(0):
        gpu = build().cuda()
    x = random_images(6, 9, gpu.in_channels).cuda().contiguous(memory_format=torch.channels_last)
    if precision is not None and gpu.in_channels > 3:
        x = x.to(precision)  # feature maps, unlike images, are in half precision already
    x.requires_grad_()

    def outcome() -> list[Tensor]:
        with torch.autocast("cuda", precision, enabled=precision is not None):
            maps = gpu(x)
        return [maps, *torch.autograd.grad(maps.float().square().sum(), (x, gpu.weight))]

    if captured:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            outcome()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = outcome()
        graph.replay()
    else:
        found = outcome()
    exact_x, exact_weight = (v.detach().double().requires_grad_() for v in (x, gpu.weight))
    maps = conv2d(exact_x, exact_weight, stride=gpu.stride, padding=gpu.padding)
    expected = [maps, *torch.autograd.grad(maps.square().sum(), (exact_x, exact_weight))]
    assert found[0].dtype == (precision or torch.float32)
    for value, reference in zip(found, expected, strict=True):
        error = (value.double() - reference).norm() / reference.norm()
        assert error < (1e-2 if precision else 2e-3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_torch_func_maps_over_a_shortcut_in_training() -> None:
    with seeded(0):
        shortcut = ShortcutConvolution(64, 128, 1, stride=2, bias=False).cuda().bfloat16()
    x = random_images(3, 8, 64).cuda().bfloat16()

    def loss(weight: Tensor, one: Tensor) -> Tensor:
        maps: Tensor = torch.func.functional_call(shortcut, {"weight": weight}, (one[None],))
        return maps.float().square().sum()

    weight = shortcut.weight.detach()
    found = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weight, x)
    assert found.shape == (3, *weight.shape)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_residual_network_needs_no_kernel_but_the_compiled_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from triton import knobs

    from onpro.nn.fused_batch_norm import compile_kernels

    compile_kernels(torch.device("cuda"), torch.bfloat16)
    compiled: list[object] = []

    def hook(**about: object) -> None:
        compiled.append(about)

    monkeypatch.setattr(knobs.runtime, "jit_post_compile_hook", hook)
    encoder = build_encoder("resnet18", (3, 32, 32), seed=0)
    encoder.to("cuda", memory_format=torch.channels_last)  # type: ignore[call-overload] # missing in torch's stubs
    use_fused_kernels(encoder)
    with torch.autocast("cuda", torch.bfloat16), normalised_apart(encoder, [3, 2]):
        images = random_images(5, 32).cuda().contiguous(memory_format=torch.channels_last)
        encoder(images).sum().backward()
    assert not compiled
