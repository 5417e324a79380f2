"""What a classifier learns, and what it says."""

import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError

from onpro import OnlineClassifier, _version
from onpro.augment import Normalise
from onpro.methods import Context, methods
from onpro.methods.onpro import OnPro, OnProSettings
from onpro.streams import Batch
from onpro.training.stepper import Stepper


def test_importing_the_package_imports_no_torch() -> None:
    code = "import onpro, sys; print('torch' in sys.modules, 'OnlineClassifier' in dir(onpro))"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.split() == ["False", "True"]


def test_the_package_has_no_other_names() -> None:
    import onpro

    with pytest.raises(AttributeError, match="Offline"):
        # The comment is in use only while a checker of types knows the package's names, too.
        onpro.OfflineClassifier  # type: ignore[attr-defined] # noqa: B018


def test_the_package_tells_its_version() -> None:
    import onpro

    assert onpro.__version__ == _version.__version__


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
@pytest.mark.parametrize("method", ["er", "icarl", "pass"])
def test_it_learns_where_gradients_are_turned_off(
    make: Any, photos: Any, tmp_path: Any, method: str, mode: Callable[[], Any]
) -> None:
    images, labels = photos(6)
    with mode():
        classifier = make(method).partial_fit(torch.from_numpy(images), labels)
        classifier.predict(images)
        classifier.save(tmp_path / "a.onpro")
        loaded = OnlineClassifier.load(tmp_path / "a.onpro", device="cpu")
        twins = [classifier, loaded, classifier.clone()]
        assert not torch.is_grad_enabled()
    usual = make(method).partial_fit(images, labels)
    for each in (usual, *twins):
        each.partial_fit(images, labels + 1).forget(1)
        np.testing.assert_array_equal(each.predict_proba(images), usual.predict_proba(images))


@pytest.mark.parametrize("method", ["onpro", "scr", "er-mkd"])
def test_the_default_dtype_of_the_caller_changes_nothing(
    make: Any, photos: Any, tmp_path: Any, method: str
) -> None:
    images, labels = photos(6)
    usual = make(method).partial_fit(images, labels).predict_proba(images)
    torch.set_default_dtype(torch.float64)
    try:
        classifier = make(method).partial_fit(images, labels)
        classifier.save(tmp_path / "a.onpro")
        loaded = OnlineClassifier.load(tmp_path / "a.onpro", device="cpu")
        for each in (classifier, loaded, classifier.clone()):
            np.testing.assert_array_equal(each.predict_proba(images), usual)
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("method", ["er", "cope", "icarl", "pass", "er-compressed"])
@pytest.mark.parametrize("where", ["autocast", "device"])
def test_the_precision_and_the_default_device_of_the_caller_change_nothing(
    make: Any, photos: Any, tmp_path: Any, method: str, where: str
) -> None:
    images, labels = photos(6)

    def use() -> list[Any]:
        classifier = make(method).partial_fit(list(images), np.sort(labels))
        classifier.partial_fit(images, labels + 1).forget(2)
        classifier.save(tmp_path / "a.onpro")
        twins = [OnlineClassifier.load(tmp_path / "a.onpro", device="cpu"), classifier.clone()]
        known = [each.predict_proba(images) for each in (classifier, *twins)]
        return [*known, twins[0].memory_.images]

    usual = use()
    # Nothing can be computed on the device "meta".
    with torch.autocast("cpu", torch.bfloat16) if where == "autocast" else torch.device("meta"):
        odd = use()
    for here, there in zip(usual, odd, strict=True):
        np.testing.assert_array_equal(there, here)


def test_what_a_thread_in_half_precision_asks_changes_no_answer(make: Any, photos: Any) -> None:
    """Class means are kept from one prediction to the next."""
    images, labels = photos(12)
    classifier = make("icarl", batch_size=1).partial_fit(images, labels)
    usual = classifier.clone().predict_proba(images)
    with torch.autocast("cpu", torch.bfloat16):
        classifier.predict_proba(images)
    np.testing.assert_array_equal(classifier.predict_proba(images), usual)


