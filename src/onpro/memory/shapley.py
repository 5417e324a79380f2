"""Shapley values of images for a nearest-neighbour classifier: how much each of them helps."""

from dataclasses import dataclass

import torch
from torch import Tensor

FINE = 2**40
"""Gains, of which none is above 1, are added up in multiples of 1/FINE."""


@dataclass(frozen=True, eq=False)
class Points:
    """Labelled features, some of which may only stand in for images that do not exist."""

    features: Tensor
    """(n, width)"""
    labels: Tensor
    """(n,)"""
    exists: Tensor
    """(n,) bool"""

    def __len__(self) -> int:
        return len(self.labels)


def knn_shapley_values(evaluated: Points, candidates: Points, neighbours: int) -> Tensor:
    """What each candidate adds to the K-nearest-neighbour vote at each evaluated point.

    With the n candidates sorted by distance, α₁ the nearest, and m_i whether the label of α_i is
    that of the point: v(α_n) = m_n/n, v(α_i) = v(α_{i+1}) + (m_i − m_{i+1})·min(K, i)/(K·i). At
    equal distances the order given counts.

    Args:
        evaluated: e points.
        candidates: n points, at least one.
        neighbours: K.

    Returns:
        (e, n), 0 where the point or the candidate does not exist.
    """
    # Without the shortcut over a matrix product, whose rounding changes the order of neighbours.
    distance = torch.cdist(
        evaluated.features, candidates.features, compute_mode="donot_use_mm_for_euclid_dist"
    )
    order = distance.masked_fill(~candidates.exists, torch.inf).argsort(dim=1, stable=True)

    existing = candidates.exists.sum()
    rank = torch.arange(1, len(candidates) + 1, device=distance.device)
    match = candidates.labels[order] == evaluated.labels[:, None]
    match = (match & (rank <= existing) & evaluated.exists[:, None]).to(distance.dtype)
    following = torch.cat([match[:, 1:], torch.zeros_like(match[:, :1])], dim=1)
    weight = rank.clamp(max=neighbours) / (neighbours * rank)
    gain = torch.where(rank == existing, match / rank, (match - following) * weight)
    values = _sums_from_the_end(gain)
    return torch.zeros_like(values).scatter(1, order, values)


def _sums_from_the_end(gain: Tensor) -> Tensor:
    """Σ_{j≥i} of each row, (e, n), in whole numbers: their sum does not depend on its order.

    A GPU adds up floats in whatever order its threads get to them.
    """
    whole = (gain.double() * FINE).round().long()
    return (whole.flip(1).cumsum(dim=1).flip(1) / FINE).to(gain.dtype)


def adversarial_scores(
    candidates: Points, cooperative: Points, adversarial: Points, neighbours: int
) -> Tensor:
    """Mean value at the cooperative points − mean value at the adversarial ones.

    The highest belong to candidates that stand for their class in the memory and lie among new
    images of other classes.

    Returns:
        (n,), −∞ for candidates that do not exist; no point at all counts 0.
    """
    helpful, harmful = (
        knn_shapley_values(points, candidates, neighbours).sum(dim=0)
        / points.exists.sum().clamp(min=1)
        for points in (cooperative, adversarial)
    )
    return (helpful - harmful).masked_fill(~candidates.exists, -torch.inf)


def exchange(values: Tensor, exists: Tensor, slots: Tensor, nowhere: int) -> Tensor:
    """Which new items take whose place, where only as many may stay as were stored.

    Stored and new items are ranked by their value together, stored first at equal values, and the
    best stay. The best new item that stays takes the slot of the best stored item that goes, the
    second that of the second, and so on.

    Args:
        values: (stored + new,) of the stored items, then of the new ones.
        exists: (stored,) which of the stored items exist.
        slots: (stored,) where the stored items are.
        nowhere: What stands for no slot.

    Returns:
        (new,) the slot of each new item, `nowhere` for those that go.
    """
    stored, new = len(slots), len(values) - len(slots)
    everything = torch.arange(len(values), device=values.device)
    ranked = torch.cat([values[:stored].masked_fill(~exists, -torch.inf), values[stored:]])
    rank = torch.empty_like(everything)
    rank.scatter_(0, ranked.argsort(descending=True, stable=True), everything)
    stays = rank < exists.sum()
    goes, comes = ~stays[:stored] & exists, stays[stored:]

    last = len(values)
    going = slots[rank[:stored].masked_fill(~goes, last).argsort(stable=True)]
    places = torch.cat([going, going.new_full((new,), nowhere)])[:new]
    places = places.masked_fill(everything[:new] >= comes.sum(), nowhere)
    coming = rank[stored:].masked_fill(~comes, last).argsort(stable=True)
    return torch.empty_like(places).scatter_(0, coming, places)
