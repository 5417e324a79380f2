"""Adaptive prototypical feedback: how often each pair is mixed, and from which images."""

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from onpro.memory import Memory
from onpro.methods.parts.apf import (
    Kernel,
    Mixture,
    PairRounding,
    exact_counts,
    mix_confused,
    mix_randomly,
    pair_probabilities,
    plain_counts,
    unmixed,
)
from tests.golden.values import Golden

KERNELS: tuple[Kernel, ...] = ("inverse", "gaussian")
ROUNDINGS: tuple[PairRounding, ...] = ("exact", "plain")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images_of(labels: Tensor) -> Tensor:
    """Images that say what they are: channel 0 is the class, channel 1 the position."""
    class_and_position = torch.stack([labels, torch.arange(len(labels)), labels], dim=1)
    return class_and_position.float()[:, :, None, None].expand(-1, -1, 2, 2).contiguous()


def stored(classes: Iterable[int], each: int = 5) -> Memory:
    """A memory with some images of each class."""
    labels = torch.tensor(sorted(classes)).repeat_interleave(each)
    memory = Memory(len(labels), (3, 2, 2), device="cpu", dtype=torch.float32)
    memory.write(torch.arange(len(labels)), images_of(labels), labels)
    memory.advance(len(labels))
    return memory


def spread(classes: int, present: Iterable[int], seed: int = 0) -> Tensor:
    """Prototypes (classes, 8) at different distances, zero rows for classes not present."""
    rows = torch.rand(classes, 8, generator=seeded(seed)) + 0.1
    kept = torch.zeros(classes, 1)
    kept[list(present)] = 1
    return rows * kept


def confused(
    memory: Memory,
    prototypes: Tensor,
    count: int,
    *,
    kernel: Kernel = "inverse",
    rounding: PairRounding = "exact",
    probability: float = 0.6,
    generator: torch.Generator | None = None,
) -> Mixture:
    return mix_confused(
        memory,
        torch.Tensor.float,
        prototypes,
        count,
        kernel=kernel,
        rounding=rounding,
        probability=probability,
        concentration=0.4,
        generator=generator or seeded(),
    )


def upper_triangle(classes: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(classes) for j in range(i + 1, classes)]


def pair_counts(mixture: Mixture, classes: int) -> Tensor:
    """How many images each pair of labels got, in the order of `upper_triangle`."""
    got = list(zip(mixture.first.tolist(), mixture.second.tolist(), strict=True))
    return torch.tensor([got.count(pair) for pair in upper_triangle(classes)])


# Probabilities of pairs


@pytest.mark.golden("onpro/apf_*")
def test_probabilities_of_the_official_code(golden: Golden) -> None:
    q = golden["onpro/apf_q"]
    present = q.any(dim=1).tolist()
    ours = pair_probabilities(q, "inverse")
    expected = iter(golden["onpro/apf_pair_probability"])
    for (i, j), value in zip(upper_triangle(len(q)), ours, strict=True):
        wanted = next(expected) if present[i] and present[j] else q.new_zeros(())
        torch.testing.assert_close(value, wanted, rtol=1e-4, atol=1e-9)
    assert next(expected, None) is None


@pytest.mark.parametrize("kernel", KERNELS)
def test_probabilities_by_hand(kernel: Kernel) -> None:
    q = spread(5, [0, 1, 3, 4])
    pairs = [(i, j) for i, j in upper_triangle(5) if 2 not in (i, j)]
    distance = torch.stack([(q[i] - q[j]).norm() for i, j in pairs])
    weight = (1 / distance).exp() if kernel == "inverse" else (-(distance**2)).exp()
    expected = dict(zip(pairs, (weight / weight.sum()).tolist(), strict=True))
    ours = pair_probabilities(q, kernel)
    for pair, value in zip(upper_triangle(5), ours.tolist(), strict=True):
        assert value == pytest.approx(expected.get(pair, 0.0), rel=1e-4)


