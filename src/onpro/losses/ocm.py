"""What OCM adds to the contrast between images: staying close to the previous network."""

from torch import Tensor

from onpro.losses.instances import Rows
from onpro.losses.precision import float32


@float32
def previous_instance_loss(similarity: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """L_prev = (1/B) Σ_i (1/|A_i|) Σ_{j∈A_i} ℓ_ij, the form of L_u on a single view.

    Row i holds the similarities of image i, seen by the network, to all images seen by the
    previous one. A_i are all images of its label, itself included.

    Args:
        similarity: (B, B).
        labels: (B,).
        temperature: τ′.
    """
    same = labels[:, None] == labels[None, :]
    return Rows.of(similarity, temperature).mean_loss(same).mean()


@float32
def known_logits_error(logits: Tensor, previous: Tensor, known: Tensor) -> Tensor:
    """L_mse: the mean squared difference of the logits of classes the previous network knew.

    Args:
        logits: (n, classes); those beyond the previous network's are left out.
        previous: (n, classes before).
        known: (classes before,) which of them count; none gives 0.
    """
    squares = (logits[:, : len(known)] - previous).square() * known
    return squares.sum() / (len(logits) * known.sum()).clamp(min=1)