@pytest.mark.parametrize(
    ("method", "part"),
    [
        ("er-mkd", "onpro.methods.parts.momentum.weights"),
        ("er-calibrated", "onpro.methods.calibrated.rotations"),
    ],
)
def test_an_interrupted_prediction_changes_no_answer(
    make: Any, photos: Any, monkeypatch: pytest.MonkeyPatch, method: str, part: str
) -> None:
    images, labels = photos(20)
    classifier = make(method).partial_fit(images, labels)
    usual = classifier.clone().predict_proba(images)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(part, interrupt)
        with pytest.raises(KeyboardInterrupt):
            classifier.predict(images)
    np.testing.assert_array_equal(classifier.predict_proba(images), usual)


def test_what_cannot_be_trained_is_a_value_error(make: Any, photos: Any) -> None:
    classifier = make()
    classifier.partial_fit(*photos(3))
    for parameter in classifier.method_.network.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(ValueError, match="nothing to train"):
        classifier.partial_fit(*photos(3))


def test_it_learns_what_it_is_shown(make: Any, photos: Any) -> None:
    images, labels = photos(120)
    classifier = make(memory=30)
    assert classifier.partial_fit(images, labels) is classifier
    assert classifier.score(*photos(30, seed=1)) > 0.9


@pytest.mark.parametrize(
    "labels",
    [
        ["wren", "robin", "wren"],
        [7, 3, 7],
        [2.5, -1.0, 2.5],
        [True, False, True],
        [("wren", 1), ("robin", 2), ("wren", 1)],
        [("wren", (1, None)), (), ("wren", (1, None))],
        [None, "robin", None],
        [1, "1", 1],
        [b"wren", b"robin", b"wren"],
        ["", "\0", ""],
        [2**80, -(2**80), 2**80],
    ],
)
def test_labels_come_back_as_they_were_given(make: Any, photos: Any, labels: list[Any]) -> None:
    images, _ = photos(3)
    classifier = make().partial_fit(images, labels)
    expected = list(dict.fromkeys(labels))
    assert classifier.classes_.tolist() == expected
    assert [type(label) for label in classifier.classes_.tolist()] == list(map(type, expected))
    assert set(classifier.predict(images).tolist()) <= set(expected)
    assert classifier.memory_.labels.tolist() == labels


def test_equal_labels_are_one_class(make: Any, photos: Any) -> None:
    classifier = make().partial_fit(photos(4)[0], [1, 1.0, True, np.int8(1)])
    assert classifier.classes_.tolist() == [1]


def test_labels_of_numpy_and_torch_are_plain_numbers(make: Any, photos: Any) -> None:
    images, _ = photos(2)
    for labels in (
        np.array([4, 9], np.int16),
        torch.tensor([4, 9]),
        [np.uint8(4), torch.tensor(9)],
    ):
        classifier = make().partial_fit(images, labels)
        assert classifier.classes_.dtype == np.int64
        assert classifier.classes_.tolist() == [4, 9]


def test_what_is_in_a_tuple_is_plain_too(make: Any, photos: Any) -> None:
    classifier = make().partial_fit(photos(2)[0], [(np.int64(1), np.str_("a")), (1, "a")])
    assert classifier.classes_.tolist() == [(1, "a")]
    assert [type(part) for part in classifier.classes_[0]] == [int, str]


def test_without_a_gpu_none_can_be_had(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ValueError, match="no device cuda here: take cpu, or auto"):
        make(device="cuda")


