"""GSS's update policy: which slots are offered to new images, and whether they are taken."""

import torch
from torch import Tensor

LEAST_WEIGHT = 1e-12
"""The least redundant slots can be drawn too, if there are too few others."""


def slot_weights(scores: Tensor) -> Tensor:
    """How readily each slot (m,) is offered: (score − min) / (max − min + 0.01)."""
    least, most = scores.aminmax()
    return (scores - least) / (most - least + 0.01)


def weighted_slots(weights: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Distinct slots (count,), drawn one after the other with probability ∝ weight.

    Each slot waits for an exponentially distributed time, shorter the higher its weight; the
    first ones are drawn.
    """
    waits = torch.empty_like(weights).exponential_(generator=generator)
    return (waits / weights.clamp(min=LEAST_WEIGHT)).topk(count, largest=False).indices


def replacement_probability(item_scores: Tensor, slot_scores: Tensor) -> Tensor:
    """r_s / (r_i + r_s), r = (score + 1)/2: high where the slot is redundant and the item not."""
    of_item, of_slot = (item_scores + 1) / 2, (slot_scores + 1) / 2
    return of_slot / (of_item + of_slot).clamp(min=1e-8)
