"""Inputs of all kinds for a classifier: some are sensible, most are not."""

import datetime
import decimal
import io
import math
import random
from collections import UserList, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch._subclasses import FakeTensorMode

SIDE = 8
Photos = npt.NDArray[np.uint8]


class Given(NamedTuple):
    """An input, and what it means if it means anything."""

    images: Any
    labels: Any
    meaning: Photos | None
    """uint8 (n, 8, 8, 3), if the images are sensible."""


class Hostile:
    """Fails, or lies, when it is looked at in some way."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = random.Random(rng.random())

    def _mischief(self) -> Any:
        error = self.rng.choice([RuntimeError, KeyError, TypeError, OSError, ValueError, None])
        if error is not None:
            raise error("no")
        return self.rng.choice([0, -1, None, "x", 2.5, True])

    def __hash__(self) -> int:
        return self.rng.choice([1, 2, hash("a"), self.rng.randrange(2**61)])

    def __eq__(self, other: object) -> Any:
        return True if self.rng.randrange(3) else self._mischief()

    def __array__(self, *_: Any, **__: Any) -> Any:
        return np.zeros((2, SIDE, SIDE, 3), np.uint8) if self.rng.randrange(2) else self._mischief()

    def __len__(self) -> int:
        return 2

    def __getitem__(self, key: Any) -> Any:
        return self._mischief()


def photos(rng: random.Random, count: int) -> Photos:
    numbers = np.random.default_rng(rng.randrange(2**32))
    return numbers.integers(0, 256, (count, SIDE, SIDE, 3), dtype=np.uint8)


def file_of(image: Photos, kind: str) -> Image.Image:
    content = io.BytesIO()
    Image.fromarray(image).save(content, kind)
    return Image.open(content)


def sensible(rng: random.Random, images: Photos) -> Any:
    """The images in one of the kinds that are understood."""
    floats = images / 255
    torched = torch.from_numpy(images.copy())
    single: list[Callable[[Photos], Any]] = [np.asarray, torch.tensor, Image.fromarray]
    ways: list[Callable[[], Any]] = [
        lambda: images,
        lambda: images.transpose(0, 3, 1, 2),
        lambda: np.asfortranarray(images),
        lambda: images.repeat(2, axis=0)[::2],
        lambda: floats,
        lambda: floats.astype(rng.choice(["f4", ">f4", ">f8"])),
        lambda: torched,
        lambda: torched.permute(0, 3, 1, 2),
        lambda: torch.from_numpy(floats).requires_grad_(),
        lambda: torch._neg_view(torch.from_numpy(-floats)),
        lambda: torch.nn.Parameter(torch.from_numpy(floats)),
        lambda: list(images),
        lambda: tuple(images.transpose(0, 3, 1, 2)),
        lambda: deque(torch.from_numpy(floats).requires_grad_()),
        lambda: [rng.choice(single)(one) for one in images],
        lambda: [file_of(one, rng.choice(["PNG", "BMP", "TIFF", "PPM"])) for one in images],
        lambda: floats.tolist() if len(images) else [],
        lambda: images.data if len(images) else [],
    ]
    return rng.choice(ways)()


def strange(rng: random.Random, images: Photos) -> Any:
    """Something that is no images, or hardly."""
    count = len(images)
    torched = torch.from_numpy(images.copy())
    shape = [rng.choice([0, 1, 2, 3, 4, SIDE, 9]) for _ in range(rng.randrange(6))]
    empty: list[Any] = []
    empty.append(empty)
    kinds = [
        "u1",
        "i1",
        "u2",
        "i8",
        "f2",
        "f4",
        "f8",
        "g",
        "c8",
        "?",
        "O",
        "U3",
        "S2",
        "M8[s]",
        "m8",
    ]
    dtypes = [torch.uint8, torch.int64, torch.float16, torch.bool, torch.complex64, torch.uint16]

    def broken() -> Image.Image:
        file = io.BytesIO()
        Image.fromarray(photos(rng, 1)[0].repeat(9, axis=0)).save(file, rng.choice(["PNG", "TIFF"]))
        content = bytearray(file.getvalue())
        for _ in range(rng.randrange(4)):
            content[rng.randrange(60, len(content))] ^= 1 << rng.randrange(8)
        content = content[: rng.randrange(70, len(content) + 1)]
        try:
            return Image.open(io.BytesIO(content))
        except OSError:  # so broken that nobody could hand it in
            return broken()

    def tensor_without_values() -> Any:
        with FakeTensorMode():
            return torch.zeros(count, 3, SIDE, SIDE, dtype=torch.uint8)

    ways: list[Callable[[], Any]] = [
        lambda: np.zeros(shape, rng.choice(kinds)),
        lambda: torch.zeros(shape, dtype=rng.choice(dtypes)),
        lambda: images.astype(rng.choice(kinds)),
        lambda: np.full(images.shape, rng.choice([math.nan, math.inf, -1.0, 2.0, 1e300, 1 + 1e-3])),
        lambda: np.ma.masked_array(images, mask=images > 128),
        lambda: np.zeros(count, dtype=[("a", "u1"), ("b", "f4")]),
        lambda: torched.to_sparse(),
        lambda: torched.to("meta"),
        lambda: torched.float().to_mkldnn() if count else None,
        lambda: torch.view_as_complex(torch.rand(count, SIDE, SIDE, 3, 2, generator=TORCH)).conj(),
        lambda: torch.from_numpy(images / 255).to(torch.float8_e4m3fn),
        lambda: torch._neg_view(torch.from_numpy(images / 255)),
        lambda: tensor_without_values(),
        lambda: [one.to("meta") for one in torched],
        lambda: [one.to_sparse() for one in torched],
        lambda: [broken() for _ in images],
        lambda: [[broken()] for _ in images],
        lambda: deque([broken()]),
        lambda: UserList([broken(), None]),
        lambda: [images[:1], images],
        lambda: [*images, images[0, 1:] if count else None],
        lambda: [Image.new(rng.choice(["F", "I", "LAB"]), (SIDE, SIDE)) for _ in images],
        lambda: images[0] if count else images,
        lambda: iter(images),
        lambda: empty,
        lambda: rng.choice(
            [None, 3, 2.5, "images", b"\0" * 192, {}, {1: images}, {1, 2}, object, ...]
        ),
        lambda: Hostile(rng),
        lambda: [Hostile(rng) for _ in images],
        lambda: np.array([object() for _ in images], dtype=object),
        lambda: range(count),
        lambda: bytearray(count * 192),
    ]
    return rng.choice(ways)()


TORCH = torch.Generator().manual_seed(0)
PLAIN: list[Any] = [
    "a",
    "b",
    "wren",
    "",
    "\0",
    "\ud800",
    0,
    1,
    -7,
    2**70,
    10**4000,
    1.5,
    -0.0,
    1e300,
]
PLAIN += [math.inf, True, None, (), ("a", 1), ((),), b"a", frozenset({1}), 2 + 1j, range(3)]
PLAIN += [np.int64(3), np.float32(0.5), np.str_("a"), np.bool_(True), datetime.date(2020, 1, 1)]
PLAIN += [
    decimal.Decimal("1.0"),
    torch.tensor(3),
    int,
    print,
    ("a", np.int64(1)),
    np.datetime64(0, "s"),
]


def deep(levels: int) -> Any:
    label: Any = "deep"
    for _ in range(levels):
        label = (label,)
    return label


def labels(rng: random.Random, count: int) -> Any:
    """As many labels as images, mostly."""
    plain = [rng.choice(PLAIN) for _ in range(count)]
    few = [rng.choice(["a", "b", 1]) for _ in range(count)]
    odd: Any = rng.choice(
        [
            math.nan,
            [],
            {},
            np.zeros(2),
            torch.zeros(2),
            ("a", []),
            (math.nan,),
            deep(60),
            deep(5000),
        ]
    )
    if rng.randrange(4) == 0:
        unequal = (
            np.datetime64("NaT", "s"),
            decimal.Decimal("sNaN"),
            torch.tensor(1.0, device="meta"),
        )
        odd = rng.choice(unequal)
    ways: list[Callable[[], Any]] = [
        *[lambda: few] * 8,
        *[lambda: plain] * 4,
        lambda: tuple(plain),
        lambda: np.array(few, dtype=object),
        lambda: np.arange(count).astype(rng.choice(["i1", "f4", "U2", "S1", "?", "c8", "M8[s]"])),
        lambda: torch.arange(count).to(rng.choice([torch.int64, torch.float32, torch.bool])),
        lambda: torch.arange(count).to(rng.choice(["meta", "cpu"])),
        lambda: torch.ones(count).to_sparse(),
        lambda: np.ma.masked_array(np.arange(count), mask=np.arange(count) % 2 == 1),
        lambda: [*plain[1:], odd] if count else [odd],
        lambda: [*plain, odd],
        lambda: plain[1:],
        lambda: [Hostile(rng) for _ in range(count)],
        lambda: [*few[1:], Hostile(rng)],
        lambda: [few, few],
        lambda: rng.choice(
            [None, 3, "ab", {}, {"a", "b"}, iter(few), np.zeros((count, 1)), Hostile(rng)]
        ),
    ]
    return rng.choice(ways)()


def given(rng: random.Random) -> Given:
    images = photos(rng, rng.choice([0, 1, 1, 2, 3, 4]))
    if rng.randrange(2):
        return Given(sensible(rng, images), labels(rng, len(images)), images)
    return Given(strange(rng, images), labels(rng, len(images)), None)