def test_probabilities_follow_the_classes(make: Any, photos: Any) -> None:
    images, labels = photos(60)
    classifier = make().partial_fit(images, np.array(["c", "a", "b"])[labels])
    assert classifier.classes_.tolist() == ["c", "a", "b"]
    probabilities = classifier.predict_proba(images)
    assert probabilities.shape == (60, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert (classifier.classes_[probabilities.argmax(1)] == classifier.predict(images)).all()


def test_classes_may_arrive_at_any_time(make: Any, photos: Any) -> None:
    images, labels = photos(30)
    classifier = make()
    for k in range(3):
        classifier.partial_fit(images[labels == k], labels[labels == k])
        assert classifier.classes_.tolist() == list(range(k + 1))
        assert classifier.predict_proba(images).shape == (30, k + 1)
    assert classifier.n_seen_ == 30


def test_a_call_is_learned_in_batches_in_order(make: Any, photos: Any, fingerprint: Any) -> None:
    images, labels = photos(25)
    at_once = make(batch_size=10).partial_fit(images, labels)
    in_parts = make(batch_size=10)
    for part in (slice(0, 10), slice(10, 20), slice(20, 25)):
        in_parts.partial_fit(images[part], labels[part])
    assert fingerprint(at_once) == fingerprint(in_parts)


def test_it_is_the_method_without_any_announcement(photos: Any) -> None:
    """Batches go to the method as they are; nobody tells it of boundaries or of classes."""
    images, labels = photos(40)
    classifier = OnlineClassifier("onpro", memory=10, seed=3, device="cpu", rotations=4)
    settings = OnProSettings(encoder="slim", projection=64, learning_rate=5e-3, rotations=4)
    assert classifier.partial_fit(images, labels).settings_ == settings
    context = Context((3, 8, 8), Normalise((0.5,) * 3, (0.25,) * 3), memory=10, seed=3)
    learner = OnPro(settings, context)
    stepper = Stepper(learner)
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    for start in range(0, 40, 10):
        part = torch.from_numpy(labels[start : start + 10])
        stepper.step(Batch(pixels[start : start + 10], part, None, (0, 1, 2)))
    expected = learner.scores(pixels).double().softmax(1).numpy()
    np.testing.assert_array_equal(classifier.predict_proba(images), expected)


@pytest.mark.parametrize("name", [*methods(), "er-kd", "er-rot", "scr-rot"])
def test_every_method_works_behind_it(name: str, photos: Any, fingerprint: Any) -> None:
    images, labels = photos(24)
    labels = np.sort(labels)
    classifier = OnlineClassifier(name, memory=6, device="cpu").partial_fit(images, labels)
    probabilities = classifier.predict_proba(images)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    remembered = classifier.memory_
    assert len(remembered.images) == len(remembered.labels) <= 6
    twin = classifier.clone()
    for learner in (classifier, twin):
        learner.partial_fit(images[:12], labels[:12])
    assert fingerprint(classifier) == fingerprint(twin)
    classifier.forget(1)
    assert 1 not in classifier.predict(images)
    assert 1 not in classifier.memory_.labels
    classifier.forget(0).forget(2)
    classifier.partial_fit(images, labels)
    classifier.partial_fit(images[::-1], labels[::-1])
    assert classifier.classes_.tolist() == [0, 1, 2]
    np.testing.assert_allclose(classifier.predict_proba(images).sum(axis=1), 1)


def test_nothing_is_known_before_something_is_learned(make: Any, photos: Any) -> None:
    images, labels = photos(2)
    classifier = make()
    calls: list[Callable[[], object]] = [
        lambda: classifier.predict(images),
        lambda: classifier.predict_proba(images[:0]),
        lambda: classifier.score(images, labels),
        lambda: classifier.forget(1),
        lambda: classifier.classes_,
        lambda: classifier.n_seen_,
        lambda: classifier.memory_,
    ]
    for call in calls:
        with pytest.raises(NotFittedError):
            call()


def test_nothing_shown_is_nothing_learned(make: Any, photos: Any, fingerprint: Any) -> None:
    images, labels = photos(4)
    classifier = make()
    classifier.partial_fit(images[:0], labels[:0]).partial_fit([], [])
    with pytest.raises(NotFittedError):
        classifier.predict([])
    classifier.partial_fit(images, labels)
    before = fingerprint(classifier)
    classifier.partial_fit(images[:0], []).partial_fit([], np.array([]))
    assert fingerprint(classifier) == before
    assert classifier.predict([]).shape == (0,)
    assert classifier.predict(images[:0]).dtype == classifier.classes_.dtype
    assert classifier.predict_proba(images[:0]).shape == (0, 3)
    for call in (classifier.fit, classifier.score):
        with pytest.raises(ValueError, match="at least 1"):
            call(images[:0], [])


def test_one_image_is_enough(make: Any, photos: Any) -> None:
    images, labels = photos(6)
    classifier = make()
    for image, label in zip(images, labels, strict=True):
        classifier.partial_fit([image], [label])
    assert classifier.predict(images[:1]).shape == (1,)


def test_predicting_leaves_no_trace(make: Any, photos: Any, fingerprint: Any) -> None:
    images, labels = photos(20)
    classifier = make().partial_fit(images, labels)
    before = fingerprint(classifier)
    first = classifier.predict_proba(images)
    np.testing.assert_array_equal(first, classifier.predict_proba(images))
    assert fingerprint(classifier) == before


def test_fit_starts_afresh(make: Any, photos: Any, fingerprint: Any) -> None:
    images, labels = photos(20)
    classifier = make().partial_fit(images, labels + 5)
    classifier.partial_fit(images, labels)
    classifier.fit(images, labels)
    assert fingerprint(classifier) == fingerprint(make().partial_fit(images, labels))


def test_images_are_resized_where_a_size_is_given(make: Any, photos: Any) -> None:
    classifier = make(image_size=16, memory=20)
    for side in (8, 16, 31):
        classifier.partial_fit(*photos(6, side=side))
    wide = np.zeros((2, 5, 40, 3), np.uint8)
    assert classifier.predict(wide).shape == (2,)
    assert classifier.memory_.images.shape == (18, 16, 16, 3)


def test_resizing_averages(make: Any) -> None:
    checkerboard = (np.indices((64, 64)).sum(axis=0) % 2 * 255).astype(np.uint8)
    images = make(image_size=8).partial_fit([checkerboard], ["c"]).memory_.images
    assert np.abs(images.astype(int) - 127).max() <= 2


def test_a_diverged_network_is_not_asked(make: Any, photos: Any) -> None:
    images, labels = photos(30)
    classifier = make(learning_rate=1e9).partial_fit(images, labels)
    with pytest.raises(FloatingPointError, match="smaller learning rate"):
        classifier.predict(images)


def test_the_head_grows_with_its_optimizer(make: Any, photos: Any) -> None:
    """With momentum, what was learned of old classes goes on moving when a class arrives."""
    images, labels = photos(60, classes=6)
    order = np.argsort(labels, kind="stable")
    classifier = make(momentum=0.9, learning_rate=0.02, memory=60)
    classifier.partial_fit(images[order], labels[order])
    for _ in range(3):
        classifier.partial_fit(images, labels)
    assert classifier.score(images, labels) > 0.8


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"method": "onproo"}, "did you mean 'onpro'"),
        ({"method": None}, "no method 'None'"),
        ({"lerning_rate": 1}, "did you mean 'learning_rate'"),
        ({"memry": 1}, "did you mean 'memory'"),
        ({"learning_rate": "fast"}, "learning rate must be a number"),
        ({"learning_rate": -1.0}, "above 0"),
        ({"replay_batch": 2.5}, "replay batch must be a whole number"),
        ({"replay_batch": True}, "replay batch must be a whole number"),
        ({"encoder": "resnet19"}, "did you mean 'resnet18"),
        ({"encoder": 3}, "encoder must be a text"),
        ({"augmentation": "blur"}, "no augmentation"),
        ({"memory": 0}, "memory must be at least 1"),
        ({"memory": -1}, "memory must be at least 1"),
        ({"memory": 2**70}, "memory must be at least 1 and at most 1099511627776"),
        ({"memory": 1.5}, "memory must be a whole number"),
        ({"memory": True}, "memory must be a whole number"),
        ({"seed": "a"}, "seed must be a whole number"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"image_size": 0}, "image_size must be at least 1"),
        ({"image_size": 5000}, "at most 1024"),
        ({"image_size": 2}, "too small"),
        ({"mean": "grey"}, "mean must be a number"),
        ({"mean": (0.5, 0.5)}, "mean must be a number"),
        ({"mean": float("nan")}, "mean must be finite"),
        ({"mean": 1e300}, "like pixels"),
        ({"mean": 1j}, "mean must be a number"),
        ({"mean": "0.5"}, "mean must be a number"),
        ({"std": 0.0}, "positive standard deviation"),
        ({"learning_rate": float("inf")}, "learning rate must be finite"),
        ({"device": "tpu"}, "no device"),
        ({"device": "meta"}, "not supported: take auto, cpu or cuda"),
        ({"device": "mps"}, "not supported"),
        ({"device": "cuda:99"}, "no device cuda:99 here"),
        ({"device": None}, "no device None"),
        ({"device": ["cpu"]}, "no device"),
        ({"device": np.array(["cpu", "cuda"])}, "no device"),
        ({"precision": "fp8"}, "precision must be"),
        ({"precision": ["fp32"]}, "precision must be"),
        ({"precision": "tf32"}, "tf32 needs a GPU"),
        ({"method": "onpro", "betas": (0.9,)}, "betas must be .a number, a number."),
    ],
)
def test_what_cannot_work_is_refused_at_once(params: dict[str, Any], sentence: str) -> None:
    given = {"method": "er", "device": "cpu", "encoder": "slim"} | params
    with pytest.raises(ValueError, match=sentence):
        OnlineClassifier(**given)


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"rotations": 16, "image_size": 9}, "even side"),
        ({"projection": 400}, "wider than the encoder"),
        ({"memory": 2**40}, "a memory of 1099511627776 images does not fit"),
        ({"method": "er", "encoder": "resnet18-imagenet"}, "too small for the encoder"),
        ({"method": "er-rot", "image_size": 9}, "even side"),
    ],
)
def test_what_only_the_network_tells_is_refused_before_anything_is_learned(
    photos: Any, params: dict[str, Any], sentence: str
) -> None:
    classifier = OnlineClassifier(**{"method": "onpro", "device": "cpu"} | params)
    for learn in (classifier.partial_fit, classifier.fit):
        with pytest.raises(ValueError, match=sentence):
            learn(*photos(4))
    with pytest.raises(NotFittedError):
        classifier.predict(photos(4)[0])


