"""A file of which every byte is as it was written may still be one that no classifier wrote."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from onpro import OnlineClassifier
from onpro.methods import methods
from onpro.training import statefile
from onpro.training.statefile import freeze, load_state, save_state
from onpro.training.stepper import equal
from tests.classifier.corruption import corrupt, corrupt_format, part, plausible, write


@pytest.fixture(scope="module")
def originals(make: Any, photos: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small saved classifier of every method, which has met some classes and forgotten one."""
    folder = tmp_path_factory.mktemp("originals")
    images, labels = photos(12, classes=4)
    names = ["wren", 2, None, ("crow", 1.5)]
    for method in sorted(methods()):
        few: dict[str, Any] = {"epochs": 1} if method == "gdumb" else {}
        if method in ("onpro", "ocm"):
            few = {"rotations": 1, "replay_batch": 4}
        if method in ("er", "derpp"):
            few = {"momentum": 0.9}
        classifier = make(method, memory=6, batch_size=3, image_size=8, **few)
        classifier.partial_fit(images, [names[k] for k in labels])
        classifier.predict(images[:1])
        if method != "er":
            classifier.forget(2)
        classifier.save(folder / method)
    return {path.name: path for path in folder.iterdir()}


def state_of(classifier: OnlineClassifier) -> dict[str, Any]:
    state = classifier.__getstate__()
    del state["params"]["device"], state["given"]
    return state


def use(classifier: OnlineClassifier, photos: Any, folder: Path) -> None:
    """Whatever was loaded works, or says in a sentence why it does not."""
    images, labels = photos(4, classes=4)
    if classifier.get_params().get("epochs", 1) > 10:
        return  # another classifier, and a slow one
    try:
        if classifier._model is not None:
            classifier.predict(images[:2])
        classifier.partial_fit(images, labels)
        classifier.predict(images)
        assert len(classifier.memory_.images) <= classifier.memory
        classifier.save(folder / "again")
    except (ValueError, FloatingPointError):
        pass


def attempt(rng: random.Random, original: Path, photos: Any, folder: Path) -> str:
    """Corrupt a file in one way; what became of it."""
    file = folder / "corrupted"
    state = load_state(original, kind="classifier")
    place: tuple[Any, ...] = ()
    if rng.randrange(4):
        changed, place = corrupt(rng, state)
        if not write(file, changed):
            return "not written"
    else:
        changed = None
        file.write_bytes(corrupt_format(rng, original.read_bytes()))
    try:
        loaded = OnlineClassifier.load(file, device="cpu")
    except ValueError:
        return "refused"
    if equal(state_of(loaded), state):
        return "equal"
    assert changed is not None, "another classifier came out of a damaged payload"
    assert plausible(place, part(state, place), part(changed, place)), place
    use(loaded, photos, folder)
    return "another"


def attempts(count: int, originals: dict[str, Path], photos: Any, folder: Path) -> Counter[str]:
    names, became = sorted(originals), Counter[str]()
    for seed in range(count):
        rng = random.Random(seed)
        name = names[seed % len(names)]
        try:
            became[attempt(rng, originals[name], photos, folder)] += 1
        except BaseException as error:
            error.add_note(f"seed {seed}, {name}")
            raise
    return became


def test_corrupted_files_are_refused(
    originals: dict[str, Path], photos: Any, tmp_path: Path
) -> None:
    became = attempts(140, originals, photos, tmp_path)
    assert became["refused"] > 70


@pytest.mark.slow
def test_thousands_of_corrupted_files_are_refused(
    originals: dict[str, Path], photos: Any, tmp_path: Path, record_property: Any
) -> None:
    became = attempts(3000, originals, photos, tmp_path)
    record_property("became", json.dumps(became))
    print(became)  # noqa: T201 # the figure
    assert became.total() - became["not written"] > 2000
    assert became["refused"] > 1500


def test_the_next_class_has_room(originals: dict[str, Path], tmp_path: Path) -> None:
    """A number of classes met that is beyond those of the network would make it grow by as many."""
    for original in originals.values():
        state = load_state(original, kind="classifier")
        state["learner"]["taken"] = 2**31
        assert write(tmp_path / "corrupted", state)
        with pytest.raises(ValueError, match="the classes"):
            OnlineClassifier.load(tmp_path / "corrupted", device="cpu")


def test_memory_that_runs_out_is_no_damage(
    originals: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither Python's error nor what torch says on a CPU."""
    for error in (MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")):

        def full(*_: Any, error: Exception = error, **__: Any) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(torch.nn.Module, "load_state_dict", full)
            with pytest.raises(MemoryError):
                OnlineClassifier.load(originals["er"], device="cpu")


def test_a_device_that_fails_is_no_damage(
    originals: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise torch.AcceleratorError("an illegal memory access was encountered")

    monkeypatch.setattr(torch.nn.Module, "load_state_dict", fail)
    with pytest.raises(torch.AcceleratorError):
        OnlineClassifier.load(originals["er"], device="cpu")


def test_a_state_may_only_be_so_deep(tmp_path: Path) -> None:
    state: dict[str, Any] = {}
    for _ in range(statefile.MAX_DEPTH):
        state = {"deeper": state}
    save_state(tmp_path / "deep", freeze(state, kind="classifier"))
    assert equal(load_state(tmp_path / "deep", kind="classifier"), state)
    with pytest.raises(ValueError, match="levels deep"):
        freeze({"deeper": state}, kind="classifier")
