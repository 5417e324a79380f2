"""The statistics of each kind of stream are those of its definition."""

import json
import math
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onpro.data.imageset import ImageSet
from onpro.errors import UserError
from onpro.streams import (
    Blurry,
    ClassIncremental,
    Disjoint,
    Gaussian,
    IBlurry,
    LongTail,
    Random,
    Repeating,
    StreamKind,
    find_kind,
    register,
    registry,
    stream_kind,
    stream_kinds,
)
from tests.streams.test_class_incremental import even, image_set, indices, original_labels, seen

PERCENT = st.floats(0, 100)
KINDS: list[st.SearchStrategy[StreamKind]] = [
    st.builds(Disjoint),
    st.builds(Blurry, PERCENT),
    st.builds(IBlurry, PERCENT, PERCENT),
    st.builds(Gaussian, PERCENT),
    st.builds(LongTail, st.floats(1, 1000), st.sampled_from(["shuffled", "ordered"])),
    st.builds(Repeating, PERCENT),
    st.builds(Random),
]
OF_EACH_KIND = pytest.mark.parametrize("name", list(stream_kinds()))


@st.composite
def cases(draw: st.DrawFn) -> tuple[ImageSet, dict[str, Any]]:
    """Classes of uneven size, and a stream over them."""
    classes = draw(st.integers(1, 7))
    sizes = draw(st.lists(st.integers(8, 30), min_size=classes, max_size=classes))
    train = [k for k, size in enumerate(sizes) for _ in range(size)]
    return image_set(train, list(range(classes)) * 2, classes), {
        "tasks": draw(st.integers(1, classes)),
        "kind": draw(st.one_of(KINDS)),
        "batch_size": draw(st.integers(1, 8)),
        "seed": draw(st.integers(0, 2**40)),
        "class_order": draw(st.sampled_from(["natural", "random"])),
        "hide_boundaries": draw(st.booleans()),
    }


def stream_of(case: tuple[ImageSet, dict[str, Any]]) -> ClassIncremental:
    try:
        return ClassIncremental(case[0], **case[1])
    except UserError:  # with so few images all of a task's may go elsewhere
        return ClassIncremental(case[0], **case[1] | {"tasks": 1, "batch_size": 1})


def per_task(kind: StreamKind, data: ImageSet, tasks: int, seed: int = 0) -> list[Counter[int]]:
    """How many images of each class arrive in each task."""
    stream = ClassIncremental(data, tasks, kind=kind, batch_size=7, seed=seed)
    labels, counts, start = stream.labels_in_order(), [], 0
    for steps in np.cumsum(stream.steps_per_task).tolist():
        stop = stream.images_after(steps)
        counts.append(Counter(labels[start:stop]))
        start = stop
    return counts


@settings(max_examples=40, deadline=None)
@given(cases())
def test_every_image_arrives_at_most_once(case: tuple[ImageSet, dict[str, Any]]) -> None:
    stream, data = stream_of(case), case[0]
    batches = list(stream)
    arrived = [i for batch in batches for i in indices(batch.images)]
    assert len(batches) == len(stream) == sum(stream.steps_per_task)
    assert len(arrived) == len(set(arrived)) == stream.num_images
    if not isinstance(stream.kind, LongTail):
        assert len(arrived) == len(data.train)
    flat = [label for batch in batches for label in batch.labels.tolist()]
    assert flat == stream.labels_in_order()
    assert stream.images_after(len(stream)) == len(arrived)


@settings(max_examples=40, deadline=None)
@given(cases())
def test_labels_are_the_same_in_training_and_test(case: tuple[ImageSet, dict[str, Any]]) -> None:
    stream, data = stream_of(case), case[0]
    assert [k for task in stream.task_classes for k in task] == list(range(len(data.classes)))
    splits = [stream.test(task) for task in range(stream.num_tasks)]
    for part in [*stream, *splits]:
        for old, new in zip(original_labels(part.images), part.labels.tolist(), strict=True):
            assert stream.classes[new] == data.classes[old]
    for task, split in enumerate(splits):
        assert set(split.labels.tolist()) == set(stream.task_classes[task])


@settings(max_examples=40, deadline=None)
@given(cases())
def test_tasks_are_announced_in_order_or_not_at_all(case: tuple[ImageSet, dict[str, Any]]) -> None:
    stream = stream_of(case)
    told = [batch.task for batch in stream]
    if stream.kind.announced and not case[1]["hide_boundaries"]:
        expected = [t for t, steps in enumerate(stream.steps_per_task) for _ in range(steps)]
        assert told == expected
    else:
        assert set(told) == {None}


