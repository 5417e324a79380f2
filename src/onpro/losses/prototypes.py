"""Losses with prototypes: OnPro's online prototype equilibrium (OPE) and CoPE's PPP."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from onpro.losses.precision import MASKED_LOGIT, float32

NO_CLASS = -1
"""Label of an image that belongs to no class."""


@float32
def class_means(vectors: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Online prototypes, p_k = (1/n_k) Σ_{i: y_i=k} z_i (the paper's Eq. 2).

    Args:
        vectors: (n, dim) unit projections z.
        labels: (n,) labels y; rows with a label outside 0…classes−1 are ignored.
        classes: Number of classes.

    Returns:
        (classes, dim) means p, not normalised, 0 for absent classes, and (classes,) counts n_k.
    """
    member = (torch.arange(classes, device=labels.device)[:, None] == labels[None, :]).to(vectors)
    counts = member.sum(dim=1)
    return member @ vectors / counts.clamp(min=1)[:, None], counts


@float32
def prototype_contrast(
    first: Tensor, second: Tensor, labels: Tensor, classes: int, temperature: float
) -> tuple[Tensor, Tensor, Tensor]:
    """L_OPE = ½[ℓ(P, P̂) + ℓ(P̂, P)]: InfoNCE between the prototypes of two views (Eq. 3 and 4).

    The anchors are the 2K normalised prototypes of the K classes present. An anchor's positive is
    its class in the other view, its denominator has all other 2K−1 prototypes; the loss is the mean
    over the anchors. It is 0 if fewer than two classes are present.

    Args:
        first: (n, dim) unit projections of the first view.
        second: (n, dim) unit projections of the second view.
        labels: (n,) labels; rows with a label outside 0…classes−1 are ignored.
        classes: Number of classes.
        temperature: τ.

    Returns:
        The scalar loss, and the (classes, dim) prototypes of both views, not normalised.
    """
    means_first, counts = class_means(first, labels, classes)
    means_second, _ = class_means(second, labels, classes)
    prototypes = normalize(torch.cat([means_first, means_second]))
    present = (counts > 0).repeat(2)

    logits = prototypes @ prototypes.T / temperature
    positive = logits.diagonal(classes).repeat(2)
    masked = torch.eye(2 * classes, dtype=torch.bool, device=logits.device) | ~present[None, :]
    losses = logits.masked_fill(masked, MASKED_LOGIT).logsumexp(dim=1) - positive
    loss = losses.masked_fill(~present, 0.0).sum() / present.sum().clamp(min=1)
    return loss, means_first, means_second


@float32
def pseudo_prototypical_loss(
    embeddings: Tensor, labels: Tensor, prototypes: Tensor, known: Tensor, temperature: float
) -> Tensor:
    """CoPE's pseudo-prototypical proxy loss (PPP), in which images serve as prototypes too.

    For an image v, a class k and a (pseudo-)prototype w of that class
    π(v, w) = e^{v·w/T} / (e^{v·w/T} + Σ_{l≠k} e^{v·p_l/T}), where l runs over all known classes.
    With V_k the images of class k:

    - attract: −Σ_{i∈V_k} log( (1/|V_k|)·[ Σ_{j∈V_k, j≠i} π(v_i, v̄_j) + π(v_i, p_k) ] ), v̄ detached;
    - repel: −Σ_{i∉V_k} Σ_{j∈V_k} log( 1 − ½[ π(v_i, v_j) + π(v_i, p_k) ] ).

    The loss is their sum over the classes, divided by the number of images. Prototypes are
    constants.

    Args:
        embeddings: (n, dim) unit embeddings v.
        labels: (n,) labels; images with label −1 are ignored.
        prototypes: (classes, dim) prototypes p.
        known: (classes,) bool, which classes have a prototype, at least two.
        temperature: T, at least 0.02, below which e^{1/T} overflows.

    Returns:
        The scalar loss, 0 if all images are ignored.
    """
    counts = labels >= 0
    classes = labels.clamp(min=0)
    constant, prototypes = embeddings.detach(), prototypes.detach()

    to_prototypes = (embeddings @ prototypes.T / temperature).exp()
    one = torch.eye(len(prototypes), dtype=embeddings.dtype, device=embeddings.device)
    # Sum the other classes; subtracting one class from the sum of all cancels catastrophically.
    to_other_prototypes = (to_prototypes * known) @ (1 - one)
    own, others = to_prototypes[:, classes], to_other_prototypes[:, classes]

    same = classes[:, None] == classes[None, :]
    together = counts[:, None] & counts[None, :]
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)

    to_constants = (embeddings @ constant.T / temperature).exp()
    attraction = to_constants / (to_constants + others)
    attracted = (attraction * (same & together & ~itself)).sum(dim=1)
    attracted = attracted + (own / (own + others)).diagonal()
    share = attracted / (same & together).sum(dim=1).clamp(min=1)
    attract = -(share.log() * counts).sum()

    to_images = (embeddings @ embeddings.T / temperature).exp()
    # 1 − π = D/(e + D), which stays positive where π rounds to 1.
    distance = (others / (to_images + others) + others / (own + others)) / 2
    repel = -(distance.log() * (~same & together)).sum()
    return (attract + repel) / counts.sum().clamp(min=1)


@float32
def spread(features: Tensor, labels: Tensor, means: Tensor, counts: Tensor) -> Tensor:
    """The root of the mean over classes of trace(cov_k)/width, cov_k with divisor n_k − 1.

    Args:
        features: (n, width)
        labels: (n,)
        means: (classes, width) of each class.
        counts: (classes,) number of its features; a class of one feature counts 0.
    """
    squares = (features - means[labels]).square().mean(dim=1, keepdim=True)
    biased, _ = class_means(squares, labels, len(means))
    variance = biased[:, 0] * counts / (counts - 1).clamp(min=1)
    return (variance.sum() / (counts > 0).sum().clamp(min=1)).sqrt()