@pytest.mark.parametrize("kernel", KERNELS)
def test_coincident_prototypes_are_the_most_confused_and_stay_finite(kernel: Kernel) -> None:
    q = spread(4, range(4))
    q[2] = q[1]
    probabilities = pair_probabilities(q, kernel)
    assert probabilities.isfinite().all()
    assert probabilities.sum().item() == pytest.approx(1.0)
    assert upper_triangle(4)[int(probabilities.argmax())] == (1, 2)
    q[:] = q[0]
    torch.testing.assert_close(pair_probabilities(q, kernel), torch.full((6,), 1 / 6))
    mixture = confused(stored(range(4)), q, 9, kernel=kernel)
    assert mixture.images.isfinite().all()
    assert len(mixture.first) == 9


@pytest.mark.parametrize("kernel", KERNELS)
def test_fewer_than_two_prototypes_make_no_pair(kernel: Kernel) -> None:
    for present in ([], [2]):
        assert not pair_probabilities(spread(5, present), kernel).any()


# From probabilities to numbers of images


@st.composite
def distributions(draw: st.DrawFn) -> Tensor:
    """Probabilities over pairs, some of them 0, from nearly equal to very peaked."""
    weights = draw(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=60))
    power = draw(st.sampled_from([0.0, 1.0, 8.0]))
    absent = draw(st.sets(st.integers(0, len(weights) - 1), max_size=len(weights) - 1))
    values = torch.tensor(weights).pow(power)
    values[list(absent)] = 0
    return values / values.sum()


@given(distributions(), st.integers(0, 80), st.integers(0, 1000))
@settings(max_examples=200, deadline=None)
def test_exact_counts(probabilities: Tensor, total: int, seed: int) -> None:
    counts = exact_counts(probabilities, total, seeded(seed))
    rounded = (probabilities * total).round()
    change = counts - rounded
    assert counts.sum() == total
    assert counts.min() >= 0
    assert change.abs().max() <= 1
    assert change.min() * change.max() >= 0  # only added, or only taken
    assert not counts[probabilities == 0].any()


def test_a_shortfall_goes_to_random_present_pairs() -> None:
    probabilities = torch.tensor([0.2, 0.2, 0.0, 0.2, 0.2, 0.2])
    generator = seeded()
    draws = torch.stack([exact_counts(probabilities, 2, generator) for _ in range(2000)])
    assert (draws.sum(dim=1) == 2).all()
    assert draws.max() == 1
    expected = torch.tensor([0.4, 0.4, 0.0, 0.4, 0.4, 0.4])
    torch.testing.assert_close(draws.float().mean(dim=0), expected, rtol=0, atol=0.05)


def test_an_excess_is_taken_from_random_pairs_that_have_any() -> None:
    probabilities = torch.tensor([0.3, 0.3, 0.3, 0.05, 0.05])  # of 5: 1.5, 1.5, 1.5 → 2, 2, 2
    generator = seeded()
    draws = torch.stack([exact_counts(probabilities, 5, generator) for _ in range(2000)])
    assert (draws.sum(dim=1) == 5).all()
    assert not draws[:, 3:].any()
    expected = torch.tensor([5 / 3, 5 / 3, 5 / 3])
    torch.testing.assert_close(draws[:, :3].float().mean(dim=0), expected, rtol=0, atol=0.05)


def test_exact_rounding_is_half_to_even_and_plain_rounding_half_up() -> None:
    halves = torch.tensor([0.25, 0.75])
    assert exact_counts(halves, 2, seeded()).tolist() == [0, 2]  # 0.5 → 0, 1.5 → 2
    assert plain_counts(halves, 2).tolist() == [1, 2]


def test_plain_rounding_gives_nothing_where_no_pair_stands_out() -> None:
    assert plain_counts(torch.full((45,), 1 / 45), 16).sum() == 0
    assert plain_counts(torch.full((15,), 1 / 15), 11).sum() == 15


