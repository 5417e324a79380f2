"""Contrastive losses: SupCon, PCR's contrast with proxies, the instance losses of OnPro and OCM.

The instance losses follow the official code. They take a matrix S of similarities and share the
row loss ℓ_ij = −log( e_ij / (Σ_k e_ik + ε) + ε ) with e_ij = exp((S_ij − max_j S_ij)/τ′). The ε
matters: it caps ℓ at −log ε = 18.42 and damps the gradient of positives that are far away.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from onpro.losses.precision import MASKED_LOGIT, float32
from onpro.losses.row_blocks import EPSILON, row_loss


@float32
def supervised_contrast(similarity: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """Supervised contrastive loss, L_i = −1/|P(i)| Σ_{p∈P(i)} ( s_ip/τ − log Σ_{k≠i} exp(s_ik/τ) ).

    P(i) are the other rows with the label of anchor i. The loss of an anchor without any is 0.

    Args:
        similarity: (n, n) similarities s; row i belongs to anchor i.
        labels: (n,) labels.
        temperature: τ.

    Returns:
        (n,) losses of the anchors. SCR takes their mean, OnPro's paper their sum.
    """
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    positives = (labels[:, None] == labels[None, :]) & ~itself
    logits = (similarity / temperature).masked_fill(itself, MASKED_LOGIT)
    log_probability = similarity / temperature - logits.logsumexp(dim=1, keepdim=True)
    count = positives.sum(dim=1)
    return -(log_probability * positives).sum(dim=1) / count.clamp(min=1)


@float32
def proxy_contrast(logits: Tensor, labels: Tensor) -> Tensor:
    """PCR's loss, the mean over images i of −s_{i,y_i} + log Σ_k n_k·exp(s_ik).

    n_k is the number of images of class k: each image brings the proxy of its class.

    Args:
        logits: (n, classes) similarities s between images and proxies, over the temperature.
        labels: (n,) labels y.

    Returns:
        The scalar loss.
    """
    counts = label_counts(labels, logits.shape[1])
    totals = (logits + counts.to(logits).log()).logsumexp(dim=1)
    return (totals - logits.gather(1, labels[:, None])[:, 0]).mean()


def label_counts(labels: Tensor, classes: int) -> Tensor:
    """Count labels (n,), negative ones excluded: (classes,), without a host–device sync."""
    return (labels[:, None] == torch.arange(classes, device=labels.device)).sum(dim=0)


@float32
def slice_similarity(projections: Tensor, features: Tensor, start: Tensor, scale: float) -> Tensor:
    """Similarity of the instance losses, S_ij = λ_s·( z_i · n_j[d : d+dim z] + z_i · z_j ).

    S is not symmetric: it compares the anchor's projection with a random slice of the other image's
    feature as well as with its projection. The slice is not normalised again.

    Args:
        projections: (n, dim z) unit projections z.
        features: (n, dim n) unit features n.
        start: (1,) first index d of the slice.
        scale: λ_s.

    Returns:
        (n, n) similarities S.
    """
    columns = start + torch.arange(projections.shape[1], device=features.device)
    other = features.index_select(1, columns) + projections
    return (scale * projections) @ other.T


@float32
def new_instance_loss(similarity: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """L_n = (1/2B) Σ_i [ (2/|A_i|) Σ_{j∈A_i} ℓ_ij + ℓ_{i,π(i)} ] with e_ii = 0.

    A_i are all rows with the anchor's label, itself included: the constant ℓ_ii = 18.42 has no
    gradient but counts in |A_i|. π(i) is the anchor's other view.

    Args:
        similarity: (2B, 2B) similarities S of B images followed by their second views.
        labels: (B,) labels of the images.
        temperature: τ′.

    Returns:
        The scalar loss.
    """
    if similarity.device.type == "cpu":
        return row_loss(similarity, labels.repeat(2), temperature, new=True)
    itself = torch.eye(len(similarity), dtype=torch.bool, device=similarity.device)
    rows = RowLosses.of(similarity, temperature, excluded=itself)
    views = len(labels)
    pair = torch.cat([rows.log_shares.diagonal(views), rows.log_shares.diagonal(-views)])
    pair_loss = rows.log_totals - pair
    return (2 * rows.mean_loss(_same_label(labels.repeat(2))) + pair_loss).mean()


@float32
def replay_instance_loss(similarity: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """L_u = (1/2B) Σ_i (1/|A_i|) Σ_{j∈A_i} ℓ_ij.

    A_i are all rows with the anchor's label, itself included.

    Args:
        similarity: (2B, 2B) similarities S of B images followed by their second views.
        labels: (B,) labels of the images; the fractional label of a mixup image equals only itself.
        temperature: τ′.

    Returns:
        The scalar loss.
    """
    return _mean_row_loss(similarity, labels.repeat(2), temperature)


@float32
def previous_instance_loss(similarity: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """OCM's L_prev = (1/B) Σ_i (1/|A_i|) Σ_{j∈A_i} ℓ_ij, the form of L_u with a single view.

    A_i are all images with the anchor's label, itself included.

    Args:
        similarity: (B, B) similarities of the network's projection of image i to the previous
            network's projection of image j.
        labels: (B,) labels.
        temperature: τ′.

    Returns:
        The scalar loss.
    """
    return _mean_row_loss(similarity, labels, temperature)


def _mean_row_loss(similarity: Tensor, labels: Tensor, temperature: float) -> Tensor:
    if similarity.device.type == "cpu":
        return row_loss(similarity, labels, temperature)
    return RowLosses.of(similarity, temperature).mean_loss(_same_label(labels)).mean()


class RowLosses(NamedTuple):
    """Row losses ℓ_ij = log(Z_i) − log(e_ij + ε·Z_i) with Z_i = Σ_k e_ik + ε.

    This equals the ℓ_ij of the module's docstring. Its two parts are kept apart to save passes over
    the matrix, which has millions of entries and takes most of the time.
    """

    log_totals: Tensor
    """(n,): log(Z_i)."""
    log_shares: Tensor
    """(n, m): log(e_ij + ε·Z_i)."""

    @classmethod
    def of(
        cls, similarity: Tensor, temperature: float, excluded: Tensor | None = None
    ) -> "RowLosses":
        """Compute them from similarities (n, m), with e_ij = 0 where `excluded` (n, m) is true."""
        highest = similarity.detach().amax(dim=1, keepdim=True)
        weights = ((similarity - highest) / temperature).exp()
        if excluded is not None:
            weights = weights.masked_fill(excluded, 0.0)
        total = weights.sum(dim=1, keepdim=True) + EPSILON
        return cls(total.log().squeeze(1), (weights + EPSILON * total).log())

    def mean_loss(self, positive: Tensor) -> Tensor:
        """Return (n,), each row's mean of ℓ_ij where `positive` (n, m) is true."""
        chosen = positive.to(self.log_shares.dtype)
        sums: Tensor = torch.linalg.vecdot(self.log_shares, chosen)
        return self.log_totals - sums / chosen.sum(dim=1)


def _same_label(labels: Tensor) -> Tensor:
    """Return (n, n), whether two rows have the same label."""
    return labels[:, None] == labels[None, :]
