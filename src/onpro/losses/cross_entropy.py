"""Cross-entropy of images that were mixed from two."""

from torch import Tensor
from torch.nn.functional import cross_entropy

from onpro.losses.precision import float32


@float32
def mixup_cross_entropy(logits: Tensor, first: Tensor, second: Tensor, weight: Tensor) -> Tensor:
    """Mean over images of (1−λ)·CE(y₁) + λ·CE(y₂), over all logits.

    Args:
        logits: (n, classes).
        first: (n,) labels of the images that count 1−λ.
        second: (n,) labels of the images that were mixed in and count λ.
        weight: (n,) the mixing weights λ.
    """
    loss_first = cross_entropy(logits, first, reduction="none")
    loss_second = cross_entropy(logits, second, reduction="none")
    return ((1 - weight) * loss_first + weight * loss_second).mean()