# Random mixup


def treat(seed: int, probability: float = 0.6, count: int = 40) -> tuple[Mixture, Tensor]:
    labels = torch.arange(count) % 7
    mixture = mix_randomly(
        images_of(labels), labels, probability=probability, highest=0.6, generator=seeded(seed)
    )
    return mixture, labels


@pytest.mark.parametrize("probability", [0.6, 0.2])
def test_share_of_really_mixed_images_is_p_squared(probability: float) -> None:
    weights = [treat(seed, probability)[0].weight for seed in range(2000)]
    mixed = torch.stack(weights) > 0
    assert mixed.float().mean().item() == pytest.approx(probability**2, abs=0.02)
    treated = mixed.any(dim=1)
    assert treated.float().mean().item() == pytest.approx(probability, abs=0.03)
    of_treated = mixed[treated].float().mean().item()
    assert of_treated == pytest.approx(probability, abs=0.02)


def test_weights_of_random_mixup_are_uniform_up_to_the_highest() -> None:
    weights = torch.cat([treat(seed, probability=1.0)[0].weight for seed in range(500)])
    assert weights.min() >= 0
    assert weights.max() <= 0.6 + 1e-6
    assert weights.mean().item() == pytest.approx(0.3, abs=0.005)
    assert weights.var().item() == pytest.approx(0.6**2 / 12, abs=0.001)


def test_the_partner_is_one_order_of_the_batch_and_labels_say_which() -> None:
    mixture, labels = treat(0, probability=1.0)
    assert torch.equal(mixture.first, labels)
    assert torch.equal(mixture.second.sort().values, labels.sort().values)
    expected = (1 - mixture.weight) * labels + mixture.weight * mixture.second
    torch.testing.assert_close(mixture.images[:, 0, 0, 0], expected)
    positions = mixture.images[:, 1, 0, 0] - (1 - mixture.weight) * torch.arange(len(labels))
    partners = (positions / mixture.weight).round().long()
    assert torch.equal(partners.sort().values, torch.arange(len(labels)))


def test_an_untreated_batch_is_left_alone() -> None:
    mixture, labels = treat(0, probability=0.0)
    assert torch.equal(mixture.images, images_of(labels))
    assert torch.equal(mixture.first, labels)
    assert torch.equal(mixture.second, labels)
    assert not mixture.weight.any()


def test_random_mixup_of_nothing() -> None:
    mixture, _ = treat(0, count=0)
    assert mixture.images.shape == (0, 3, 2, 2)


def test_labels_stay_whole_where_nothing_is_mixed_and_match_nothing_where_something_is() -> None:
    mixture, labels = treat(3, probability=1.0)
    pure = unmixed(images_of(labels), labels)
    assert torch.equal(pure.labels, labels.float())
    across = mixture.first != mixture.second
    blends = mixture.labels[across & (mixture.weight > 0)]
    assert len(blends) > 10
    assert (blends != blends.round()).all()
    assert len(set(blends.tolist())) == len(blends)
    both = pure.then(mixture)
    assert torch.equal(both.labels, torch.cat([pure.labels, mixture.labels]))
    assert len(both.images) == 2 * len(labels)


# Mixing confused pairs


@pytest.mark.parametrize("kernel", KERNELS)
def test_pairs_are_mixed_as_often_as_they_are_confused(kernel: Kernel) -> None:
    q, memory = spread(6, [0, 1, 2, 4, 5]), stored(range(6))
    mixture = confused(memory, q, 400, kernel=kernel)
    share = pair_counts(mixture, 6) / 400
    torch.testing.assert_close(share, pair_probabilities(q, kernel), rtol=0, atol=1.5 / 400)
    assert len(mixture.first) == 400


