"""Losses on logits: variants of the cross-entropy, and the terms of DVC's loss."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot, softmax

from onpro.losses.precision import MASKED_LOGIT, float32
from onpro.losses.prototypes import NO_CLASS

MIN_PROBABILITY = torch.finfo(torch.float64).eps
"""Lower bound of mean probabilities in DVC's official code, so that their logarithm is finite."""


@float32
def mixup_cross_entropy(logits: Tensor, first: Tensor, second: Tensor, weight: Tensor) -> Tensor:
    """Mixup cross-entropy, L_CE = (1/n) Σ_i [ (1−λ_i)·CE(o_i, y¹_i) + λ_i·CE(o_i, y²_i) ].

    Args:
        logits: (n, classes) logits o.
        first: (n,) labels y¹, of weight 1−λ.
        second: (n,) labels y², of weight λ.
        weight: (n,) mixup weights λ.

    Returns:
        The scalar loss.
    """
    return mixup_losses(logits, first, second, weight).mean()


@float32
def mixup_losses(logits: Tensor, first: Tensor, second: Tensor, weight: Tensor) -> Tensor:
    """Mixup cross-entropy of each image, (n,), see `mixup_cross_entropy`; 0 of label `NO_CLASS`."""
    loss_first, loss_second = (
        cross_entropy(logits, labels, ignore_index=NO_CLASS, reduction="none")
        for labels in (first, second)
    )
    return (1 - weight) * loss_first + weight * loss_second


@float32
def masked_cross_entropy(
    logits: Tensor, labels: Tensor, competing: Tensor, weight: Tensor | None = None
) -> Tensor:
    """Cross-entropy in which only some outputs compete, (1/n) Σ_i −w_{y_i}·log p_{i,y_i}.

    ER-ACE lets new images compete with the classes of their batch alone; GSA weights classes.

    Args:
        logits: (n, outputs) logits.
        labels: (n,) labels, which must compete; rows labelled `NO_CLASS` do not count.
        competing: (outputs,) bool, the outputs that p is a softmax over.
        weight: (outputs,) weights w (default: 1).

    Returns:
        The scalar loss, 0 if no row counts.
    """
    masked = logits.masked_fill(~competing, MASKED_LOGIT)
    losses = cross_entropy(masked, labels, ignore_index=NO_CLASS, reduction="none")
    if weight is not None:
        losses = losses * weight.to(losses)[labels.clamp(min=0)]
    return losses.sum() / (labels != NO_CLASS).sum().clamp(min=1)


@float32
def view_cross_entropy(first: Tensor, second: Tensor, labels: Tensor) -> Tensor:
    """DVC's cross-entropy, CE([a; a′], [y; y]), averaged over both views.

    Args:
        first: (n, classes) logits a of the first view.
        second: (n, classes) logits a′ of the second view.
        labels: (n,) labels y.

    Returns:
        The scalar loss.
    """
    return cross_entropy(torch.cat([first, second]), labels.repeat(2))


@float32
def marginal_entropy_loss(first: Tensor, second: Tensor, joint: Tensor) -> Tensor:
    """DVC's entropy term, L_ent = ⅓ Σ_{R∈{P,P′,P_q}} Σ_k r̄_k log r̄_k.

    P, P′ and P_q are the softmax of each of the arguments, r̄ is the batch mean of R. The negative
    entropy of the mean prediction is least if all classes, unseen ones included, are predicted
    equally often.

    Args:
        first: (n, classes) logits of the first view.
        second: (n, classes) logits of the second view.
        joint: (n, classes) logits of the joint head.

    Returns:
        The scalar loss.
    """
    means = torch.stack([softmax(logits, dim=1).mean(dim=0) for logits in (first, second, joint)])
    means = means.clamp(min=MIN_PROBABILITY)
    return (means * means.log()).sum(dim=1).mean()


@float32
def agreement_loss(first: Tensor, second: Tensor, joint: Tensor) -> Tensor:
    """DVC's agreement term, L₁ = (1/2nC) Σ_{R∈{P,P′}} Σ_ik |P_q − R|_ik.

    P, P′ and P_q are the softmax of each of the arguments, C is the number of classes.

    Args:
        first: (n, classes) logits of the first view.
        second: (n, classes) logits of the second view.
        joint: (n, classes) logits of the joint head.

    Returns:
        The scalar loss.
    """
    views = softmax(torch.stack([first, second]), dim=2)
    return (softmax(joint, dim=1) - views).abs().mean()


@float32
def gradient_magnitude(logits: Tensor, features: Tensor, labels: Tensor) -> Tensor:
    """DVC's score of an image, G = ‖softmax(a) − onehot(y)‖₁·‖h‖₁.

    It is the L1 norm of the gradient of the cross-entropy by the weights of the linear head.

    Args:
        logits: (n, classes) logits a.
        features: (n, dim) input h of the linear head.
        labels: (n,) labels y.

    Returns:
        (n,) scores.
    """
    error = softmax(logits, dim=1) - one_hot(labels, logits.shape[1])
    return error.abs().sum(dim=1) * features.abs().sum(dim=1)
