"""OnPro's instance losses: supervised contrast between images, in the official form.

Both take a (2B, 2B) similarity matrix of B images followed by their B second views, and share the
row loss ℓ_ij = −log( e_ij / (Σ_k e_ik + ε) + ε ) with e_ij = exp((S_ij − max_j S_ij)/τ′). The
literal ε is kept: it caps ℓ at −log ε = 18.42 and damps the gradient of hopeless positives.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from onpro.losses.precision import float32

EPSILON = 1e-8


@float32
def slice_similarity(projections: Tensor, features: Tensor, start: Tensor, scale: float) -> Tensor:
    """S_ij = λ_s · ( z_i · n_j[d : d+dim z] + z_i · z_j ).

    The projection of the anchor meets a random slice of the other image's feature as well as its
    projection, so S is not symmetric. The slice is not normalised again.

    Args:
        projections: (n, dim z) unit projections z.
        features: (n, dim n) unit features n.
        start: (1,) the first feature d of the slice.
        scale: λ_s.
    """
    columns = start + torch.arange(projections.shape[1], device=features.device)
    other = features.index_select(1, columns) + projections
    return (scale * projections) @ other.T


@float32
def new_instance_loss(similarity: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """L_n = (1/2B) Σ_i [ (2/|A_i|) Σ_{j∈A_i} ℓ_ij + ℓ_{i,π(i)} ] with e_ii = 0.

    A_i are all rows of the anchor's label, itself included: the constant ℓ_ii = 18.42 has no
    gradient but counts in |A_i|. π(i) is the anchor's other view.

    Args:
        similarity: (2B, 2B).
        labels: (B,) labels of one view.
        temperature: τ′.
    """
    itself = torch.eye(len(similarity), dtype=torch.bool, device=similarity.device)
    rows = Rows.of(similarity, temperature, excluded=itself)
    views = len(labels)
    pair = torch.cat([rows.logarithms.diagonal(views), rows.logarithms.diagonal(-views)])
    of_pair = rows.totals - pair
    return (2 * rows.mean_loss(_same_label(labels)) + of_pair).mean()


@float32
def replay_instance_loss(similarity: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """L_u = (1/2B) Σ_i (1/|A_i|) Σ_{j∈A_i} ℓ_ij, the anchor itself included everywhere.

    Args:
        similarity: (2B, 2B).
        labels: (B,) labels of one view; a mixed image's is a fraction and equals only its own.
        temperature: τ′.
    """
    return Rows.of(similarity, temperature).mean_loss(_same_label(labels)).mean()


class Rows(NamedTuple):
    """The row losses ℓ_ij = log(Z_i) − log(e_ij + ε·Z_i) with Z_i = Σ_k e_ik + ε.

    That is the ℓ of above. Its two parts are kept apart, because the matrix has millions of
    entries and takes most of the time: each pass over it that can be saved counts.
    """

    totals: Tensor
    """(n,): log(Z_i)."""
    logarithms: Tensor
    """(n, m): log(e_ij + ε·Z_i)."""

    @classmethod
    def of(cls, similarity: Tensor, temperature: float, excluded: Tensor | None = None) -> "Rows":
        """From similarities (n, m); where excluded holds, e_ij is 0."""
        highest = similarity.detach().amax(dim=1, keepdim=True)
        weights = ((similarity - highest) / temperature).exp()
        if excluded is not None:
            weights = weights.masked_fill(excluded, 0.0)
        total = weights.sum(dim=1, keepdim=True) + EPSILON
        return cls(total.log().squeeze(1), (weights + EPSILON * total).log())

    def mean_loss(self, same: Tensor) -> Tensor:
        """(n,): the mean of ℓ_ij over the positives of each row, where `same` (n, m) holds."""
        positive = same.to(self.logarithms.dtype)
        sums: Tensor = torch.linalg.vecdot(self.logarithms, positive)
        return self.totals - sums / positive.sum(dim=1)


def _same_label(labels: Tensor) -> Tensor:
    both = torch.cat([labels, labels])
    return both[:, None] == both[None, :]
