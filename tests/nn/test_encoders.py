import copy

import pytest
import torch
from torch import Tensor

from onpro.errors import UserError
from onpro.nn import ENCODERS, build_encoder, normalised_apart, seeded, use_fused_kernels
from onpro.nn.count import macs, parameters
from onpro.nn.resnet import FirstConvolution
from tests.golden.values import Golden


def random_images(count: int, side: int, channels: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, channels, side, side, generator=generator)


@pytest.mark.parametrize(
    ("name", "out_features"),
    [("resnet18", 512), ("resnet18-nf20", 160), ("resnet18-imagenet", 512), ("slim", 160)],
)
def test_features_have_the_announced_size_for_every_image_size(
    name: str, out_features: int
) -> None:
    smallest = ENCODERS[name].minimum_side
    for side, channels in ((smallest, 3), (smallest + 5, 1)):
        encoder = build_encoder(name, (channels, side, side), seed=0)
        assert encoder.out_features == out_features
        assert encoder(random_images(2, side, channels)).shape == (2, out_features)


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
    assert parameters(full) == pytest.approx(11.17e6, rel=1e-3)
    assert macs(full, (3, 32, 32)) == pytest.approx(0.555e9, rel=2e-3)
    assert macs(full, (3, 64, 64)) == pytest.approx(2.22e9, rel=2e-3)
    reduced = build_encoder("resnet18-nf20", (3, 32, 32), seed=0)
    assert parameters(reduced) == pytest.approx(1.1e6, rel=1e-2)


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
