import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from onpro.data.imageset import ImageSet, Split
from onpro.errors import UserError
from onpro.streams import Batch, Benchmark, ClassIncremental, ClassOrder


def numbered(labels: Iterable[int]) -> Split:
    """Images whose pixels tell their original label (first channel) and index (the others)."""
    values = torch.tensor(list(labels), dtype=torch.int64)
    index = torch.arange(len(values))
    pixels = torch.stack([values, index // 256, index % 256], dim=1).to(torch.uint8)
    return Split(pixels[:, :, None, None].repeat(1, 1, 2, 2), values)


def image_set(train: list[int], test: list[int], classes: int) -> ImageSet:
    names = tuple(f"class {k}" for k in range(classes))
    ones = (1.0, 1.0, 1.0)
    return ImageSet("numbered", numbered(train), numbered(test), names, ones, ones)


def even(classes: int = 6, per_class: int = 7) -> ImageSet:
    return image_set(list(range(classes)) * per_class, list(range(classes)) * 2, classes)


def original_labels(images: torch.Tensor) -> list[int]:
    return [int(value) for value in images[:, 0, 0, 0]]


def indices(images: torch.Tensor) -> list[int]:
    return [int(high) * 256 + int(low) for high, low in images[:, 1:, 0, 0]]


def seen(
    batches: Iterable[Batch],
) -> list[tuple[list[int], list[int], int | None, tuple[int, ...]]]:
    return [
        (indices(batch.images), batch.labels.tolist(), batch.task, batch.classes)
        for batch in batches
    ]


@st.composite
def streams(draw: st.DrawFn) -> tuple[ImageSet, dict[str, Any]]:
    """A data set with classes of uneven size, and settings of a stream over it."""
    classes = draw(st.integers(1, 7))
    sizes = draw(st.lists(st.integers(1, 9), min_size=classes, max_size=classes))
    train = draw(st.permutations([k for k, size in enumerate(sizes) for _ in range(size)]))
    test = draw(st.permutations(list(range(classes)) * 2))
    orders = st.sampled_from(["natural", "random"]) | st.permutations(range(classes))
    return image_set(train, test, classes), {
        "tasks": draw(st.integers(1, classes)),
        "batch_size": draw(st.integers(1, 12)),
        "seed": draw(st.integers(0, 2**40)),
        "class_order": draw(orders),
    }


@settings(max_examples=60, deadline=None)
@given(streams())
def test_every_training_image_arrives_exactly_once(case: tuple[ImageSet, dict[str, Any]]) -> None:
    data, wishes = case
    stream = ClassIncremental(data, **wishes)
    batches = list(stream)
    assert len(batches) == len(stream) == sum(stream.steps_per_task)
    assert sorted(i for batch in batches for i in indices(batch.images)) == list(
        range(len(data.train))
    )


@settings(max_examples=60, deadline=None)
@given(streams())
def test_tasks_are_disjoint_in_order_and_cover_all_classes(
    case: tuple[ImageSet, dict[str, Any]],
) -> None:
    data, wishes = case
    stream = ClassIncremental(data, **wishes)
    flat = [k for ids in stream.task_classes for k in ids]
    assert flat == list(range(len(data.classes)))
    sizes = [len(ids) for ids in stream.task_classes]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) <= 1

    batches = list(stream)
    tasks = [batch.task for batch in batches]
    assert [tasks.count(task) for task in range(stream.num_tasks)] == list(stream.steps_per_task)
    assert tasks == sorted(task for task in tasks if task is not None)
    for batch in batches:
        assert batch.task is not None
        assert set(batch.labels.tolist()) <= set(stream.task_classes[batch.task])
        assert batch.classes == tuple(sorted(set(batch.labels.tolist())))


@settings(max_examples=60, deadline=None)
@given(streams())
def test_batches_are_full_up_to_the_last_of_a_task(case: tuple[ImageSet, dict[str, Any]]) -> None:
    data, wishes = case
    batches = list(ClassIncremental(data, **wishes))
    for batch, following in zip(batches, [*batches[1:], None], strict=True):
        last = following is None or following.task != batch.task
        assert 1 <= len(batch) <= wishes["batch_size"]
        assert last or len(batch) == wishes["batch_size"]


@settings(max_examples=60, deadline=None)
@given(streams())
def test_renumbering_is_the_same_in_training_and_test(
    case: tuple[ImageSet, dict[str, Any]],
) -> None:
    data, wishes = case
    stream = ClassIncremental(data, **wishes)

    def check(images: torch.Tensor, labels: torch.Tensor) -> None:
        for old, new in zip(original_labels(images), labels.tolist(), strict=True):
            assert stream.classes[new] == data.classes[old]

    for batch in stream:
        check(batch.images, batch.labels)
    tests = [stream.test(task) for task in range(stream.num_tasks)]
    for task, split in enumerate(tests):
        check(split.images, split.labels)
        assert set(split.labels.tolist()) == set(stream.task_classes[task])
    assert sorted(i for split in tests for i in indices(split.images)) == list(
        range(len(data.test))
    )


@settings(max_examples=60, deadline=None)
@given(streams(), st.data())
def test_any_position_resumes_to_the_same_rest(
    case: tuple[ImageSet, dict[str, Any]], draw: st.DataObject
) -> None:
    data, wishes = case
    straight = seen(ClassIncremental(data, **wishes))
    position = draw.draw(st.integers(0, len(straight)))
    stopped = ClassIncremental(data, **wishes)
    for _, _batch in zip(range(position), stopped, strict=False):
        pass
    assert stopped.position == position
    resumed = ClassIncremental(data, **wishes)
    resumed.load_state_dict(json.loads(json.dumps(stopped.state_dict())))
    assert seen(resumed) == seen(stopped) == straight[position:]
    assert resumed.position == len(resumed)


def test_equal_seeds_give_equal_schedules_and_others_differ() -> None:
    assert seen(ClassIncremental(even(), 3, seed=1)) == seen(ClassIncremental(even(), 3, seed=1))
    assert seen(ClassIncremental(even(), 3, seed=1)) != seen(ClassIncremental(even(), 3, seed=2))


def test_natural_order_leaves_the_labels_as_they_are() -> None:
    stream = ClassIncremental(even(), 3)
    assert stream.task_classes == ((0, 1), (2, 3), (4, 5))
    assert stream.classes == even().classes
    for batch in stream:
        assert batch.labels.tolist() == original_labels(batch.images)


def test_a_random_order_comes_from_the_seed() -> None:
    orders = {
        ClassIncremental(even(), 3, seed=seed, class_order="random").classes for seed in range(6)
    }
    assert len(orders) > 1


def test_a_given_order_is_followed() -> None:
    stream = ClassIncremental(even(), 3, class_order=[5, 0, 4, 1, 3, 2])
    assert stream.classes[:2] == ("class 5", "class 0")
    first = next(iter(stream))
    assert set(original_labels(first.images)) <= {5, 0}


def test_the_order_of_classes_does_not_change_the_order_of_images() -> None:
    """With one class a task, the images of a task come in the same places of their class."""
    natural = list(ClassIncremental(even(4, 20), 4, batch_size=20))
    turned = list(ClassIncremental(even(4, 20), 4, batch_size=20, class_order=[3, 2, 1, 0]))
    for one, other in zip(natural, turned, strict=True):
        places = [[i // 4 for i in indices(batch.images)] for batch in (one, other)]
        assert places[0] == places[1]


def test_images_are_shuffled_inside_a_task() -> None:
    first = next(iter(ClassIncremental(even(2, 50), 1, batch_size=100)))
    assert indices(first.images) != sorted(indices(first.images))


def test_the_papers_protocol_in_small() -> None:
    stream: Benchmark = ClassIncremental(even(10, 50), 5)
    assert stream.num_classes == 10
    assert len(stream) == 50
    assert {len(batch) for batch in stream} == {10}


def test_uneven_classes_make_the_first_tasks_larger() -> None:
    stream = ClassIncremental(even(7), 3)
    assert stream.task_classes == ((0, 1, 2), (3, 4), (5, 6))


def test_what_a_method_needs_to_know_of_the_data() -> None:
    data = even()
    stream = ClassIncremental(data, 3)
    assert (stream.mean, stream.std, stream.image_shape) == (data.mean, data.std, (3, 2, 2))
    assert (stream.num_classes, stream.num_tasks) == (6, 3)


def test_writing_into_a_batch_does_not_reach_the_data() -> None:
    data = even()
    before = data.train.images.clone()
    for batch in ClassIncremental(data, 3, batch_size=1):
        batch.images.zero_()
        batch.labels.zero_()
    assert data.train.images.equal(before)


def test_a_stream_that_has_ended_stays_ended_until_it_is_set_back() -> None:
    stream = ClassIncremental(even(), 3)
    start = stream.state_dict()
    first = seen(stream)
    assert seen(stream) == []
    stream.load_state_dict(start)
    assert seen(stream) == first


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (ClassIncremental(even(), 3, seed=1), "seed"),
        (ClassIncremental(even(), 3, batch_size=5), "batch_size"),
        (ClassIncremental(even(), 2), "tasks"),
        (ClassIncremental(even(), 3, class_order=[1, 0, 2, 3, 4, 5]), "class_order"),
        (ClassIncremental(even(6, 8), 3), "schedule"),
    ],
)
def test_a_state_of_another_schedule_is_refused(other: ClassIncremental, difference: str) -> None:
    stream = ClassIncremental(even(), 3)
    with pytest.raises(ValueError, match=f"another stream.*{difference}"):
        stream.load_state_dict(other.state_dict())


@pytest.mark.parametrize("position", [-1, 1000, None, "3"])
def test_a_position_outside_the_stream_is_refused(position: object) -> None:
    stream = ClassIncremental(even(), 3)
    with pytest.raises(ValueError, match="positions 0 to"):
        stream.load_state_dict(stream.state_dict() | {"position": position})


@pytest.mark.parametrize("tasks", [-1, 0, 7])
def test_an_impossible_number_of_tasks_is_refused(tasks: int) -> None:
    with pytest.raises(UserError, match="1 to 6 tasks"):
        ClassIncremental(even(), tasks)


def test_an_impossible_batch_size_is_refused() -> None:
    with pytest.raises(UserError, match="batch size"):
        ClassIncremental(even(), 3, batch_size=0)


@pytest.mark.parametrize("order", ["sorted", [0, 1], [0, 1, 2, 3, 4, 4], [1, 2, 3, 4, 5, 6]])
def test_an_impossible_class_order_is_refused(order: ClassOrder) -> None:
    with pytest.raises(UserError, match="class order"):
        ClassIncremental(even(), 3, class_order=order)


def test_a_task_without_training_images_is_refused() -> None:
    with pytest.raises(UserError, match="task 2 of 2 has no training images"):
        ClassIncremental(image_set([0, 0], [0, 1], 2), 2)


@pytest.mark.parametrize("task", [-1, 3])
def test_there_is_no_test_set_of_another_task(task: int) -> None:
    with pytest.raises(IndexError, match="tasks 0 to 2"):
        ClassIncremental(even(), 3).test(task)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_schedule_is_the_same_on_every_device() -> None:
    there = ClassIncremental(even(), 3, device="cuda")
    assert next(iter(there)).images.is_cuda
    assert there.test(0).images.is_cuda
    here = ClassIncremental(even(), 3, device="cpu")
    there.load_state_dict(here.state_dict())
    assert seen(there) == seen(here)


@pytest.mark.parametrize("kind", [np.array, torch.tensor, tuple])
def test_an_order_may_be_an_array(kind: Any) -> None:
    order = [5, 0, 4, 1, 3, 2]
    given = ClassIncremental(even(), 3, class_order=kind(order))
    assert given.class_order == tuple(order)
    assert all(type(number) is int for number in given.class_order)
    halves: Any = np.array(order) / 2
    wrongs: list[Any] = [kind(order[1:]), np.zeros((6, 6)), halves, [None] * 6, ["0"] * 6]
    for wrong in wrongs:
        with pytest.raises(UserError, match="every number from 0 to 5 once"):
            ClassIncremental(even(), 3, class_order=wrong)
