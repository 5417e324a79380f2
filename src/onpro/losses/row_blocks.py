"""Instance losses on a CPU: the row losses of `contrastive`, block of rows by block of rows.

The matrix of similarities has millions of entries, of which few are positives. Autograd passes
over all of it some twenty times, through main memory. Here a block of rows stays in the cache,
logarithms are taken of positives only, and the gradient is computed along with the loss. Listing
the positives would be a host–device sync on a GPU, which therefore computes the whole matrix.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

EPSILON = 1e-8
"""ε of the row loss."""

BLOCK_BYTES = 2**20
"""Size of a block of rows; it should fit into the cache of a core."""


def row_loss(
    similarity: Tensor, labels: Tensor, temperature: float, *, new: bool = False
) -> Tensor:
    """Return the mean over the rows of (1/|A_i|) Σ_{j∈A_i} ℓ_ij.

    A_i are the rows with the label of row i, itself included.

    Args:
        similarity: (n, n) similarities S.
        labels: (n,) labels of rows and columns.
        temperature: τ′.
        new: Compute L_n instead: e_ii = 0, the mean counts twice, and ℓ_{i,π(i)} is added for the
            other view π(i) of row i.
    """
    loss: Tensor = _RowLoss.apply(similarity, labels, temperature, new)
    return loss


class _Positives(NamedTuple):
    """The entries of a matrix that count in the loss, row by row."""

    rows: Tensor
    columns: Tensor
    weights: Tensor
    ends: list[int]
    """The number of positives in the rows before each row, and in all."""

    @classmethod
    def of(cls, labels: Tensor, dtype: torch.dtype, *, new: bool) -> "_Positives":
        size = len(labels)
        _, label, counts = labels.unique(return_inverse=True, return_counts=True)
        order, first = label.argsort(), counts.cumsum(0) - counts
        per_row = counts[label]
        ends = per_row.cumsum(0)
        rows = torch.arange(size).repeat_interleave(per_row)
        within = torch.arange(len(rows)) - (ends - per_row)[rows]
        columns = order[first[label][rows] + within]
        weights = 1 / per_row[rows].to(dtype)
        if new:
            weights = 2 * weights + (columns == (rows + size // 2) % size)
        return cls(rows, columns, weights, [0, *ends.tolist()])


class _RowLoss(torch.autograd.Function):
    """The scalar loss; its gradient is computed in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any, similarity: Tensor, labels: Tensor, temperature: float, new: bool
    ) -> Tensor:
        size = len(similarity)
        positives = _Positives.of(labels, similarity.dtype, new=new)
        weight = 3.0 if new else 1.0  # of all positives of a row
        losses = similarity.new_empty(size)
        gradient = torch.empty_like(similarity)
        length = max(1, BLOCK_BYTES // (size * similarity.element_size()))
        for start in range(0, size, length):
            block = similarity[start : start + length]
            shares = gradient[start : start + length]
            torch.sub(block, block.amax(dim=1, keepdim=True), out=shares)
            shares.div_(temperature).exp_()
            if new:
                shares.diagonal(start).zero_()
            totals = shares.sum(dim=1).add_(EPSILON)

            stop = start + len(block)
            of_block = slice(positives.ends[start], positives.ends[stop])
            rows, weights = positives.rows[of_block] - start, positives.weights[of_block]
            entries = rows * size + positives.columns[of_block]
            chosen = shares.view(-1)[entries]
            enlarged = chosen + EPSILON * totals[rows]
            inverses = weights / enlarged
            sums = torch.zeros_like(totals).index_add_(0, rows, weights * enlarged.log())
            losses[start:stop] = weight * totals.log() - sums

            # dℓ/dS_ij = e_ij/τ′ · ( dℓ/dZ_i − w_ij / (e_ij + ε·Z_i) ), Z_i with ε included
            of_totals = weight / totals
            of_totals -= EPSILON * torch.zeros_like(totals).index_add_(0, rows, inverses)
            shares.mul_(of_totals[:, None] / (size * temperature))
            shares.view(-1).index_add_(
                0, entries, chosen * inverses, alpha=-1 / (size * temperature)
            )
        ctx.save_for_backward(gradient)
        return losses.mean()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * gradients[0], None, None, None
