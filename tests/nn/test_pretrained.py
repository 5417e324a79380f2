"""Encoders with pretrained weights of timm."""

import builtins
import copy
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from timm.data.config import resolve_model_data_config
from torch import Tensor

from onpro.errors import UserError
from onpro.nn import Pretrained, PretrainedEncoder, seeded, without_weights
from onpro.nn.pretrained import file_digest, own_rate
from tests.pretrained import MODEL, weights

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)


def build(**changes: Any) -> PretrainedEncoder:
    given: dict[str, Any] = {
        "name": f"timm:{MODEL}",
        "weights": str(weights()),
        "image_size": 32,
    } | changes
    return Pretrained(**given).build(MEAN, STD)


def pixels(count: int = 3, side: int = 32) -> Tensor:
    return torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(0))


def normalised(images: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    per_channel = (torch.tensor(values)[:, None, None] for values in (mean, std))
    first, second = per_channel
    return (images - first) / second


def test_images_are_normalised_and_resized_as_the_model_was_trained() -> None:
    with seeded(0):
        model = timm.create_model(MODEL, num_classes=0).eval()
    model.load_state_dict({k: v for k, v in load_file(weights()).items() if "fc." not in k})
    config = resolve_model_data_config(model)  # type: ignore[no-untyped-call]
    encoder = build(image_size=0)
    assert encoder.input_size == config["input_size"][1:] == (160, 160)
    images = pixels(side=20)
    resized = torch.nn.functional.interpolate(images, (160, 160), mode="bilinear", antialias=True)
    with torch.no_grad():
        expected = model(normalised(resized, config["mean"], config["std"]))
        features = encoder(normalised(images, MEAN, STD))
    torch.testing.assert_close(features, expected, rtol=1e-3, atol=1e-4)
    assert features.shape == (3, encoder.out_features)


def test_a_frozen_encoder_has_no_parameters_and_stays_in_eval_mode() -> None:
    encoder = build()
    assert encoder.is_frozen
    assert not list(encoder.parameters())
    before = copy.deepcopy(encoder.state_dict())
    assert not encoder.train()(pixels()).requires_grad
    assert not any(module.training for module in encoder.modules())
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())


def test_a_trained_encoder_keeps_its_statistics() -> None:
    encoder = build(learning_rate=0.01).train()
    assert {own_rate(parameter) for parameter in encoder.parameters()} == {0.01}
    before = copy.deepcopy(dict(encoder.named_buffers()))
    torch.autograd.backward(encoder(pixels(1)).square().sum())
    assert all(parameter.grad is not None for parameter in encoder.parameters())
    assert all(torch.equal(value, before[name]) for name, value in encoder.named_buffers())


@pytest.mark.parametrize("classes", [0, 1000])
def test_weights_may_have_any_classifier_or_none(classes: int) -> None:
    encoder = build(weights=str(weights(classes)))
    saved = load_file(weights(classes))
    state = {name.removeprefix("model."): value for name, value in encoder.state_dict().items()}
    assert set(saved) - set(state) == ({"fc.weight", "fc.bias"} if classes else set())
    assert all(torch.equal(value, saved[name]) for name, value in state.items())
    assert encoder.digest == file_digest(weights(classes))


def test_a_torch_file_holds_weights_too(tmp_path: Path) -> None:
    torch.save({"state_dict": load_file(weights())}, tmp_path / "weights.pth")
    one, other = build(), build(weights=str(tmp_path / "weights.pth"))
    assert torch.equal(one(pixels()), other(pixels()))


def test_a_transformer_takes_images_of_another_size(tmp_path: Path) -> None:
    with seeded(0):
        save_file(timm.create_model("test_vit").state_dict(), tmp_path / "vit.safetensors")
    encoder = build(name="timm:test_vit", weights=str(tmp_path / "vit.safetensors"))
    assert encoder(pixels(side=8)).shape == (3, encoder.out_features)
    assert not encoder.stage_widths


def test_stages_end_with_the_maps_that_are_pooled_to_features() -> None:
    encoder = build()
    maps = encoder.stages(pixels())
    assert tuple(each.shape[1] for each in maps) == encoder.stage_widths
    torch.testing.assert_close(maps[-1].mean((2, 3)), encoder(pixels()))


def test_other_weights_are_refused(tmp_path: Path) -> None:
    partial = {k: v for k, v in load_file(weights()).items() if not k.startswith("layer4")}
    save_file(partial, tmp_path / "part.safetensors")
    (tmp_path / "text.pth").write_text("no weights")
    for name in ("part.safetensors", "text.pth"):
        with pytest.raises(UserError, match=f"{name} does not hold the weights of {MODEL}"):
            build(weights=str(tmp_path / name))
    with pytest.raises(UserError, match="there is no file"):
        build(weights=str(tmp_path / "none.safetensors"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("timm:resnet81", "no model of timm 'resnet81'; did you mean 'resnet18'"),
        ("timm:resnet18.a9_in1k", "a1_in1k"),
        ("timm:resnet18", r"name one of .*as in timm:resnet18\.a1_in1k"),
        ("timm:", "no model of timm"),
    ],
)
def test_an_unknown_model_is_refused_with_advice(name: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        Pretrained(name).check()


def test_timm_has_to_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name == "timm":
            raise ImportError
        return load(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(UserError, match=r"pip install 'onpro\[timm\]'"):
        Pretrained(f"timm:{MODEL}").check()


def test_the_cache_is_read_and_nothing_is_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def cached(repository: str, file: str) -> str:
        asked.append((repository, file))
        return str(weights())

    def download(*_: object) -> str:
        raise AssertionError("nothing may be downloaded")

    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", cached)
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", download)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    encoder = build(name=f"timm:{MODEL}.r160_in1k", weights="")
    assert asked == [(f"timm/{MODEL}.r160_in1k", "model.safetensors")]
    assert torch.equal(encoder(pixels()), build()(pixels()))


def test_without_a_network_the_missing_weights_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object) -> None:
        raise ConnectionError

    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_: None)
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", offline)
    with pytest.raises(UserError, match=rf"model\.safetensors of huggingface\.co/timm/{MODEL}"):
        build(name=f"timm:{MODEL}.r160_in1k", weights="")


def test_a_saved_state_needs_no_weights() -> None:
    encoder = build()
    with without_weights():
        restored = build(weights="gone.safetensors")
    assert not torch.equal(restored(pixels()), encoder(pixels()))
    restored.load_state_dict(encoder.state_dict())
    assert torch.equal(restored(pixels()), encoder(pixels()))
