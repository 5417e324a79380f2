"""Input is hostile: it is understood, or refused with a sentence and without a trace."""

import io
from collections import deque
from typing import Any

import numpy as np
import pytest
import torch
from PIL import EpsImagePlugin, Image
from torch._subclasses import FakeTensorMode

from onpro.fitted import FittedModel

RNG = np.random.default_rng(0)
GOOD = RNG.integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)
FLOATS = (GOOD / 255).astype(np.float32)
LABELS = ["a", "b", "c"]


def read_only() -> Any:
    images = GOOD.copy()
    images.flags.writeable = False
    return images


SAME = {
    "channels first": GOOD.transpose(0, 3, 1, 2),
    "fortran order": np.asfortranarray(GOOD),
    "strided": np.repeat(GOOD, 2, axis=2)[:, :, ::2],
    "backwards twice": GOOD[::-1].copy()[::-1],
    "read-only": read_only(),
    "float32": FLOATS,
    "float64, big-endian": (GOOD / 255).astype(">f8"),
    "float64, channels first": (GOOD / 255).transpose(0, 3, 1, 2),
    "a hair outside": np.where(GOOD == 255, 1 + 1e-6, GOOD / 255),
    "torch": torch.from_numpy(GOOD.copy()),
    "torch with a gradient": torch.from_numpy(FLOATS.copy()).requires_grad_(),
    "torch, bytes, strided": torch.from_numpy(GOOD.copy()).permute(0, 3, 1, 2),
    "list of arrays": list(GOOD),
    "tuple of arrays, channels first": tuple(GOOD.transpose(0, 3, 1, 2)),
    "nested lists of floats": (GOOD / 255).tolist(),
    "list of tensors": [torch.from_numpy(image.copy()) for image in GOOD],
    "negative view": torch._neg_view(torch.from_numpy(-FLOATS)),
    "imaginary part of a conjugate": torch.complex(
        torch.from_numpy(FLOATS), torch.from_numpy(-FLOATS)
    )
    .conj()
    .imag,
    "queue of arrays": deque(GOOD),
    "queue of tensors with a gradient": deque(torch.from_numpy(FLOATS.copy()).requires_grad_()),
    "list of Pillow": [Image.fromarray(image) for image in GOOD],
    "Pillow and arrays": [Image.fromarray(GOOD[0]), GOOD[1], FLOATS[2]],
}


@pytest.mark.parametrize("kind", SAME)
def test_images_of_all_kinds_are_the_same_images(make: Any, kind: str) -> None:
    remembered = make().partial_fit(SAME[kind], LABELS).memory_
    np.testing.assert_array_equal(remembered.images, GOOD)


@pytest.mark.parametrize(
    "grey", [GOOD[..., 0], GOOD[..., :1], GOOD[..., 0][:, None], list(GOOD[..., 0])]
)
def test_grey_images_get_three_channels(make: Any, grey: Any) -> None:
    remembered = make().partial_fit(grey, LABELS).memory_
    np.testing.assert_array_equal(remembered.images, np.repeat(GOOD[..., :1], 3, axis=3))


def test_half_precision_is_a_kind_of_float(make: Any) -> None:
    for dtype in (torch.float16, torch.bfloat16):
        assert make().partial_fit(torch.from_numpy(FLOATS).to(dtype), LABELS).n_seen_ == 3


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "YCbCr", "HSV", "I;16"])
def test_pillow_images_of_all_modes_are_taken(make: Any, mode: str) -> None:
    image = (
        Image.new("I;16", (8, 8), 900) if mode == "I;16" else Image.new("RGB", (8, 8)).convert(mode)
    )
    assert make().partial_fit([image], ["a"]).memory_.images.shape == (1, 8, 8, 3)


def test_what_is_transparent_is_white_and_photos_are_turned_upright(make: Any) -> None:
    clear = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(np.arange(96, dtype=np.uint8).reshape(8, 12)).save(file, "PNG", exif=exif)
    classifier = make(image_size=8).partial_fit([clear], ["clear"])
    assert (classifier.memory_.images == 255).all()
    assert make().partial_fit([Image.open(file)], ["p"]).memory_.images.shape == (1, 12, 8, 3)


class Unequal:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not today")

    def __hash__(self) -> int:
        return 1


