"""Losses called by keyword, in double precision, and with very few images."""

from collections.abc import Callable

import pytest
import torch
from torch.nn.functional import normalize

from onpro import losses
from onpro.losses import row_blocks
from onpro.losses.contrastive import RowLosses


def unit(rows: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rows)
    return normalize(torch.randn(rows, 8, generator=generator, dtype=dtype)).requires_grad_()


def test_every_argument_may_be_given_by_name() -> None:
    labels = torch.tensor([0, 1, 1])
    means, counts = losses.class_means(vectors=unit(3), labels=labels, classes=2)
    assert counts.tolist() == [1, 2]
    assert torch.equal(means, losses.class_means(unit(3), labels, 2)[0])


def test_prototypes_keep_double_precision() -> None:
    first, second = unit(4, torch.float64), unit(4, torch.float64).detach().flip(0)
    labels = torch.tensor([0, 0, 1, 2])
    loss, means, _ = losses.prototype_contrast(first, second, labels, 3, 0.5)
    assert loss.dtype == means.dtype == torch.float64


def test_an_anchor_alone_has_nothing_to_contrast() -> None:
    one = unit(1)
    loss = losses.supervised_contrast(one @ one.T, torch.tensor([3]), 0.07).sum()
    loss.backward()
    assert float(loss.detach()) == 0
    assert one.grad is not None
    assert one.grad.count_nonzero() == 0


def test_the_loss_is_zero_if_all_images_are_ignored() -> None:
    embeddings, known = unit(2), torch.tensor([True, True])
    nobody = torch.tensor([-1, -1])
    loss = losses.pseudo_prototypical_loss(embeddings, nobody, unit(2), known, 0.1)
    loss.backward()
    assert float(loss.detach()) == 0
    assert embeddings.grad is not None
    assert embeddings.grad.count_nonzero() == 0


def test_what_is_taught_gets_no_gradient() -> None:
    logits, taught = unit(4), (2 * unit(4)).detach().requires_grad_()
    losses.softened_divergence(logits, taught).backward()
    assert taught.grad is None
    assert logits.grad is not None
    assert logits.grad.any()


@pytest.mark.parametrize("form", [losses.new_instance_loss, losses.replay_instance_loss])
@pytest.mark.parametrize("labels", [[0, 1, 0, 2, 1, 0, 7], [0.5, 0.5, 2.0, 2.0, 1.25, 3.0, 0.5]])
def test_blocks_of_rows_give_the_loss_and_gradient_of_the_whole_matrix(
    form: Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor],
    labels: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, columns = unit(14, torch.float64), unit(28, torch.float64)[:14]  # S is not symmetric
    similarity = (rows @ columns.T).detach().requires_grad_()
    both = torch.tensor(labels).repeat(2)
    losses_of = RowLosses.of(similarity, 0.07)
    expected = losses_of.mean_loss(both[:, None] == both[None, :]).mean()
    if form is losses.new_instance_loss:
        losses_of = RowLosses.of(similarity, 0.07, excluded=torch.eye(14, dtype=torch.bool))
        pair = torch.cat([losses_of.log_shares.diagonal(7), losses_of.log_shares.diagonal(-7)])
        means = losses_of.mean_loss(both[:, None] == both[None, :])
        expected = (2 * means + losses_of.log_totals - pair).mean()
    (expected_gradient,) = torch.autograd.grad(expected, similarity)
    for size in (1, 14 * 8, 3 * 14 * 8, 2**20):  # one row, one, three, all rows in a block
        monkeypatch.setattr(row_blocks, "BLOCK_BYTES", size)
        loss = form(similarity, torch.tensor(labels), 0.07)
        (gradient,) = torch.autograd.grad(5 * loss, similarity)
        torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)
        torch.testing.assert_close(gradient, 5 * expected_gradient, rtol=1e-9, atol=1e-14)
