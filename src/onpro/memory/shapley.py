"""Shapley values of stored images for a nearest-neighbour classifier (ASER)."""

from dataclasses import dataclass

import torch
from torch import Tensor

FINE = 2**40
"""Gains, all at most 1, are summed in multiples of 1/FINE."""


@dataclass(frozen=True, eq=False)
class Points:
    """Labelled features, some of which may be padding."""

    features: Tensor
    """(n, width)"""
    labels: Tensor
    """(n,)"""
    exists: Tensor
    """(n,) bool, false for padding"""

    def __len__(self) -> int:
        return len(self.labels)


def knn_shapley_values(evaluated: Points, candidates: Points, neighbours: int) -> Tensor:
    """Compute the Shapley value of each candidate for the KNN vote at each evaluated point.

    With the n candidates sorted by distance, α₁ the nearest, and m_i whether the label of α_i is
    that of the point: v(α_n) = m_n/n, v(α_i) = v(α_{i+1}) + (m_i − m_{i+1})·min(K, i)/(K·i).
    Candidates at equal distances are sorted by index.

    Args:
        evaluated: e points to evaluate.
        candidates: n points, at least one.
        neighbours: K.

    Returns:
        (e, n), 0 if the point or the candidate is padding.
    """
    # Not as a matrix product, whose rounding changes the order of neighbours.
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
    """Return Σ_{j≥i} of each row (e, n), summed in integers.

    On a GPU the order of summation varies, and with it a sum of floats.
    """
    whole = (gain.double() * FINE).round().long()
    return (whole.flip(1).cumsum(dim=1).flip(1) / FINE).to(gain.dtype)


def adversarial_scores(
    candidates: Points, cooperative: Points, adversarial: Points, neighbours: int
) -> Tensor:
    """Return mean value at the cooperative points − mean value at the adversarial ones.

    Candidates that represent their class in the memory and lie close to new images of other classes
    have the highest scores.

    Returns:
        (n,), −∞ for candidates that are padding. The mean over no point is 0.
    """
    helpful, harmful = (
        knn_shapley_values(points, candidates, neighbours).sum(dim=0)
        / points.exists.sum().clamp(min=1)
        for points in (cooperative, adversarial)
    )
    return (helpful - harmful).masked_fill(~candidates.exists, -torch.inf)


def exchange(values: Tensor, exists: Tensor, slots: Tensor, nowhere: int) -> Tensor:
    """Choose the slots of new items that replace stored ones of lower value.

    Stored and new items are ranked together, stored ones first at equal values, and as many as were
    stored stay. The best new item that stays replaces the best stored item that does not, the
    second the second, and so on.

    Args:
        values: (stored + new,) values of the stored items, then of the new ones.
        exists: (stored,) bool, false for padding.
        slots: (stored,) slots of the stored items.
        nowhere: Slot of new items that do not stay.

    Returns:
        (new,) slots.
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
