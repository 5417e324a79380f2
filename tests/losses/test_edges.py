"""Losses called by keyword, in double precision, and with very few images."""

import torch
from torch.nn.functional import normalize

from onpro import losses


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