@settings(max_examples=40, deadline=None)
@given(cases(), st.data())
def test_any_position_resumes_to_the_same_rest(
    case: tuple[ImageSet, dict[str, Any]], draw: st.DataObject
) -> None:
    stopped = stream_of(case)
    straight = seen(stream_of(case))
    position = draw.draw(st.integers(0, len(straight)))
    for _, _batch in zip(range(position), stopped, strict=False):
        pass
    resumed = stream_of(case)
    resumed.load_state_dict(json.loads(json.dumps(stopped.state_dict())))
    assert seen(resumed) == straight[position:]


@settings(max_examples=25, deadline=None)
@given(cases(), st.integers(0, 12))
def test_evaluations_are_at_equal_distances_and_after_tasks(
    case: tuple[ImageSet, dict[str, Any]], evaluations: int
) -> None:
    stream = stream_of(case)
    wishes = case[1] | {"tasks": stream.num_tasks, "batch_size": stream.batch_size}
    if evaluations > len(stream):
        with pytest.raises(UserError, match="too many for a stream of"):
            ClassIncremental(case[0], **wishes, evaluations=evaluations)
        return
    more = ClassIncremental(case[0], **wishes, evaluations=evaluations)
    ends = np.cumsum(more.steps_per_task).tolist()
    assert list(stream.evaluation_steps) == ends
    others = set(more.evaluation_steps) - set(ends)
    assert len(more.evaluation_steps) >= evaluations
    assert {(k + 1) * len(more) // evaluations for k in range(evaluations)} >= others
    assert more.evaluation_steps[-1] == len(more)


@OF_EACH_KIND
def test_the_seed_decides_and_nothing_else(name: str) -> None:
    kind = stream_kind(name)
    first, again, other = (
        seen(ClassIncremental(even(6, 20), 3, kind=kind, seed=seed)) for seed in (1, 1, 2)
    )
    assert first == again != other


@settings(max_examples=25, deadline=None)
@given(PERCENT, st.integers(2, 6), st.integers(0, 2**40))
def test_blurry_exchanges_a_share_of_each_task(blur: float, tasks: int, seed: int) -> None:
    counts = per_task(Blurry(blur), even(2 * tasks, 50), tasks, seed)
    moved = round(blur)  # of 100 images a task
    for task, arrived in enumerate(counts):
        own = arrived[2 * task] + arrived[2 * task + 1]
        assert own == 100 - moved
        foreign = arrived.total() - own
        assert abs(foreign - moved) <= tasks - 1
        for other in set(range(tasks)) - {task}:
            share = arrived[2 * other] + arrived[2 * other + 1]
            assert share in (moved // (tasks - 1), math.ceil(moved / (tasks - 1)))


@settings(max_examples=25, deadline=None)
@given(PERCENT, PERCENT, st.integers(0, 2**40))
def test_i_blurry_deals_a_share_of_some_classes_to_all_tasks(
    disjoint: float, blur: float, seed: int
) -> None:
    counts = per_task(IBlurry(disjoint, blur), even(10, 100), 5, seed)
    moved = round(blur)
    spread = 0
    for k in range(10):
        stayed = counts[k // 2][k]
        elsewhere = 100 - stayed
        assert elsewhere <= moved
        spread += elsewhere
    blurry = 10 - round(disjoint / 10)
    pooled = blurry * moved
    assert spread <= pooled
    sizes = [arrived.total() for arrived in counts]
    assert sum(sizes) == 1000
    whole = [[counts[t][k] for t in range(5)] for k in range(10)]
    assert sum(max(row) == 100 for row in whole) >= round(disjoint / 10)


def test_i_blurry_is_that_of_the_published_split() -> None:
    """i-Blurry-50-10 on CIFAR-10: each task has one disjoint and one blurry class."""
    counts = per_task(IBlurry(50, 10), even(10, 5000), 5, seed=3)
    disjoint = [k for k in range(10) if sum(k in arrived for arrived in counts) == 1]
    assert sorted(k // 2 for k in disjoint) == [0, 1, 2, 3, 4]
    for task, arrived in enumerate(counts):
        assert arrived.total() == 10000
        (blurry,) = {2 * task, 2 * task + 1} - {*disjoint}
        assert 4550 <= arrived[blurry] <= 4650
        others = [arrived[k] for k in range(10) if k not in (2 * task, 2 * task + 1)]
        assert all(60 <= count <= 140 for count in others if count)
        assert sum(count > 0 for count in others) == 4


@settings(max_examples=40, deadline=None)
@given(st.floats(2, 30), st.integers(2, 10), st.integers(0, 2**40))
def test_gaussian_classes_are_spread_around_their_peaks(
    deviation: float, classes: int, seed: int
) -> None:
    kind = Gaussian(deviation)
    labels = np.repeat(np.arange(classes), 2000)
    drawn = kind.arrivals(labels.tolist(), range(classes), random.Random(seed))
    times = np.array(drawn)
    for k in range(classes):
        own = times[labels == k]
        assert own.mean() == pytest.approx((k + 0.5) / classes, abs=0.2 * deviation / 100)
        assert own.std() == pytest.approx(deviation / 100, rel=0.2)
    data = image_set(labels.tolist()[::40], list(range(classes)), classes)
    stream = ClassIncremental(data, classes, kind=kind, batch_size=5, seed=seed)
    order = np.array(stream.labels_in_order())
    middles = [np.flatnonzero(order == k).mean() for k in range(classes)]
    assert middles[0] < middles[-1]


def test_gaussian_without_deviation_is_one_class_after_the_other() -> None:
    order = ClassIncremental(even(6, 20), 3, kind=Gaussian(0)).labels_in_order()
    assert order == sorted(order)


@settings(max_examples=25, deadline=None)
@given(
    st.floats(1, 500),
    st.sampled_from(["shuffled", "ordered"]),
    st.integers(2, 8),
    st.integers(0, 2**40),
)
def test_long_tail_sizes_fall_exponentially(
    imbalance: float, sizes: Any, classes: int, seed: int
) -> None:
    counts = per_task(LongTail(imbalance, sizes), even(classes, 100), classes, seed)
    found = [arrived[k] for k, arrived in enumerate(counts)]
    assert all(arrived.total() == found[k] for k, arrived in enumerate(counts)), "disjoint"
    expected = [max(1, round(100 * imbalance ** (-k / (classes - 1)))) for k in range(classes)]
    assert sorted(found, reverse=True) == expected
    if sizes == "ordered":
        assert found == expected


@settings(max_examples=25, deadline=None)
@given(PERCENT, st.integers(2, 6), st.integers(0, 2**40))
def test_repeating_classes_come_back_with_other_images(
    repetition: float, tasks: int, seed: int
) -> None:
    counts = per_task(Repeating(repetition), even(2 * tasks, 30), tasks, seed)
    for k in range(2 * tasks):
        there = [task for task in range(tasks) if counts[task][k]]
        assert there[0] == k // 2, "it is new in its own task"
        shares = [counts[task][k] for task in there]
        assert sum(shares) == 30
        assert max(shares) - min(shares) <= 1
        if repetition == 0:
            assert len(there) == 1
        if repetition == 100:
            assert there == list(range(k // 2, tasks))


def test_repeating_classes_come_back_as_often_as_the_chance_says() -> None:
    back = chances = 0
    for seed in range(40):
        counts = per_task(Repeating(30), even(10, 20), 5, seed)
        back += sum(counts[task][k] > 0 for k in range(10) for task in range(k // 2 + 1, 5))
        chances += 20
    assert back / chances == pytest.approx(0.3, abs=0.06)


def test_random_has_all_classes_in_equal_parts_everywhere() -> None:
    for arrived in per_task(Random(), even(4, 1000), 4):
        assert all(abs(arrived[k] - 250) < 60 for k in range(4))


@pytest.mark.parametrize(
    "kind", [Blurry(0), IBlurry(100, 10), IBlurry(0, 0), LongTail(1), Repeating(0)], ids=str
)
def test_kinds_without_their_setting_are_disjoint(kind: StreamKind) -> None:
    there, here = ClassIncremental(even(), 3, kind=kind), ClassIncremental(even(), 3)
    assert [labels for labels, *_ in seen(there)] == [labels for labels, *_ in seen(here)]


@pytest.mark.parametrize(
    ("name", "values", "sentence"),
    [
        (
            "blurry",
            {"blur": 101},
            "the blur of the stream blurry must be between 0 and 100, not 101",
        ),
        ("blurry", {"blur": float("nan")}, "must be between 0 and 100, not nan"),
        ("blurry", {"blur": "ten"}, "the blur of the stream blurry must be a number, not 'ten'"),
        ("i-blurry", {"disjoint_classes": -1}, "the disjoint classes of the stream i-blurry"),
        ("gaussian", {"deviation": -1}, "deviation"),
        ("long-tail", {"imbalance": 0.5}, "imbalance"),
        ("long-tail", {"sizes": "up"}, "'shuffled' or 'ordered', not 'up'"),
        ("repeating", {"repetition": 200}, "repetition"),
        ("blurry", {"blurr": 3}, "no setting of the stream blurry 'blurr'; did you mean 'blur'"),
        ("blury", {}, "no stream 'blury'; did you mean 'blurry'"),
    ],
)
def test_bad_settings_are_refused(name: str, values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        stream_kind(name, **values)


def test_whole_numbers_are_numbers() -> None:
    assert Blurry(30) == Blurry(30.0)
    assert type(Blurry(30).blur) is float


def test_a_kind_without_tasks_needs_as_many_steps() -> None:
    with pytest.raises(UserError, match="6 tasks are too many for a stream of 5 steps"):
        ClassIncremental(even(6, 7), 6, kind=Random(), batch_size=10)
    with pytest.raises(UserError, match="evaluations must be at least 0, not -1"):
        ClassIncremental(even(6, 7), 6, evaluations=-1)


@OF_EACH_KIND
def test_a_state_of_another_kind_is_refused(name: str) -> None:
    stream = ClassIncremental(even(6, 20), 3, kind=stream_kind(name))
    others = [stream_kind(other) for other in stream_kinds() if other != name]
    for other in others:
        state = ClassIncremental(even(6, 20), 3, kind=other).state_dict()
        with pytest.raises(ValueError, match=r"another stream: .*kind"):
            stream.load_state_dict(state)


@OF_EACH_KIND
def test_a_kind_describes_itself(name: str) -> None:
    kind = find_kind(name)
    assert kind.name == name
    assert kind.description
    assert not kind.announced or kind.has_tasks
    for field in fields(kind):
        assert field.default is not None


def test_a_kind_of_a_third_party(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_kinds", dict(registry._kinds))

    @register("backwards", "the last class first")
    @dataclass(frozen=True)
    class Backwards(StreamKind):
        def arrivals(
            self, labels: Sequence[int], task_of: Sequence[int], random: random.Random
        ) -> list[float]:
            return [task_of[-1] - task_of[label] for label in labels]

    stream = ClassIncremental(even(), 3, kind=stream_kind("backwards"))
    assert set(stream.labels_in_order()[:14]) == {4, 5}
    with pytest.raises(ValueError, match="already registered"):
        register("backwards", "another")(Blurry)
    with pytest.raises(ValueError, match="small letters"):
        register("Back wards", "another")

    @dataclass(frozen=True)
    class Memorised(Backwards):
        memory: int = 3

    with pytest.raises(ValueError, match="cannot have a setting 'memory'"):
        register("memorised", "another")(Memorised)

    @register("beyond", "too late")
    @dataclass(frozen=True)
    class Beyond(Backwards):
        def arrivals(
            self, labels: Sequence[int], task_of: Sequence[int], random: random.Random
        ) -> list[float]:
            return [task_of[label] + 1 for label in labels]

    with pytest.raises(UserError, match="the stream beyond has an image at the time 3: 3 tasks"):
        ClassIncremental(even(), 3, kind=Beyond())

    class Plain(Backwards):
        deviation: float = 3.0

    with pytest.raises(TypeError, match="Plain must be a dataclass"):
        register("plain", "another")(Plain)

    @dataclass(frozen=True)
    class Nothing(StreamKind):
        pass

    with pytest.raises(TypeError, match="Nothing does not define arrivals"):
        register("nothing", "another")(Nothing)  # type: ignore[type-abstract]


@dataclass(frozen=True)
class Clock(StreamKind):
    """Images arrive at the times of a clock."""

    name = "clock"
    has_tasks = announced = False
    times: tuple[float, ...] = ()

    def arrivals(
        self, labels: Sequence[int], task_of: Sequence[int], random: random.Random
    ) -> Sequence[float]:
        return self.times


def test_times_may_be_far_apart() -> None:
    near = tuple(float(5 * k % 18) for k in range(18))
    far = tuple(1e12 * time for time in near)
    orders = [
        list(ClassIncremental(even(6, 3), 3, batch_size=5, kind=Clock(times)).labels_in_order())
        for times in (near, far)
    ]
    assert orders[0] == orders[1]


def test_a_time_of_a_stream_without_tasks_is_not_infinite() -> None:
    with pytest.raises(UserError, match=r"NaN for one that never arrives, not infinity"):
        ClassIncremental(even(6, 3), 3, kind=Clock((0.0, math.inf) * 9))


@pytest.mark.parametrize(
    ("arrivals", "sentence"),
    [
        ([0.0], "must return a number for each of 18 images, not 1 number."),
        (["early"] * 18, "must return a number for each of 18 images: "),
        (None, "must return a number for each of 18 images: "),
        ([-1.0] * 18, "has an image at the time -1: 3 tasks take the times from 0 to below 3."),
        ([math.inf] * 18, "has an image at the time inf"),
    ],
)
def test_times_that_cannot_be_ones_are_a_sentence(arrivals: Any, sentence: str) -> None:
    @dataclass(frozen=True)
    class Odd(StreamKind):
        name = "odd"

        def arrivals(
            self, labels: Sequence[int], task_of: Sequence[int], random: random.Random
        ) -> Any:
            return arrivals

    with pytest.raises(UserError, match=re.escape(sentence)):
        ClassIncremental(even(6, 3), 3, kind=Odd())


def test_the_global_random_state_is_left_alone() -> None:
    before = random.getstate()
    for name in stream_kinds():
        ClassIncremental(even(6, 20), 3, kind=stream_kind(name))
    assert random.getstate() == before
