"""Losses that keep a network close to another: terms of iCaRL, OCM, PASS, HPCR and MKD."""

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, kl_div, normalize

from onpro.losses.contrastive import label_counts
from onpro.losses.precision import MASKED_LOGIT, float32


@float32
def known_logits_error(logits: Tensor, previous: Tensor, known: Tensor) -> Tensor:
    """OCM's L_mse, the mean of (o_ik − o′_ik)² over images i and known classes k.

    Args:
        logits: (n, classes) logits o; those of classes that the previous network lacks are ignored.
        previous: (n, previous classes) logits o′ of the previous network.
        known: (previous classes,) bool, which classes the previous network has learnt.

    Returns:
        The scalar loss, 0 if no class is known.
    """
    squares = (logits[:, : len(known)] - previous).square() * known
    return squares.sum() / (len(logits) * known.sum()).clamp(min=1)


@float32
def label_logits_error(logits: Tensor, stored: Tensor, labels: Tensor) -> Tensor:
    """HPCR's distance to stored logits, the mean of (o_ik − o′_ik)² over rows i and labels k.

    A class counts as often as it occurs among the labels.

    Args:
        logits: (n, classes) logits o.
        stored: (n, classes) stored logits o′.
        labels: (m,) labels of all images of the step.

    Returns:
        The scalar loss.
    """
    counts = label_counts(labels, logits.shape[1]).to(logits)
    return (logits - stored.to(logits)).square().mean(dim=0) @ counts / len(labels)


@float32
def relation_cross_entropy(features: Tensor, stored: Tensor, temperature: float) -> Tensor:
    """HPCR's distillation of relations, the mean over rows i of −Σ_{j≠i} p′_ij log p_ij.

    p and p′ are the softmax over j ≠ i of cosines between rows, over the temperature.

    Args:
        features: (n, dim) features, of p.
        stored: (n, dim) stored features of the same images, of p′.
        temperature: Temperature of both.

    Returns:
        The scalar loss.
    """
    itself = torch.eye(len(features), dtype=torch.bool, device=features.device)
    now, before = (
        (unit @ unit.T / temperature).masked_fill(itself, MASKED_LOGIT).log_softmax(dim=1)
        for unit in (normalize(features), normalize(stored.to(features)))
    )
    return -(before.exp() * now).sum(dim=1).mean()


@float32
def feature_distance(features: Tensor, old: Tensor) -> Tensor:
    """PASS's ‖f(x) − f_old(x)‖₂, the norm over all images and features, not averaged.

    Args:
        features: (n, dim) features f(x).
        old: (n, dim) features f_old(x) of the previous network.

    Returns:
        The scalar loss.
    """
    distance: Tensor = torch.linalg.vector_norm(features - old)
    return distance


@float32
def softened_divergence(logits: Tensor, taught: Tensor, temperature: float = 4.0) -> Tensor:
    """τ²·KL(softmax(o′/τ) ‖ softmax(o/τ)), mean over images: distillation of logits.

    Args:
        logits: (n, classes) logits o.
        taught: (n, classes) logits o′ of the teacher, which get no gradient.
        temperature: τ.

    Returns:
        The scalar loss.
    """
    targets = (taught.detach() / temperature).log_softmax(dim=1)
    own = (logits / temperature).log_softmax(dim=1)
    return temperature**2 * kl_div(own, targets, reduction="batchmean", log_target=True)


def binary_targets(
    labels: Tensor,
    rows: int,
    classes: int,
    previous: Tensor | None = None,
    known: Tensor | None = None,
) -> Tensor:
    """The target of each unit for each image.

    Old classes shall look as the previous network saw them, on every row; of the new classes, a
    new image has its own, a replayed one none. A new image of an old class, which occurs where
    nobody separates tasks, keeps its label too.

    Args:
        labels: (n,) labels of the new images, which are the first rows.
        rows: number of images, new and replayed.
        classes: number of units.
        previous: (rows, k) logits of the previous network, k ≤ classes; None in the first task.
        known: (k,) which of its units stand for old classes.

    Returns:
        (rows, classes), each between 0 and 1.
    """
    dtype = torch.float32 if previous is None else previous.dtype
    targets = torch.zeros(rows, classes, dtype=dtype, device=labels.device)
    if previous is not None and known is not None:
        targets[:, : len(known)] = previous.sigmoid() * known
    targets[: len(labels)].scatter_(1, labels[:, None], 1.0)
    return targets


def summed_binary_cross_entropy(
    logits: Tensor, targets: Tensor, *, units: Tensor, rows: Tensor
) -> Tensor:
    """Binary cross-entropy, summed over the units in use, mean over the rows that count.

    Args:
        logits: (n, classes).
        targets: (n, classes).
        units: (classes,) bool, those in use.
        rows: (n,) bool, those that count.
    """
    each = binary_cross_entropy_with_logits(logits, targets.to(logits.dtype), reduction="none")
    counted = rows[:, None] & units
    return each.masked_fill(~counted, 0.0).sum() / rows.sum()
