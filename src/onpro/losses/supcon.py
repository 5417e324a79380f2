"""Supervised contrastive loss."""

import torch
from torch import Tensor

from onpro.losses.precision import NEVER, float32


@float32
def supervised_contrast(similarity: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """For each of n anchors: −1/|P(i)| Σ_{p∈P(i)} (s_ip/τ − log Σ_{k≠i} exp(s_ik/τ)).

    P(i) are the other rows of the anchor's label. An anchor without any counts 0. The result has
    one entry for each anchor; take its mean, or its sum as OnPro's paper writes it.

    Args:
        similarity: (n, n), row i the similarities of anchor i to all rows.
        labels: (n,) a label for each row.
        temperature: τ.
    """
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    positives = (labels[:, None] == labels[None, :]) & ~itself
    logits = (similarity / temperature).masked_fill(itself, NEVER)
    log_probability = similarity / temperature - logits.logsumexp(dim=1, keepdim=True)
    count = positives.sum(dim=1)
    return -(log_probability * positives).sum(dim=1) / count.clamp(min=1)
