"""Cues in training images: which images have one, where it is, and what it looks like."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from onpro.augment.color import grayscale_where
from onpro.data import load
from onpro.data.imageset import ImageSet, Split
from onpro.data.lazy import LazySplit
from onpro.data.tiny import tiny
from onpro.errors import UserError
from onpro.streams import ClassIncremental, LongTail, ShortcutSettings, stream_kind
from onpro.streams.cues import PALETTE, Cues, other_labels

DATA = tiny(classes=6, train_per_class=10, test_per_class=5, image_size=10)


def stream_of(data: ImageSet, tasks: int, share: float = 0.9, **more: object) -> ClassIncremental:
    shortcut = ShortcutSettings(share)
    return ClassIncremental(data, tasks, shortcut=shortcut, **more)  # type: ignore[arg-type]


def arriving(stream: ClassIncremental) -> tuple[Tensor, Tensor]:
    batches = list(stream)
    return torch.cat([b.images for b in batches]), torch.cat([b.labels for b in batches])


def patch_of(stream: ClassIncremental) -> tuple[slice, slice]:
    assert stream.cues
    edge = stream.cues.patches.shape[-1]
    top, left = stream.cues.top, stream.cues.left
    return slice(top, top + edge), slice(left, left + edge)


@settings(deadline=None, max_examples=30)
@given(
    share=st.floats(0.01, 1),
    size=st.floats(0.01, 0.5),
    strength=st.floats(0.01, 1),
    seed=st.integers(0, 1000),
    tasks=st.integers(1, 3),
)
def test_a_share_of_each_class_has_the_cue_and_nothing_else_changes(
    share: float, size: float, strength: float, seed: int, tasks: int
) -> None:
    before = DATA.train.images.clone()
    shortcut = ShortcutSettings(share, size, strength)
    painted = ClassIncremental(DATA, tasks, seed=seed, shortcut=shortcut)
    images, labels = arriving(painted)
    plain, same_labels = arriving(ClassIncremental(DATA, tasks, seed=seed))
    assert labels.equal(same_labels)
    assert DATA.train.images.equal(before)
    assert painted.cues
    rows, columns = patch_of(painted)
    outside = torch.ones(10, 10, dtype=torch.bool)
    outside[rows, columns] = False
    assert images[:, :, outside].equal(plain[:, :, outside])
    expected = painted.cues.paint(plain, labels)
    has_cue = (images == expected).flatten(1).all(1)
    assert (has_cue | (images == plain).flatten(1).all(1)).all()
    if strength > 0.5:  # else a patch may equal what it is painted on
        counts = torch.bincount(labels[has_cue], minlength=6)
        assert counts.tolist() == [round(share * 10)] * 6


def test_equal_seeds_paint_equal_images_and_others_choose_other_images() -> None:
    first, again, other = (arriving(stream_of(DATA, 3, 0.5, seed=s))[0] for s in (1, 1, 2))
    assert first.equal(again)
    assert not first.equal(other)
    quadrants = {stream_of(DATA, 3, seed=seed).cues.top for seed in range(20)}  # type: ignore[union-attr]
    assert len(quadrants) == 2


def test_classes_of_a_task_differ_in_their_cue_and_tasks_share_them() -> None:
    cues = stream_of(DATA, 3).cues
    assert cues
    first, second, *_ = cues.patches
    assert not first.equal(second)
    for label, patch in enumerate(cues.patches):
        assert patch.equal(cues.patches[label % 2])
    labels = torch.arange(6)
    assert cues.same(labels, torch.zeros_like(labels)).tolist() == [True, False] * 3


def test_an_opaque_cue_is_its_colour_and_a_weaker_one_is_blended() -> None:
    images = torch.full((2, 3, 20, 20), 100, dtype=torch.uint8)
    for strength, mixed in ((1.0, [255, 245, 50]), (0.5, [178, 173, 75])):
        shortcut = ShortcutSettings(1, 0.2, strength)
        cues = Cues.of(shortcut, [(0, 1)], (3, 20, 20), quadrant=0)
        painted = cues.paint(images, torch.tensor([0, 1]), torch.tensor([True, False]))
        assert painted[0, :, 3:7, 3:7].flatten(1).unique(dim=1)[:, 0].tolist() == mixed
        assert (painted[0] != 100).any(0).sum() == 16
        assert painted[1].equal(images[1])


@pytest.mark.parametrize(("classes", "size"), [(2, 0.2), (10, 0.2), (100, 0.2), (700, 0.3)])
def test_cues_differ_whatever_the_number_of_classes_even_flipped_and_rotated(
    classes: int, size: float
) -> None:
    cues = Cues.of(ShortcutSettings(1, size), [tuple(range(classes))], (3, 32, 32), quadrant=3)
    assert len(cues.patches.flatten(1).unique(dim=0)) == classes
    assert cues.patches.flip(3).equal(cues.patches)
    assert cues.patches.rot90(1, (2, 3)).equal(cues.patches)


def test_colours_differ_in_grayscale_too() -> None:
    pixels = torch.tensor(PALETTE, dtype=torch.float32)[:, :, None, None]
    gray = grayscale_where(torch.ones(1, dtype=torch.bool), pixels)[:, 0, 0, 0]
    assert gray.sort().values.diff().min() > 20


def test_a_cue_too_small_for_its_colours_is_refused() -> None:
    shortcut = ShortcutSettings(1, 0.2)
    with pytest.raises(UserError, match="a larger shortcut size or more tasks"):
        Cues.of(shortcut, [tuple(range(11))], (3, 8, 8), quadrant=0)


def test_wrong_cues_are_those_of_all_other_classes_of_the_task_in_turn() -> None:
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 0, 3, 4, 3])
    others = other_labels(labels, [(0, 1, 2), (3, 4)])
    assert others.tolist() == [1, 2, 0, 2, 0, 1, 1, 4, 3, 4]


def test_test_images_have_no_cue() -> None:
    painted, plain = stream_of(DATA, 3), ClassIncremental(DATA, 3)
    for task in range(3):
        assert painted.test(task).images.equal(plain.test(task).images)


def test_images_decoded_when_needed_are_painted_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    for name in ("crane", "owl", "wren", "robin"):
        (tmp_path / name).mkdir()
        for k in range(10):
            pixels = random.integers(0, 256, (9, 9, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{k}.png")
    in_memory = load(f"folder:{tmp_path}", image_size=8)
    monkeypatch.setenv("ONPRO_IMAGE_MEMORY", "0")
    as_needed = load(f"folder:{tmp_path}", image_size=8)
    assert isinstance(as_needed.train, LazySplit)
    (a, _), (b, _) = (arriving(stream_of(data, 2)) for data in (in_memory, as_needed))
    assert a.equal(b)


def test_only_images_that_arrive_count() -> None:
    images, labels = arriving(stream_of(DATA, 3, 0.5, kind=LongTail(imbalance=5)))
    plain, _ = arriving(ClassIncremental(DATA, 3, kind=LongTail(imbalance=5)))
    painted = (images != plain).flatten(1).any(1)
    sizes = torch.bincount(labels, minlength=6).tolist()
    assert torch.bincount(labels[painted], minlength=6).tolist() == [round(n / 2) for n in sizes]


@pytest.mark.parametrize("kind", ["blurry", "i-blurry", "gaussian", "repeating", "random"])
def test_streams_whose_classes_arrive_in_several_tasks_are_refused(kind: str) -> None:
    with pytest.raises(UserError, match="each class arrives in one task"):
        stream_of(DATA, 2, kind=stream_kind(kind))


def test_a_task_of_one_class_is_refused() -> None:
    with pytest.raises(UserError, match="task 3 of 4 has one class only: use fewer tasks"):
        stream_of(DATA, 4)


@pytest.mark.parametrize("values", [(0.0,), (1.1,), (-1.0,), (0.5, 0.0), (0.5, 0.6), (0.5, 0.2, 2)])
def test_values_that_cannot_work_are_refused(values: tuple[float, ...]) -> None:
    with pytest.raises(UserError, match="of a shortcut must be above 0"):
        ShortcutSettings(*values)


def test_the_state_is_that_of_the_shortcut() -> None:
    plain, painted = ClassIncremental(DATA, 3), stream_of(DATA, 3)
    painted.load_state_dict(stream_of(DATA, 3).state_dict())
    for one, other in ((plain, painted), (painted, plain), (painted, stream_of(DATA, 3, 0.5))):
        with pytest.raises(ValueError, match="shortcut differ"):
            one.load_state_dict(other.state_dict())
    older = {name: v for name, v in plain.state_dict().items() if name != "shortcut"}
    plain.load_state_dict(older)


def test_splits_of_any_shape_have_room_for_the_cue() -> None:
    images = torch.zeros(4, 3, 6, 9, dtype=torch.uint8)
    split = Split(images, torch.tensor([0, 1, 0, 1]))
    ones = (1.0, 1.0, 1.0)
    data = ImageSet("wide", split, split, ("a", "b"), ones, ones)
    painted, _ = arriving(stream_of(data, 1, 1.0))
    assert (painted != 0).flatten(1).any(1).all()
