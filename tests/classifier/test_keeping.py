"""What was learned outlives the process: saved, loaded, copied, pickled."""

import copy
import enum
import errno
import math
import os
import pickle
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

from onpro import OnlineClassifier
from onpro.methods import methods, registry
from onpro.nn import ENCODERS, EncoderKind, build_encoder, network
from onpro.nn.slim import Slim
from onpro.training.statefile import freeze, load_state, save_state
from onpro.training.stepper import equal

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.mark.parametrize("method", ["er", "onpro", "er-kd", "er-rot", "er-mkd", "er-ccldc"])
@pytest.mark.parametrize("way", ["file", "clone", "pickle", "deepcopy"])
def test_a_copy_goes_on_exactly_as_the_original(
    make: Any, photos: Any, fingerprint: Any, tmp_path: Path, method: str, way: str
) -> None:
    images, labels = photos(40)
    original = make(method, seed=4, precision="fp32", image_size=8)
    assert original.method == method
    original.partial_fit(images[:20], np.array(["x", "y", "z"])[labels[:20]])
    if way == "file":
        original.save(str(tmp_path / "c.onpro"))
        twin = OnlineClassifier.load(str(tmp_path / "c.onpro"), device="cpu")
    else:
        ways: dict[str, Any] = {
            "clone": OnlineClassifier.clone,
            "pickle": lambda it: pickle.loads(pickle.dumps(it)),
            "deepcopy": copy.deepcopy,
        }
        twin = ways[way](original)
    assert fingerprint(twin) == fingerprint(original)
    assert twin.n_seen_ == 20
    late = np.array(["x", "y", "new"])[labels[20:]]
    original.partial_fit(images[20:], late)
    assert fingerprint(twin) != fingerprint(original)
    twin.partial_fit(images[20:], late)
    assert fingerprint(twin) == fingerprint(original)
    np.testing.assert_array_equal(twin.predict_proba(images), original.predict_proba(images))


@pytest.mark.parametrize("method", sorted(methods()))
def test_the_first_image_can_be_saved(
    make: Any, photos: Any, fingerprint: Any, tmp_path: Path, method: str
) -> None:
    """Some methods only fill their memory then, and have drawn no random number for it."""
    images, labels = photos(3)
    original = make(method).partial_fit(images[:1], labels[:1])
    original.save(tmp_path / "c.onpro")
    twins = [OnlineClassifier.load(tmp_path / "c.onpro", device="cpu"), original.clone()]
    for each in (original, *twins):
        each.partial_fit(images, labels)
        assert fingerprint(each) == fingerprint(original)


