import torch
from torch.nn.functional import cross_entropy

from onpro.data import load
from onpro.data.tiny import tiny


def test_counts_and_size_are_as_asked() -> None:
    data = tiny(classes=5, train_per_class=7, test_per_class=3, image_size=10)
    assert data.train.labels.bincount().tolist() == [7] * 5
    assert data.test.labels.bincount().tolist() == [3] * 5
    assert data.image_shape == (3, 10, 10)
    assert len(data.classes) == 5


def test_equal_seeds_give_equal_images_and_others_differ() -> None:
    assert load("tiny", seed=3).train.images.equal(tiny(seed=3).train.images)
    assert not load("tiny", seed=3).train.images.equal(load("tiny", seed=4).train.images)


def test_a_small_network_learns_it_in_a_few_dozen_steps() -> None:
    data = tiny()
    generator = torch.Generator().manual_seed(0)
    pixels = data.train.images.flatten(1).float() / 255
    weights = [
        (torch.randn(pixels.shape[1], 32, generator=generator) * 0.05).requires_grad_(),
        (torch.randn(32, len(data.classes), generator=generator) * 0.2).requires_grad_(),
    ]
    optimizer = torch.optim.Adam(weights, lr=5e-3)
    for batch in torch.randperm(len(pixels), generator=generator).reshape(-1, 10):
        optimizer.zero_grad()
        scores = (pixels[batch] @ weights[0]).relu() @ weights[1]
        torch.autograd.backward(cross_entropy(scores, data.train.labels[batch]))
        optimizer.step()
    test = data.test.images.flatten(1).float() / 255
    predicted = ((test @ weights[0]).relu() @ weights[1]).argmax(1)
    assert (predicted == data.test.labels).float().mean() > 0.7
