"""CoPE's pseudo-prototypical proxy loss."""

import torch
from torch import Tensor

from onpro.losses.precision import float32


@float32
def pseudo_prototypical_loss(
    embeddings: Tensor, labels: Tensor, prototypes: Tensor, known: Tensor, temperature: float
) -> Tensor:
    """PPP: images are drawn to, and pushed off, prototypes and each other as pseudo-prototypes.

    For an image v, a class k and a (pseudo-)prototype w of that class
    π(v, w) = e^{v·w/T} / (e^{v·w/T} + Σ_{l≠k} e^{v·p_l/T}), l running over all known classes. With
    V_k the images of class k:

    - attract: −Σ_{i∈V_k} log( (1/|V_k|)·[ Σ_{j∈V_k, j≠i} π(v_i, v̄_j) + π(v_i, p_k) ] ), v̄ constant;
    - repel: −Σ_{i∉V_k} Σ_{j∈V_k} log( 1 − ½[ π(v_i, v_j) + π(v_i, p_k) ] ).

    Both are summed over the classes and divided by the number of images. Prototypes are constants.

    Args:
        embeddings: (n, dimension) unit vectors.
        labels: (n,); an image of label −1 takes no part; without any other the loss is 0.
        prototypes: (classes, dimension).
        known: (classes,) which prototypes there are, at least two.
        temperature: T, at least 0.02: e^{1/T} must be a number.
    """
    counts = labels >= 0
    classes = labels.clamp(min=0)
    constant, prototypes = embeddings.detach(), prototypes.detach()

    to_prototypes = (embeddings @ prototypes.T / temperature).exp()
    one = torch.eye(len(prototypes), dtype=embeddings.dtype, device=embeddings.device)
    # Sums of positive numbers: to subtract one class from the sum of all would lose all digits.
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
    # 1 − π = D/(e + D), which stays above 0 where π rounds to 1.
    distance = (others / (to_images + others) + others / (own + others)) / 2
    repel = -(distance.log() * (~same & together)).sum()
    return (attract + repel) / counts.sum().clamp(min=1)
