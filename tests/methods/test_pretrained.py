"""Methods with a pretrained encoder, frozen or trained."""

import copy
import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor

from onpro import OnlineClassifier
from onpro.data import find
from onpro.errors import UserError
from onpro.experiments.grouping import described, found
from onpro.methods import method, methods, settings_for, wrappers
from onpro.methods.registry import AnyMethod
from onpro.nn import seeded
from onpro.nn.gradients import virtual_step
from onpro.nn.pretrained import own_rate
from onpro.runs import RunConfig, read_config
from onpro.runs.runner import prepare, run
from tests.methods.learners import DATA, UNSCALED, batches, learner, refused, stepper
from tests.pretrained import pretrained, weights
from tests.tiny_runs import ER as TINY_ER

EVERY = [*methods(), *(f"er-{wrapper}" for wrapper in wrappers())]
QUICK = ("agem", "dvc", "er", "gdumb", "mir", "pass")
"""Of those, the ones whose steps are quick with a trained encoder."""


def with_pretrained(name: str, rate: float = 0.0, **changes: Any) -> Any:
    known = {field.name for field in fields(method(name).settings_type)}
    small = {"projection": 32, "epochs": 1} | changes
    given = {key: value for key, value in small.items() if key in known}
    return learner(name, memory=10, num_classes=None, **pretrained(rate) | given)


def train(method: AnyMethod) -> None:
    for batch in (*batches(2, size=5), *batches(2, start=20, size=5)):
        stepper(method).step(batch)
    method.predict(DATA.test.images[:4])


def encoder_state(method: AnyMethod) -> dict[str, Tensor]:
    """The weights and statistics of the pretrained model alone; MOSE trains branches beside it."""
    encoder = method.network.encoder
    return copy.deepcopy(getattr(encoder, "trunk", encoder).state_dict())


def changed(before: dict[str, Tensor], after: dict[str, Tensor]) -> set[str]:
    return {name for name, value in before.items() if not torch.equal(value, after[name])}


@pytest.mark.parametrize("name", EVERY)
def test_every_method_learns_on_top_of_a_frozen_encoder(name: str) -> None:
    method = with_pretrained(name)
    before = encoder_state(method)
    heads = [parameter.detach().clone() for parameter in method.network.parameters()]
    train(method)
    assert not changed(before, encoder_state(method))
    now = list(method.network.parameters())
    assert any(a.shape != b.shape or not torch.equal(a, b) for a, b in zip(heads, now, strict=True))


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.thorough) for n in EVERY]
)
def test_every_method_trains_an_encoder_at_its_own_rate(name: str) -> None:
    method = with_pretrained(name, rate=1e-4)
    before = encoder_state(method)
    train(method)
    parameters = {id(parameter) for parameter in method.network.parameters() if own_rate(parameter)}
    groups = method.optimizer.param_groups
    assert [group["lr"] == 1e-4 for group in groups] == [False, True]
    assert {id(parameter) for parameter in groups[1]["params"]} == parameters
    moved = changed(before, encoder_state(method))
    assert "model.bn1.weight" in moved
    assert not any("running" in key for key in moved)


def test_the_rate_of_the_encoder_follows_a_schedule() -> None:
    method = with_pretrained("gdumb", 0.01, epochs=1, schedule="cosine", learning_rate=0.1)
    train(method)
    stepper(method).settle()
    rates = [group["lr"] for group in method.optimizer.param_groups]
    assert rates == pytest.approx([0.01, 0.001])  # a tenth in the first epoch


def test_a_virtual_step_takes_the_rate_of_the_encoder() -> None:
    network = with_pretrained("er", rate=0.5).network
    images = DATA.train.images[:2].float()
    torch.autograd.backward(network.encoder(images).sum())
    own = virtual_step(network.encoder, 100.0, UNSCALED)(images)
    with torch.no_grad():
        for parameter in network.encoder.parameters():
            parameter -= 0.5 * parameter.grad
        torch.testing.assert_close(own, network.encoder(images))


def test_a_method_with_nothing_to_train_is_refused() -> None:
    method = with_pretrained("scr", projection=0)
    first, second = batches(2)
    stepper(method).step(first)
    with pytest.raises(UserError, match="nothing to train"):
        stepper(method).step(second)


@pytest.mark.parametrize("rate", [0.0, 1e-3])
@pytest.mark.parametrize("name", EVERY)
def test_every_method_starts_from_the_weights_of_the_file(name: str, rate: float) -> None:
    start = encoder_state(with_pretrained("er", rate))
    assert not changed(start, encoder_state(with_pretrained(name, rate)))