def bomb() -> Image.Image:
    """A file of a few hundred bytes that claims a billion pixels and is never decoded."""
    image = Image.new("L", (8, 8))
    image._size = (30_000, 30_000)
    return image


def damaged() -> Image.Image:
    file = io.BytesIO()
    Image.fromarray(RNG.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(file, "PNG")
    return Image.open(io.BytesIO(file.getvalue()[:400]))


def program() -> Image.Image:
    """What Pillow would hand to Ghostscript."""
    return Image.open(io.BytesIO(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\nshowpage\n"))


def deep() -> Any:
    label: Any = "a"
    for _ in range(100_000):
        label = (label,)
    return label


def endless() -> list[Any]:
    images: list[Any] = []
    images.append(images)
    return images


class Failing:
    def __array__(self, *_: Any, **__: Any) -> Any:
        raise LookupError("not today")


def without_values() -> torch.Tensor:
    with FakeTensorMode():
        return torch.zeros(3, 3, 8, 8, dtype=torch.uint8)


def with_value(value: float) -> Any:
    images = FLOATS.copy()
    images[1, 2, 3, 0] = value
    return images


NO_IMAGES = {
    "nan": (with_value(np.nan), "NaN"),
    "infinite": (with_value(-np.inf), "infinite"),
    "0 to 255 as floats": (GOOD.astype(np.float32), "divide pixels"),
    "huge": (with_value(1e30), "0…1"),
    "huge double": ((GOOD / 255) * 1e300, "0…1"),
    "negative": (with_value(-0.5), "0…1"),
    "int64": (GOOD.astype(np.int64), "uint8 or floats"),
    "int8": (GOOD.astype(np.int8), "uint8 or floats"),
    "uint16": (GOOD.astype(np.uint16), "uint8 or floats"),
    "booleans": (GOOD > 9, "uint8 or floats"),
    "complex": (GOOD.astype(complex), "numbers"),
    "objects": (GOOD.astype(object), "numbers"),
    "strings": (GOOD.astype(str), "numbers"),
    "dates": (GOOD.astype("M8[s]"), "numbers"),
    "records": (np.zeros(3, dtype=[("a", "u1")]), "numbers"),
    "long double": ((GOOD / 255).astype(np.longdouble), "numbers"),
    "complex tensor": (torch.zeros(3, 3, 8, 8, dtype=torch.complex64), "uint8 or floats"),
    "sparse tensor": (torch.zeros(3, 3, 8, 8).to_sparse(), "plain arrays"),
    "sparse bytes": (torch.zeros(3, 3, 8, 8, dtype=torch.uint8).to_sparse(), "plain arrays"),
    "list of sparse bytes": (
        [torch.zeros(3, 8, 8, dtype=torch.uint8).to_sparse()] * 3,
        "plain arrays",
    ),
    "bytes without values": (
        torch.zeros(3, 3, 8, 8, dtype=torch.uint8, device="meta"),
        "plain arrays",
    ),
    "list of bytes without values": (
        [torch.zeros(3, 8, 8, dtype=torch.uint8, device="meta")] * 3,
        "plain arrays",
    ),
    "fake tensor": (without_values(), "plain arrays"),
    "mkldnn tensor": (torch.zeros(3, 3, 8, 8).to_mkldnn(), "plain arrays"),
    "conjugate tensor": (
        torch.zeros(3, 3, 8, 8, dtype=torch.complex64).conj(),
        "uint8 or floats",
    ),
    "float8": (torch.zeros(3, 3, 8, 8).to(torch.float8_e4m3fn), "uint8 or floats"),
    "negative view below 0": (torch._neg_view(torch.from_numpy(FLOATS)), "0…1"),
    "nested tensor": (
        torch.nested.nested_tensor([torch.zeros(3, 8, 8)] * 3, layout=torch.jagged),
        "nested",
    ),
    "masked": (np.ma.masked_array(GOOD, mask=GOOD > 250), "masked"),
    "tensor without values": (torch.zeros(3, 3, 8, 8, device="meta"), "plain arrays"),
    "one image": (GOOD[0], "single one"),
    "one flat image": (GOOD[0, 0], "must have the shape"),
    "five sides": (GOOD[None], "must have the shape"),
    "no side": (np.uint8(3), "must have the shape"),
    "no pixels": (np.zeros((3, 0, 8, 3), np.uint8), "must have the shape"),
    "four channels": (
        np.zeros((3, 8, 8, 4), np.uint8),
        "no axis has 1 or 3 channels; drop the alpha channel",
    ),
    "two readings": (np.zeros((3, 3, 8, 3), np.uint8), "both the second and the last axis"),
    "sizes mixed": ([GOOD[0], GOOD[1, :7], GOOD[2]], "differ in size"),
    "ragged": ([[[0.0, 1.0], [0.0]]] * 3, "inhomogeneous"),
    "huge images": (np.zeros((1, 2000, 1000, 3), np.uint8), "too large"),
    "nothing": (None, "numbers"),
    "a string": ("images", "numbers"),
    "names of files": (["a.png", "b.png", "c.png"], "open files with PIL.Image.open"),
    "whole numbers": (GOOD.astype(int), "not int64: convert pixels in 0…255 to uint8"),
    "a set": ({1, 2, 3}, "numbers"),
    "a generator": ((image for image in GOOD), "numbers"),
    "list with a hole": ([GOOD[0], None, GOOD[2]], "numbers"),
    "list of batches": ([GOOD, GOOD, GOOD], "of a list"),
    "list of numbers": ([1, 2, 3], "of a list"),
    "one Pillow image": (Image.fromarray(GOOD[0]), "into a list"),
    "bomb": ([bomb()], "smaller"),
    "damaged file": ([damaged()], "cannot be read"),
    "damaged file in a queue": (deque([damaged()]), "cannot be read"),
    "damaged file in a list too many": ([[damaged()]], "one plain list"),
    "program": ([program()], "EPS is not decoded"),
    "program in a list too many": ([[[program()]]], "one plain list"),
    "list that holds itself": (endless(), "numbers"),
    "object that fails": (Failing(), "numbers: not today"),
    "floats of Pillow": ([Image.new("F", (8, 8))], "cannot be read"),
}

NO_LABELS: dict[str, tuple[Any, str]] = {
    "too few labels": (LABELS[:2], "3 images (but|and) 2 labels"),
    "too many labels": ([*LABELS, "d"], "3 images (but|and) 4 labels"),
    "labels of two sides": (np.zeros((3, 1)), "shape"),
    "label of no side": (np.array(3), "shape"),
    "one label": (3, "list or an array, not int: put a single label into a list"),
    "labels as a string": ("abc", "list or an array"),
    "labels as a set": ({"a", "b", "c"}, "list or an array"),
    "labels as a dict": (dict.fromkeys(LABELS), "list or an array"),
    "labels that go on for ever": (iter(int, 1), "list or an array"),
    "label is a list": (["a", "b", ["c"]], "told from others"),
    "label is an array": (["a", "b", np.zeros(2)], "told from others"),
    "label is a tensor": (["a", "b", torch.zeros(2)], "single values"),
    "label holds a list": (["a", "b", ("c", [])], "told from others"),
    "label too deep": (["a", "b", deep()], "told from others"),
    "label is nan": ([1.0, 2.0, float("nan")], "not equal to itself"),
    "label holds nan": (["a", "b", ("c", float("nan"))], "not equal to itself"),
    "label is no time": ([np.datetime64("NaT", "s")] * 3, "not equal to itself"),
    "labels masked": (np.ma.masked_array([1, 2, 3], mask=[False, True, False]), "masked"),
    "labels without values": (torch.zeros(3, device="meta"), "plain values"),
    "label without value": ([torch.zeros((), device="meta")] * 3, "plain values"),
    "sparse labels": (torch.ones(3).to_sparse(), "plain values"),
    "label of numpy is nan": (np.array([1, 2, np.nan]), "not equal to itself"),
    "label does not compare": (["a", "b", Unequal()], "told from others"),
    "labels are dates": (np.zeros(3, "M8[ns]"), "numbers, strings or objects"),
}


@pytest.mark.parametrize("kind", NO_IMAGES)
def test_images_that_are_not_clear_are_refused_without_a_trace(
    make: Any, fingerprint: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_: pytest.fail("it was run"))
    images, sentence = NO_IMAGES[kind]
    classifier = make().partial_fit(GOOD, LABELS)
    before = fingerprint(classifier)
    for call in (classifier.partial_fit, classifier.fit, classifier.score):
        with pytest.raises(ValueError, match=sentence):
            call(images, LABELS)
    for ask in (classifier.predict, classifier.predict_proba):
        with pytest.raises(ValueError, match=sentence):
            ask(images)
    assert fingerprint(classifier) == before


@pytest.mark.parametrize("kind", NO_LABELS)
def test_labels_that_are_not_clear_are_refused_without_a_trace(
    make: Any, fingerprint: Any, kind: str
) -> None:
    labels, sentence = NO_LABELS[kind]
    classifier = make().partial_fit(GOOD, LABELS)
    before = fingerprint(classifier)
    for call in (classifier.partial_fit, classifier.fit, classifier.score):
        with pytest.raises(ValueError, match=sentence):
            call(GOOD, labels)
    assert fingerprint(classifier) == before


@pytest.mark.parametrize("dtype", [str, object, np.dtypes.StringDType()], ids=str)
def test_arrays_of_strings_of_all_kinds_are_the_same_labels(make: Any, dtype: Any) -> None:
    clf = make().partial_fit(GOOD, np.array(["a", "b", "a"], dtype=dtype))
    assert clf.classes_.tolist() == ["a", "b"]
    assert [type(label) for label in clf.classes_.tolist()] == [str, str]


def test_another_size_is_refused_without_a_trace(make: Any, fingerprint: Any) -> None:
    classifier = make().partial_fit(GOOD, LABELS)
    before = fingerprint(classifier)
    wider = np.zeros((3, 8, 9, 3), np.uint8)
    for call in (classifier.partial_fit, classifier.score):
        with pytest.raises(ValueError, match="the first had 8×8"):
            call(wider, LABELS)
    assert fingerprint(classifier) == before
    assert classifier.fit(wider, LABELS).memory_.images.shape == (3, 8, 9, 3)


def test_the_input_is_left_as_it_was(make: Any) -> None:
    for array in (GOOD.copy(), FLOATS.copy()):
        for images in (array, torch.from_numpy(array)):
            before = array.copy()
            make(image_size=16).partial_fit(images, LABELS).predict(images)
            np.testing.assert_array_equal(array, before)


def test_what_is_remembered_does_not_change_with_the_input(make: Any) -> None:
    images = GOOD.copy()
    classifier = make().partial_fit(images, LABELS)
    images[:] = 0
    classifier.memory_.images[:] = 0
    np.testing.assert_array_equal(classifier.memory_.images, GOOD)


class Restless:
    """Its hash is another one each time."""

    def __init__(self) -> None:
        self.asked = 0

    def __hash__(self) -> int:
        self.asked += 1
        return self.asked


class Shy:
    """Equal to itself, and not to be compared with others."""

    def __eq__(self, other: object) -> bool:
        if other is self:
            return True
        raise RuntimeError("not today")

    def __hash__(self) -> int:
        return hash("a")


@pytest.mark.parametrize("kind", [Restless, Shy])
@pytest.mark.parametrize("call", ["fit", "partial_fit"])
def test_labels_that_fail_half_way_change_nothing(
    make: Any, fingerprint: Any, call: str, kind: Any
) -> None:
    classifier = make(batch_size=1).fit(GOOD, LABELS)
    before, label = fingerprint(classifier), kind()
    with pytest.raises(ValueError, match=r"hash of a label changes|told from each other"):
        getattr(classifier, call)(np.concatenate([GOOD, GOOD]), ["a", label, "a", label, *"bc"])
    assert fingerprint(classifier) == before


def test_an_error_inside_fit_leaves_what_was_learned(
    make: Any, fingerprint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    classifier = make(batch_size=1).fit(GOOD, LABELS)
    before, steps = fingerprint(classifier), iter([None, None])

    def learn(self: Any, *given: Any, original: Any = FittedModel.learn) -> None:
        if next(steps, "over") == "over":
            raise MemoryError
        original(self, *given)

    monkeypatch.setattr(FittedModel, "learn", learn)
    with pytest.raises(MemoryError):
        classifier.fit(GOOD, LABELS)
    assert fingerprint(classifier) == before