@pytest.mark.parametrize("kernel", KERNELS)
def test_over_many_draws_a_pair_gets_its_rounded_share_and_an_equal_part_of_the_rest(
    kernel: Kernel,
) -> None:
    q, memory, count = spread(5, range(5)), stored(range(5)), 16
    generator = seeded()
    draws = [confused(memory, q, count, kernel=kernel, generator=generator) for _ in range(600)]
    mean = torch.stack([pair_counts(mixture, 5) for mixture in draws]).float().mean(dim=0)
    rounded = (pair_probabilities(q, kernel) * count).round()
    missing = count - rounded.sum()
    eligible = (rounded > 0) if missing < 0 else torch.ones_like(rounded, dtype=torch.bool)
    expected = rounded + missing * eligible / eligible.sum()
    torch.testing.assert_close(mean, expected, rtol=0, atol=0.08)


def test_images_come_from_the_classes_the_labels_name() -> None:
    q, memory = spread(6, [0, 1, 2, 4, 5]), stored(range(6), each=7)
    mixture = confused(memory, q, 200, probability=1.0)
    assert (mixture.first < mixture.second).all()
    assert 3 not in mixture.first.tolist() + mixture.second.tolist()
    torch.testing.assert_close(mixture.images[:, 0, 0, 0], mixture.labels)
    positions = mixture.images[:, 1, 0, 0]
    lowest = (1 - mixture.weight) * mixture.first * 7 + mixture.weight * mixture.second * 7
    assert (positions >= lowest - 1e-3).all()
    assert (positions <= lowest + 6 + 1e-3).all()


def test_images_are_drawn_evenly_from_the_whole_memory_with_replacement() -> None:
    memory = stored(range(2), each=4)
    mixture = confused(memory, spread(2, range(2)), 4000, probability=0.0)
    drawn = mixture.images[:, 1, 0, 0].long().bincount(minlength=8)
    assert not drawn[4:].any()
    torch.testing.assert_close(drawn[:4] / 4000, torch.full((4,), 0.25), rtol=0, atol=0.03)


def test_where_the_coin_fails_images_are_pure_and_of_the_lower_class() -> None:
    memory = stored(range(5))
    mixture = confused(memory, spread(5, range(5)), 60, probability=0.0)
    assert not mixture.weight.any()
    positions = mixture.images[:, 1, 0, 0].long()
    assert torch.equal(mixture.images, memory.images[positions])
    assert torch.equal(memory.labels[positions], mixture.first)
    assert (mixture.first < mixture.second).all()
    assert torch.equal(mixture.labels, mixture.first.float())


def test_one_coin_falls_for_each_pair() -> None:
    memory, q, generator = stored(range(3)), spread(3, range(3)), seeded()
    coins = []
    for _ in range(500):
        mixture = confused(memory, q, 30, probability=0.3, generator=generator)
        for i, j in upper_triangle(3):
            of_pair = mixture.weight[(mixture.first == i) & (mixture.second == j)]
            assert len(of_pair) > 1
            mixed = of_pair > 0
            assert mixed.all() or not mixed.any()
            coins.append(bool(mixed.all()))
    assert sum(coins) / len(coins) == pytest.approx(0.3, abs=0.04)
    triples = torch.tensor(coins).view(-1, 3).sum(dim=1)
    assert set(triples.tolist()) == {0, 1, 2, 3}  # the coins of different pairs are independent


def test_weights_of_a_mixed_pair_are_beta_distributed() -> None:
    mixture = confused(stored(range(3)), spread(3, range(3)), 20_000, probability=1.0)
    weights = mixture.weight
    assert weights.min() >= 0
    assert weights.max() <= 1
    assert weights.mean().item() == pytest.approx(0.5, abs=0.01)
    assert weights.var().item() == pytest.approx(1 / (4 * (2 * 0.4 + 1)), abs=0.003)
    assert len(set(weights.tolist())) > 15_000  # one draw for each image


