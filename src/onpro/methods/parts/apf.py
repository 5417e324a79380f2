"""Adaptive prototypical feedback (APF): confused classes are replayed more, as mixtures.

The distances between the prototypes of the last replay batch say which pairs of classes are
confused. Part of the next replay batch is mixed from such pairs, the rest is sampled uniformly.
Everything runs on the device without loops over pairs or classes, and without host–device sync
unless rounding is plain.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pdist

from onpro.augment import mix
from onpro.losses import MASKED_LOGIT
from onpro.memory import Memory, retrieval
from onpro.randomness import beta

Kernel = Literal["inverse", "gaussian"]
PairRounding = Literal["exact", "plain"]

CLOSEST = 1e-6
"""Two prototypes are never taken to be closer than this: 1/d must stay finite."""


class Mixture(NamedTuple):
    """Images (1−λ)·x₁ + λ·x₂ with both labels and λ."""

    images: Tensor
    first: Tensor
    second: Tensor
    weight: Tensor

    @property
    def labels(self) -> Tensor:
        """(1−λ)·y₁ + λ·y₂: a number that equals a class only where nothing was mixed."""
        return (1 - self.weight) * self.first + self.weight * self.second

    def then(self, others: "Mixture") -> "Mixture":
        """These images, followed by others."""
        return Mixture(*(torch.cat(parts) for parts in zip(self, others, strict=True)))

    def rows(self, rows: slice) -> "Mixture":
        """Some of these images."""
        return Mixture(*(part[rows] for part in self))


def unmixed(images: Tensor, labels: Tensor) -> Mixture:
    """Images as they are, λ = 0."""
    weight = torch.zeros(len(labels), device=labels.device)
    return Mixture(images, labels, labels, weight)


def mix_randomly(
    images: Tensor,
    labels: Tensor,
    *,
    probability: float,
    highest: float,
    generator: torch.Generator,
) -> Mixture:
    """Mix a batch with a random order of itself.

    With `probability` p the batch is treated at all; then each image is mixed with probability p,
    λ ~ U(0, highest). So an image is really mixed with probability p².

    Args:
        images: (n, 3, height, width).
        labels: (n,).
        probability: p.
        highest: upper end of λ.
        generator: source of the randomness, on the images' device.
    """
    n, device = len(labels), labels.device
    order = torch.randperm(n, generator=generator, device=device)
    treated = torch.rand(1, generator=generator, device=device) < probability
    chosen = torch.rand(n, generator=generator, device=device) < probability
    drawn = highest * torch.rand(n, generator=generator, device=device)
    weight = drawn * (treated & chosen)
    second = torch.where(treated, labels[order], labels)
    return Mixture(mix(images, images[order], weight), labels, second, weight)


def pair_probabilities(prototypes: Tensor, kernel: Kernel) -> Tensor:
    """How much each pair of classes is confused.

    softmax(1/d) with the official kernel "inverse", P ∝ exp(−d²) with the paper's "gaussian", over
    the unordered pairs of classes that have a prototype, d the distance of their prototypes.

    Args:
        prototypes: (classes, dimension), zero rows for classes without one.
        kernel: how a distance becomes a weight.

    Returns:
        (classes·(classes−1)/2,) in the order (0,1), (0,2), …, (1,2), …; 0 where a class is absent.
    """
    present = prototypes.any(dim=1)
    first, second = _pairs(prototypes)
    distance = pdist(prototypes).clamp(min=CLOSEST)
    weight = 1 / distance if kernel == "inverse" else -distance.square()
    possible = present[first] & present[second]
    return weight.masked_fill(~possible, MASKED_LOGIT).softmax(dim=0) * possible


def exact_counts(probabilities: Tensor, total: int, generator: torch.Generator) -> Tensor:
    """Round P·total to integers that sum to `total`.

    Rounding is half to even. A shortfall is made good by 1 each on random pairs, an excess taken
    by 1 each from random pairs that have any.
    """
    counts = (probabilities * total).round()
    missing = total - counts.sum()
    eligible = torch.where(missing > 0, probabilities > 0, counts > 0)
    keys = torch.rand(len(counts), generator=generator, device=counts.device)
    order = keys.masked_fill(~eligible, -1.0).argsort(descending=True)
    touched = torch.arange(len(counts), device=counts.device) < missing.abs()
    return counts.index_add(0, order, touched * missing.sign()).long()


def plain_counts(probabilities: Tensor, total: int) -> Tensor:
    """The paper's ⌊P·total + 0.5⌋, whatever it sums to: none at all where no pair stands out."""
    return (probabilities * total + 0.5).floor().long()