def test_mose_refuses_an_encoder_without_stages(tmp_path: Path) -> None:
    with seeded(0):
        save_file(timm.create_model("test_vit").state_dict(), tmp_path / "vit.safetensors")
    vit = {"encoder": "timm:test_vit", "encoder_weights": str(tmp_path / "vit.safetensors")}
    refused("mose", "pretrained encoder has no stages", **pretrained() | vit)


def test_settings_that_cannot_work_are_refused() -> None:
    refused("er", "timm:NAME", encoder_learning_rate=0.1)
    refused("er", "timm:NAME", encoder_weights="weights.safetensors")
    refused("er", "timm:NAME", encoder_image_size=32)
    refused("er", "encoder learning rate", **pretrained(-1.0))
    refused("er", "encoder image size", **pretrained() | {"encoder_image_size": 5000})


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("er", 0.0),
        ("gdumb", 0.0),
        ("mir", 1e-3),
        pytest.param("onpro", 1e-3, marks=pytest.mark.thorough),
        pytest.param("mose", 1e-3, marks=pytest.mark.thorough),
    ],
)
def test_a_saved_classifier_holds_the_weights(name: str, rate: float, tmp_path: Path) -> None:
    copied = tmp_path / "weights.safetensors"
    shutil.copy(weights(), copied)
    settings = pretrained(rate) | {"encoder_weights": str(copied)}
    if name in ("onpro", "mose"):
        settings["projection"] = 32
    if name == "gdumb":
        settings["epochs"] = 1
    images, labels = DATA.train.images[40:60].permute(0, 2, 3, 1).numpy(), DATA.train.labels[40:60]
    classifier = OnlineClassifier(name, memory=20, device="cpu", **settings)
    classifier.partial_fit(images, labels.tolist())
    classifier.save(tmp_path / "saved.onpro")
    copied.unlink()
    loaded = OnlineClassifier.load(tmp_path / "saved.onpro", device="cpu")
    assert (loaded.predict_proba(images) == classifier.predict_proba(images)).all()
    for each in (loaded, classifier):
        each.partial_fit(images[::-1].copy(), labels.flip(0).tolist())
    assert (loaded.predict_proba(images) == classifier.predict_proba(images)).all()


# Runs


def config(**changes: Any) -> RunConfig:
    return replace(TINY_ER, settings=replace(TINY_ER.settings, **pretrained() | changes))


def test_a_result_says_how_its_encoder_began(tmp_path: Path) -> None:
    begun = run(config(), tmp_path)
    scratch = run(TINY_ER, tmp_path)
    assert (begun.result["encoder_start"], scratch.result["encoder_start"]) == (
        "pretrained",
        "scratch",
    )
    assert begun.result["encoder_sha256"] == config().encoder_sha256
    assert "encoder_sha256" not in scratch.result
    assert read_config(begun.folder) == config()
    experiments = found([begun, scratch])
    assert len(experiments) == 2
    assert len({str(one) for one in experiments}) == 2


def test_a_row_of_a_pretrained_encoder_has_no_value_of_the_paper() -> None:
    settings = settings_for("er", "cifar10")
    usual = RunConfig("er", settings, data="cifar10", memory=100)
    other = replace(usual, settings=replace(settings, **pretrained()))
    assert described(usual.what()).paper
    row = described(other.what())
    assert not row.paper
    assert "encoder=timm:" in row.name


def test_weights_are_identified_by_their_content(tmp_path: Path) -> None:
    for name in ("same", "other"):
        shutil.copy(weights() if name == "same" else weights(0), tmp_path / name)
    same, other = (config(encoder_weights=str(tmp_path / name)) for name in ("same", "other"))
    assert same.identity == config().identity
    assert other.identity != config().identity
    for changes in ({"encoder_learning_rate": 0.1}, {"encoder_image_size": 32}):
        assert config(**changes).identity != config().identity


def test_weights_that_changed_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    shutil.copy(weights(), path)
    begun = config(encoder_weights=str(path))
    shutil.copy(weights(0), path)
    with pytest.raises(UserError, match="has changed since the run began"):
        prepare(begun)


def test_other_runs_are_what_they_were() -> None:
    settings = TINY_ER.what()["settings"]
    assert not any(name.startswith("encoder_") for name in settings)
    assert "encoder_sha256" not in TINY_ER.what()


def test_images_of_any_size_are_decoded_at_that_of_the_model(tmp_path: Path) -> None:
    assert find("folder:x").any_size
    folder = replace(config(), data=f"folder:{tmp_path}")
    assert folder.image_size == 16
    assert replace(config(), data=f"folder:{tmp_path}", image_size=24).image_size == 24
    assert replace(TINY_ER, data=f"folder:{tmp_path}").image_size is None
    assert config().image_size is None
