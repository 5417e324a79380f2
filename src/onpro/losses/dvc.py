"""DVC's loss: both views right, their predictions varied over a batch and alike for an image."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot, softmax

from onpro.losses.precision import float32

SMALLEST = torch.finfo(torch.float64).eps
"""Below this a mean probability is not taken: its logarithm would be −∞."""


@float32
def view_cross_entropy(first: Tensor, second: Tensor, labels: Tensor) -> Tensor:
    """CE([a; a′], [y; y]), mean over both views.

    Args:
        first: (n, classes) logits a of the first view.
        second: (n, classes) logits a′ of the second.
        labels: (n,)
    """
    return cross_entropy(torch.cat([first, second]), labels.repeat(2))


@float32
def marginal_entropy_loss(first: Tensor, second: Tensor, joint: Tensor) -> Tensor:
    """L_ent = ⅓ Σ_R Σ_k r̄_k log r̄_k, R the softmax of each of the logits, r̄ its batch mean.

    The negative entropy of what the batch as a whole is taken for: it is least where all classes,
    unseen ones among them, are predicted alike often.

    Args:
        first: (n, classes) logits of the first view.
        second: (n, classes) logits of the second.
        joint: (n, classes) logits of the joint head.
    """
    means = torch.stack([softmax(logits, dim=1).mean(dim=0) for logits in (first, second, joint)])
    means = means.clamp(min=SMALLEST)
    return (means * means.log()).sum(dim=1).mean()


@float32
def agreement_loss(first: Tensor, second: Tensor, joint: Tensor) -> Tensor:
    """L₁: mean absolute difference between the joint probabilities and those of each view.

    Args:
        first: (n, classes) logits of the first view.
        second: (n, classes) logits of the second.
        joint: (n, classes) logits of the joint head.
    """
    views = softmax(torch.stack([first, second]), dim=2)
    return (softmax(joint, dim=1) - views).abs().mean()


@float32
def gradient_magnitude(logits: Tensor, features: Tensor, labels: Tensor) -> Tensor:
    """‖softmax(a) − onehot(y)‖₁·‖h‖₁: the L1 norm of the gradient of CE by the linear head, (n,).

    Args:
        logits: (n, classes)
        features: (n, width) what the linear head was given.
        labels: (n,)
    """
    error = softmax(logits, dim=1) - one_hot(labels, logits.shape[1])
    return error.abs().sum(dim=1) * features.abs().sum(dim=1)