def mix_confused(
    memory: Memory,
    normalise: Callable[[Tensor], Tensor],
    prototypes: Tensor,
    count: int,
    *,
    kernel: Kernel,
    rounding: PairRounding,
    probability: float,
    concentration: float,
    generator: torch.Generator,
) -> Mixture:
    """Mix `count` images of confused pairs of classes, drawn from the whole memory.

    For a pair (i, j), i < j, that gets n images: n images of class i and n of class j are drawn
    with replacement, one coin falls for the pair, and with `probability` λ ~ Beta(c, c) for each
    image; otherwise λ = 0, which leaves pure images of the lower-numbered class. A class whose
    images are all gone from the memory is replaced by a random class that has some. Where fewer
    than two classes have a prototype, `count` random images are taken as they are.

    Args:
        memory: where the images come from.
        normalise: converts stored images to network input.
        prototypes: (classes, dimension) of the previous step, zero rows for absent classes.
        count: number of images; with rounding "plain" the result may hold more or fewer.
        kernel: see `pair_probabilities`.
        rounding: "exact" for `exact_counts`, "plain" for `plain_counts` (which must know its
            total on the host, and so waits for the device).
        probability: of a pair's coin.
        concentration: c.
        generator: source of the randomness, on the memory's device.
    """
    if len(prototypes) < 2:
        alone_images = memory.take(_anywhere(memory, count, generator))
        return unmixed(normalise(alone_images.images), alone_images.labels)
    stored = retrieval.class_counts(memory, len(prototypes)) > 0
    present = prototypes.any(dim=1)
    usable = stored & present
    alone = (present.sum() < 2) | ~usable.any()
    probabilities = pair_probabilities(prototypes, kernel)
    if rounding == "exact":
        counts = exact_counts(probabilities, count, generator)
    else:
        counts = plain_counts(probabilities, count)
        count = int(torch.where(alone, count, counts.sum()))
    pair = _expand(counts, count)
    leader = torch.searchsorted(pair, pair)  # the first image of each image's pair decides for it

    def one_per_pair() -> Tensor:
        return torch.rand(count, generator=generator, device=pair.device)[leader]

    def slots_of(classes: Tensor) -> Tensor:
        substitute = _random_member(usable, one_per_pair())
        kept = torch.where(stored[classes], classes, substitute)
        return retrieval.of_classes(memory, kept, generator)

    first, second = _pairs(prototypes)
    slots_first, slots_second = slots_of(first[pair]), slots_of(second[pair])
    treated = one_per_pair() < probability
    weight = beta(concentration, count, generator) * treated

    anywhere = _anywhere(memory, count, generator)
    slots_first = torch.where(alone, anywhere, slots_first)
    slots_second = torch.where(alone, anywhere, slots_second)
    weight = weight.masked_fill(alone, 0.0)

    a, b = memory.take(slots_first), memory.take(slots_second)
    images = mix(normalise(a.images), normalise(b.images), weight)
    return Mixture(images, a.labels, b.labels, weight)


def _anywhere(memory: Memory, count: int, generator: torch.Generator) -> Tensor:
    uniform = torch.rand(count, generator=generator, device=generator.device)
    return (uniform * memory.filled).long()


def _pairs(prototypes: Tensor) -> Tensor:
    classes = len(prototypes)
    return torch.triu_indices(classes, classes, offset=1, device=prototypes.device)


def _expand(counts: Tensor, total: int) -> Tensor:
    """The position of each of `total` items whose numbers at the positions are `counts`.

    Where the counts sum to less, which they do only if there is no pair at all, the rest gets the
    last position: the result is always sorted.
    """
    ends = counts.cumsum(dim=0)
    items = torch.arange(total, device=counts.device)
    return torch.searchsorted(ends, items, right=True).clamp(max=len(counts) - 1)


def _random_member(members: Tensor, uniform: Tensor) -> Tensor:
    """For each number in 0…1 a position where `members` holds, each equally likely."""
    ends = members.cumsum(dim=0)
    wanted = (uniform * ends[-1]).long()
    return torch.searchsorted(ends, wanted, right=True).clamp(max=len(members) - 1)