@pytest.mark.parametrize("method", ["er", "agem", "mose"])
def test_an_encoder_of_the_user_may_have_weights_that_nothing_uses(
    make: Any, photos: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    class Spare(Slim):
        """MOSE trains the stages alone, and no method trains the last layer."""

        def __init__(self) -> None:
            super().__init__(3)
            self.scale = nn.LayerNorm(self.out_features)
            self.unused = nn.Linear(2, 2)

        def forward(self, images: Tensor) -> Tensor:
            scaled: Tensor = self.scale(super().forward(images))
            return scaled

    monkeypatch.setitem(ENCODERS, "spare", EncoderKind(lambda _: Spare(), minimum_side=4))
    images, labels = photos(40)
    settings = {"optimizer": "adam"} if method == "er" else {}
    learned = make(method, encoder="spare", image_size=8, **settings).partial_fit(images, labels)
    learned.save(tmp_path / "c.onpro")
    loaded = OnlineClassifier.load(tmp_path / "c.onpro")
    np.testing.assert_array_equal(loaded.predict_proba(images), learned.predict_proba(images))


def test_a_copy_was_given_what_the_original_was(make: Any, photos: Any) -> None:
    """And so it can become another method, whose settings are others."""
    original = make(mean=(0.1, 0.2, 0.3), momentum=0.5).partial_fit(*photos(4))
    original.set_params(memory=7)
    for copied in (original.clone(), copy.deepcopy(original), pickle.loads(pickle.dumps(original))):
        assert copied.get_params() == original.get_params()
        assert copied.settings_ == original.settings_
    other = OnlineClassifier("er", device="cpu").partial_fit(*photos(4)).clone()
    assert other.set_params(method="onpro").fit(*photos(4)).method == "onpro"


def test_layouts_survive_a_file(make: Any, photos: Any, fingerprint: Any, tmp_path: Path) -> None:
    """Convolutions lie channels-last, and so must the optimizer's averages after loading."""
    images, labels = photos(12)
    original = make("er", encoder="resnet18-nf20", momentum=0.9, learning_rate=0.01)
    original.partial_fit(images, labels).save(tmp_path / "c.onpro")
    twin = OnlineClassifier.load(tmp_path / "c.onpro", device="cpu")
    for each in (original, twin):
        each.partial_fit(images, labels)
    assert fingerprint(twin) == fingerprint(original)


def test_labels_of_all_plain_kinds_can_be_saved(make: Any, photos: Any, tmp_path: Path) -> None:
    labels = ["wren", "\ud800\0", "", 0, -(2**70), 2.5, 1e300, None, True, ("a", (1, None)), ()]
    classifier = make().partial_fit(photos(11)[0], labels)
    classifier.save(tmp_path / "c.onpro")
    loaded = OnlineClassifier.load(tmp_path / "c.onpro", device="cpu")
    assert loaded.classes_.tolist() == labels
    assert [type(label) for label in loaded.classes_] == [type(label) for label in labels]


class Bird(enum.IntEnum):
    WREN = 1


@pytest.mark.parametrize(
    "label", [b"wren", frozenset(), Bird.WREN, math.inf, ("a", b"b"), object()]
)
def test_other_labels_can_be_learned_but_not_saved(
    make: Any, photos: Any, tmp_path: Path, label: Any
) -> None:
    classifier = make().partial_fit(photos(1)[0], [label])
    with pytest.raises(ValueError, match="cannot be saved: use strings"):
        classifier.save(tmp_path / "c.onpro")
    assert not list(tmp_path.iterdir())
    assert classifier.clone().classes_[0] == label


def test_an_empty_classifier_can_be_saved(make: Any, photos: Any, tmp_path: Path) -> None:
    make(seed=3).save(tmp_path / "c.onpro")
    loaded = OnlineClassifier.load(tmp_path / "c.onpro", device="cpu")
    images, labels = photos(10)
    np.testing.assert_array_equal(
        loaded.partial_fit(images, labels).predict_proba(images),
        make(seed=3).partial_fit(images, labels).predict_proba(images),
    )


def test_every_altered_byte_is_noticed(make: Any, photos: Any, tmp_path: Path) -> None:
    """In the lines that name format and checksum, the payload's head, and all over the rest."""
    file = tmp_path / "c.onpro"
    make().partial_fit(*photos(4)).save(file)
    content = file.read_bytes()
    head = content.index(b"\n", content.index(b"\n") + 1)
    rest = np.random.default_rng(0).integers(head, len(content), 40)
    for position in [*range(head + 10), *rest, len(content) - 1]:
        altered = bytearray(content)
        altered[position] ^= 4
        file.write_bytes(altered)
        with pytest.raises(ValueError, match=r"damaged|not a file|newer"):
            OnlineClassifier.load(file)
    file.write_bytes(content[:-1])
    with pytest.raises(ValueError, match="damaged"):
        OnlineClassifier.load(file)


def test_other_files_are_refused(make: Any, photos: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        OnlineClassifier.load(tmp_path / "none.onpro")
    with pytest.raises(ValueError, match="cannot be read: not a regular file"):
        OnlineClassifier.load(tmp_path)
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ValueError, match="not a file that onpro saved"):
        OnlineClassifier.load(tmp_path / "text")
    save_state(tmp_path / "other", freeze({}, kind="checkpoint"))
    with pytest.raises(ValueError, match="holds a checkpoint"):
        OnlineClassifier.load(tmp_path / "other")
    make().partial_fit(*photos(4)).save(tmp_path / "c")
    state = load_state(tmp_path / "c", kind="classifier")
    save_state(tmp_path / "newer", freeze(state | {"version": 3}, kind="classifier"))
    with pytest.raises(ValueError, match="newer version"):
        OnlineClassifier.load(tmp_path / "newer")
    del state["learner"]["method"]["memory"]
    save_state(tmp_path / "odd", freeze(state, kind="classifier"))
    with pytest.raises(ValueError, match="fits together"):
        OnlineClassifier.load(tmp_path / "odd", device="cpu")


@pytest.mark.parametrize(
    ("place", "kind", "sentence"),
    [
        (".", ValueError, "is a folder or a device: give the name of a file"),
        ("", ValueError, "is a folder or a device"),
        ("pipe", ValueError, "is a folder or a device"),
        ("missing/c.onpro", FileNotFoundError, "missing/c.onpro cannot be written: No such file"),
        ("file/c.onpro", NotADirectoryError, "file/c.onpro cannot be written: Not a directory"),
    ],
)
def test_where_nothing_can_be_saved_a_sentence_says_so(
    make: Any,
    photos: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    kind: type[Exception],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("file").touch()
    with pytest.raises(kind, match=sentence):
        make().partial_fit(*photos(2)).save(place)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "pipe"]
    assert Path("pipe").is_fifo()


def test_a_disk_that_refuses_is_named_and_leaves_the_old_file(
    make: Any, photos: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    classifier = make().partial_fit(*photos(2))
    classifier.save(tmp_path / "c")

    def refuse(*_: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(PermissionError, match="c cannot be written: Permission denied") as caught:
        classifier.partial_fit(*photos(2)).save(tmp_path / "c")
    assert caught.value.errno == errno.EACCES
    assert OnlineClassifier.load(tmp_path / "c", device="cpu").n_seen_ == 2


def test_a_state_of_another_device_goes_on(make: Any, photos: Any, tmp_path: Path) -> None:
    """Generators of a GPU have states that those of a CPU cannot take over."""
    images, labels = photos(20)
    classifier = make().partial_fit(images, labels)
    classifier.save(tmp_path / "c")
    state = load_state(tmp_path / "c", kind="classifier")
    state["learner"]["device"] = "cuda"
    random = state["learner"]["method"]["random"]
    state["learner"]["method"]["random"] = {name: s[:16] for name, s in random.items()}
    save_state(tmp_path / "moved", freeze(state, kind="classifier"))
    moved = OnlineClassifier.load(tmp_path / "moved", device="cpu")
    np.testing.assert_array_equal(moved.predict_proba(images), classifier.predict_proba(images))
    moved.partial_fit(images, labels).save(tmp_path / "back")
    again = OnlineClassifier.load(tmp_path / "back", device="cpu")
    np.testing.assert_array_equal(again.predict_proba(images), moved.predict_proba(images))


@pytest.mark.parametrize("before", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("after", ["fp32", "bf16", "fp16"])
def test_a_state_goes_on_in_another_precision(
    make: Any, photos: Any, tmp_path: Path, before: str, after: str
) -> None:
    images, labels = photos(20)
    make(precision=before).partial_fit(images, labels).save(tmp_path / "c")
    other = OnlineClassifier.load(tmp_path / "c", device="cpu", precision=after)
    assert other.partial_fit(images, labels).n_seen_ == 40
    assert other.precision == after


def test_what_was_learned_with_is_saved_not_what_was_set_since(
    make: Any, photos: Any, tmp_path: Path, fingerprint: Any
) -> None:
    images, labels = photos(20)
    classifier = make(memory=10).partial_fit(images, labels)
    classifier.set_params(memory=20, learning_rate=0.5, batch_size=7, method="er")
    classifier.save(tmp_path / "c")
    loaded = OnlineClassifier.load(tmp_path / "c", device="cpu")
    assert (loaded.memory, loaded.batch_size) == (10, 7)
    for each in (classifier, loaded):
        each.partial_fit(images, labels)
    np.testing.assert_array_equal(loaded.predict_proba(images), classifier.predict_proba(images))
    assert classifier.fit(images, labels).settings_.learning_rate == 0.5


@pytest.mark.parametrize("version", [1, 2])
def test_files_of_all_versions_are_read(version: int) -> None:
    loaded = OnlineClassifier.load(FIXTURES / f"version_{version}.onpro", device="cpu")
    expected = np.load(FIXTURES / f"version_{version}.npz", allow_pickle=False)
    assert loaded.classes_.tolist() == ["wren", 2, None, ("crow", 1)]
    assert loaded.n_seen_ == 24
    assert len(loaded.memory_.images) == 5
    np.testing.assert_allclose(
        loaded.predict_proba(expected["images"]), expected["probabilities"], rtol=1e-4, atol=1e-6
    )
    loaded.partial_fit(expected["images"][:4], ["wren", 2, None, "new"])
    assert loaded.n_seen_ == 28


def as_version_1(state: dict[str, Any]) -> dict[str, Any]:
    """The same classifier as version 1 saved it."""
    state["version"] = 1
    name = state["params"]["method"]
    if name in ("er", "aser", "scr", "dvc"):
        state["params"]["rotations"] = 1
    if name == "er":
        state["params"]["distillation"] = 0.0
    method = state["learner"]["method"]
    progress = method["progress"]
    forgotten = set(range(state["learner"]["taken"])) - set(state["learner"]["outputs"])
    progress["seen"] = sorted({*progress["seen"], *forgotten})
    progress["classes_before_task"] = len(progress.pop("seen_before_task")) + len(forgotten)
    method.pop("old_classes", None)
    if name == "pass":
        del method["memory"]
    return state


@pytest.mark.parametrize("method", sorted(methods()))
def test_version_1_goes_on_exactly(
    make: Any, photos: Any, fingerprint: Any, tmp_path: Path, method: str
) -> None:
    """With three classes before the current task, one of them forgotten."""
    images, labels = photos(16, classes=4)
    few = {"epochs": 1} if method == "gdumb" else {}
    original = make(method, memory=8, batch_size=4, **few)
    original.partial_fit(images, np.sort(labels)).forget(1)
    original.save(tmp_path / "c")
    state = as_version_1(load_state(tmp_path / "c", kind="classifier"))
    assert state["learner"]["method"]["progress"]["classes_before_task"] == 3
    save_state(tmp_path / "old", freeze(state, kind="classifier"))
    loaded = OnlineClassifier.load(tmp_path / "old", device="cpu")
    for each in (original, loaded):
        each.partial_fit(images, labels)
    now, expected = loaded.__getstate__()["learner"], original.__getstate__()["learner"]
    assert equal(now, expected)


def test_a_method_that_is_not_known_here_is_a_value_error(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("er").save(tmp_path / "mine.onpro")
    others = {name: entry for name, entry in registry._METHODS.items() if name != "er"}
    monkeypatch.setattr(registry, "_METHODS", others)
    with pytest.raises(ValueError, match=r"no method 'er'.* onpro\.methods\.load_file\(PATH\)"):
        OnlineClassifier.load(tmp_path / "mine.onpro")


@pytest.mark.parametrize(
    ("method", "setting", "value", "wrapped"),
    [
        ("er", "distillation", 10.0, "er-kd"),
        ("er", "rotations", 16, "er-rot"),
        ("scr", "rotations", 4, "scr-rot"),
        ("aser", "rotations", True, "aser-rot"),
    ],
)
def test_settings_that_became_methods_are_named(
    make: Any, photos: Any, tmp_path: Path, method: str, setting: str, value: Any, wrapped: str
) -> None:
    make(method).partial_fit(*photos(4)).save(tmp_path / "c")
    state = as_version_1(load_state(tmp_path / "c", kind="classifier"))
    state["params"][setting] = value
    save_state(tmp_path / "old", freeze(state, kind="classifier"))
    with pytest.raises(ValueError, match=f"{setting}={value} of {method} is now .* {wrapped}"):
        OnlineClassifier.load(tmp_path / "old", device="cpu")


@pytest.mark.parametrize("before", [-1, 5, True, None, 1.0])
def test_version_1_must_be_sound_too(make: Any, photos: Any, tmp_path: Path, before: Any) -> None:
    make("er").partial_fit(*photos(4)).save(tmp_path / "c")
    state = as_version_1(load_state(tmp_path / "c", kind="classifier"))
    state["learner"]["method"]["progress"]["classes_before_task"] = before
    save_state(tmp_path / "old", freeze(state, kind="classifier"))
    with pytest.raises(ValueError, match="fits together: progress"):
        OnlineClassifier.load(tmp_path / "old", device="cpu")


@pytest.mark.parametrize("before", [[1], [0, 2], [0, 0], [0, 1, 2, 3], [-1], 1])
def test_classes_before_a_task_are_the_first_to_arrive(
    make: Any, photos: Any, tmp_path: Path, before: Any
) -> None:
    make("er").partial_fit(*photos(4)).save(tmp_path / "c")
    state = load_state(tmp_path / "c", kind="classifier")
    state["learner"]["method"]["progress"]["seen_before_task"] = before
    save_state(tmp_path / "odd", freeze(state, kind="classifier"))
    with pytest.raises(ValueError, match="fits together"):
        OnlineClassifier.load(tmp_path / "odd", device="cpu")


@pytest.mark.parametrize("way", ["file", "clone"])
def test_loading_builds_the_network_once(
    make: Any, photos: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    classifier = make("er", image_size=8).partial_fit(*photos(4))
    classifier.save(tmp_path / "c")
    built: list[str] = []

    def build(name: str, *given: Any, **options: Any) -> Any:
        built.append(name)
        return build_encoder(name, *given, **options)

    monkeypatch.setattr(network, "build_encoder", build)
    if way == "file":
        OnlineClassifier.load(tmp_path / "c", device="cpu")
    else:
        classifier.clone()
    assert built == ["slim"]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_is_its_owners_alone_and_an_older_one_keeps_its_mode(
    make: Any, photos: Any, tmp_path: Path
) -> None:
    """It holds people's images."""
    classifier = make().partial_fit(*photos(2))
    for path, expected in ((tmp_path / "new", 0o600), (tmp_path / "shared", 0o640)):
        if expected != 0o600:
            path.touch()
            path.chmod(expected)
        for _ in range(2):
            classifier.save(path)
            assert mode(path) == expected


def test_a_link_is_written_through_and_other_files_are_left_alone(
    make: Any, photos: Any, tmp_path: Path
) -> None:
    classifier = make().partial_fit(*photos(2))
    link, part = tmp_path / "c", tmp_path / "c.part"
    link.symlink_to("real")
    part.write_text("mine")
    classifier.save(link)  # to a file that is not there yet
    classifier.partial_fit(*photos(2)).save(link)
    assert link.is_symlink()
    assert part.read_text() == "mine"
    assert OnlineClassifier.load(tmp_path / "real", device="cpu").n_seen_ == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "c.part", "real"]


def test_the_longest_names_can_be_saved(make: Any, photos: Any, tmp_path: Path) -> None:
    classifier = make().partial_fit(*photos(2))
    for length in (251, 255):
        classifier.save(tmp_path / ("n" * length))
        assert OnlineClassifier.load(tmp_path / ("n" * length), device="cpu").n_seen_ == 2
    with pytest.raises(OSError, match="cannot be written: File name too long"):
        classifier.save(tmp_path / ("n" * 256))
    with pytest.raises(ValueError, match="cannot be read: File name too long"):
        OnlineClassifier.load(tmp_path / ("n" * 256))


@pytest.mark.parametrize("place", ["folder", "pipe", "/dev/zero", "loop"])
def test_what_is_no_file_is_refused_without_waiting(place: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ValueError, match=r"cannot be read: (not a regular file|Too many)"):
        OnlineClassifier.load(tmp_path / place)
