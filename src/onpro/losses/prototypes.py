"""Online prototypes and the contrast between them (online prototype equilibrium, OPE)."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from onpro.losses.precision import NEVER, float32


@float32
def class_means(vectors: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Online prototypes: the mean vector of each class of a batch (the paper's Eq. 2).

    Args:
        vectors: (n, d) unit projections.
        labels: (n,) labels below `classes`; a label outside 0…classes−1 belongs to no class.
        classes: number of rows of the result.

    Returns:
        (classes, d) means, not normalised, zero rows for absent classes; (classes,) counts.
    """
    member = (torch.arange(classes, device=labels.device)[:, None] == labels[None, :]).to(vectors)
    counts = member.sum(dim=1)
    return member @ vectors / counts.clamp(min=1)[:, None], counts


@float32
def prototype_contrast(
    first: Tensor, second: Tensor, labels: Tensor, classes: int, temperature: float
) -> tuple[Tensor, Tensor, Tensor]:
    """½[ℓ(P, P̂) + ℓ(P̂, P)]: InfoNCE between the prototypes of two views (Eq. 3 and 4).

    Over the 2K normalised prototypes of the K classes present, an anchor's positive is its own
    class in the other view and its denominator all other 2K−1 prototypes; mean over the anchors.
    One class gives 0, no class too.

    Args:
        first: (n, d) unit projections of the first view.
        second: (n, d) unit projections of the second view.
        labels: (n,) labels of the rows; rows whose label is not in 0…classes−1 are left out.
        classes: number of classes to form prototypes of.
        temperature: τ.

    Returns:
        The loss and the (classes, d) un-normalised class means of both views.
    """
    means_first, counts = class_means(first, labels, classes)
    means_second, _ = class_means(second, labels, classes)
    prototypes = normalize(torch.cat([means_first, means_second]))
    present = (counts > 0).repeat(2)

    logits = prototypes @ prototypes.T / temperature
    positive = logits.diagonal(classes).repeat(2)
    hidden = torch.eye(2 * classes, dtype=torch.bool, device=logits.device) | ~present[None, :]
    losses = logits.masked_fill(hidden, NEVER).logsumexp(dim=1) - positive
    loss = losses.masked_fill(~present, 0.0).sum() / present.sum().clamp(min=1)
    return loss, means_first, means_second