def test_a_class_gone_from_the_memory_is_replaced_by_one_with_images_and_prototype() -> None:
    memory = stored([0, 2, 3, 4])  # nothing of class 1, and class 4 has no prototype
    q, generator = spread(5, [0, 1, 2, 3]), seeded()
    replaced: list[int] = []
    for _ in range(300):
        mixture = confused(memory, q, 60, probability=1.0, generator=generator)
        assert set(mixture.first.tolist() + mixture.second.tolist()) <= {0, 2, 3}
        torch.testing.assert_close(mixture.images[:, 0, 0, 0], mixture.labels)
        # Pairs stay in their order: (0,1) comes first, whatever stands for class 1 there.
        count = int(exact_counts(pair_probabilities(q, "inverse"), 60, seeded())[0]) - 1
        assert (mixture.first[:count] == 0).all()
        assert len(set(mixture.second[:count].tolist())) == 1  # one stand-in for the pair
        replaced.append(int(mixture.second[0]))
    share = torch.tensor(replaced).bincount(minlength=4) / 300
    torch.testing.assert_close(share, torch.tensor([1, 0, 1, 1]) / 3, rtol=0, atol=0.1)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("present", [[], [0], [1]])
@pytest.mark.parametrize("classes", [1, 2, 3, 6])
def test_without_a_pair_images_are_uniform_and_unmixed(
    classes: int, present: list[int], kernel: Kernel, rounding: PairRounding
) -> None:
    present = [k for k in present if k < classes]
    memory = stored(range(classes), each=3)
    for count in (1, 2, 7, 16):
        mixture = confused(
            memory, spread(classes, present), count, kernel=kernel, rounding=rounding
        )
        assert len(mixture.first) == len(mixture.images) == count
        assert torch.equal(mixture.first, mixture.second)
        assert not mixture.weight.any()
        assert torch.equal(mixture.images[:, 0, 0, 0], mixture.first.float())


def test_without_a_pair_every_stored_image_is_as_probable() -> None:
    memory = stored(range(4), each=2)
    mixture = confused(memory, spread(4, [1]), 8000)
    share = mixture.images[:, 1, 0, 0].long().bincount(minlength=8) / 8000
    torch.testing.assert_close(share, torch.full((8,), 1 / 8), rtol=0, atol=0.02)


def test_prototypes_of_which_nothing_is_stored_make_no_pair() -> None:
    mixture = confused(stored([2, 3]), spread(4, [0, 1]), 12, probability=1.0)
    assert len(mixture.first) == 12
    assert torch.equal(mixture.first, mixture.second)
    assert not mixture.weight.any()


@pytest.mark.parametrize(("classes", "count", "expected"), [(10, 16, 0), (6, 11, 15), (2, 5, 5)])
def test_plain_rounding_may_give_fewer_images_or_more(
    classes: int, count: int, expected: int
) -> None:
    equidistant = torch.eye(classes)
    memory = stored(range(classes))
    mixture = confused(memory, equidistant, count, kernel="gaussian", rounding="plain")
    assert len(mixture.first) == len(mixture.weight) == expected
    assert mixture.images.shape == (expected, 3, 2, 2)
    torch.testing.assert_close(mixture.images[:, 0, 0, 0], mixture.labels)


# The hot path


class NoWaiting(TorchDispatchMode):
    """Refuses every operation whose result the host would have to wait for."""

    WAITS = frozenset(
        {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "unique_dim"}
    )

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func.overloadpacket.__name__ not in self.WAITS, func
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_host_never_waits_for_a_value(kernel: Kernel) -> None:
    labels = torch.arange(12) % 4
    memory, q = stored(range(4)), spread(4, range(4))
    images, generator = images_of(labels), seeded()
    with NoWaiting():  # type: ignore[no-untyped-call]
        base = mix_randomly(images, labels, probability=0.6, highest=0.6, generator=generator)
        more = confused(memory, q, 9, kernel=kernel, generator=generator)
        both = base.then(more)
        assert len(both.labels) == 21