def test_a_setting_that_does_not_fit_the_first_images_changes_nothing(photos: Any) -> None:
    classifier = OnlineClassifier("onpro", device="cpu", rotations=16)
    with pytest.raises(ValueError, match="even side"):
        classifier.partial_fit(*photos(4, side=9))
    assert classifier.partial_fit(*photos(4, side=8)).n_seen_ == 4


def test_the_constructor_builds_no_network_and_asks_no_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(torch.nn.Module, "__init__", refuse)
    monkeypatch.setattr("onpro.nn.build_encoder", refuse)
    for name in ("is_available", "device_count", "is_bf16_supported"):
        monkeypatch.setattr(torch.cuda, name, refuse)
    for params in (
        {},
        {"method": "er"},
        {"device": "cpu", "image_size": 32},
        {"precision": "tf32"},
    ):
        classifier = OnlineClassifier(**params)
        copied = pickle.loads(pickle.dumps(classifier.set_params(memory=9)))
        assert copied.get_params() == classifier.get_params()


def test_auto_is_resolved_when_learning_begins(
    photos: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    classifier = OnlineClassifier("er", memory=5)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert classifier.partial_fit(*photos(2)).settings_.encoder == "slim"


def test_a_gpu_that_does_not_work_is_refused_when_learning_begins(
    make: Any, photos: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    classifier = make(device="cuda")
    with pytest.raises(ValueError, match="no CUDA device is available"):
        classifier.partial_fit(*photos(2))


def test_a_named_encoder_brings_the_methods_own_defaults(photos: Any) -> None:
    given = OnlineClassifier("onpro", device="cpu", encoder="slim", rotations=1)
    assert given.partial_fit(*photos(2)).settings_.projection == 128  # type: ignore[attr-defined]
