"""Networks of methods: forward passes in training, what watches them, and growth."""

import copy

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from onpro.nn import use_fused_kernels
from onpro.nn.counter import counting_images
from onpro.nn.network import Network, PrototypeNetwork

SHAPE = (3, 8, 8)


def network(*, projection: int = 5, outputs_per_class: int = 1) -> Network:
    """Three classes, in float64."""
    made = Network(
        "slim", SHAPE, 3, projection=projection, outputs_per_class=outputs_per_class, seed=1
    )
    return made.double()


def images(count: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, *SHAPE, dtype=torch.float64, generator=generator)


def test_passes_are_watched_in_order_and_only_inside() -> None:
    net = network()
    net.features(images(2))
    with net.watched() as passes:
        first, second = net.features(images(3)), net.features(images(4, seed=1))
        net.logits(images(5, seed=2))
    net.features(images(2))
    assert [len(batch) for batch, _ in passes] == [3, 4, 5]
    assert passes[0][1] is first
    assert passes[1][1] is second
    assert torch.equal(passes[1][0], images(4, seed=1))
    assert passes[0][1].requires_grad


def test_passes_are_not_watched_after_an_error() -> None:
    net = network()
    with pytest.raises(ZeroDivisionError), net.watched() as passes:
        raise ZeroDivisionError
    net.features(images(2))
    assert not passes


def test_training_counts_images_and_a_plain_call_does_not() -> None:
    net = network()
    with counting_images() as counter:
        net.features(images(3))
        net.logits_each(images(2), images(4))
        net(images(5))
    assert counter.images == 9


def test_evaluating_is_eval_mode_without_gradient_and_ends_in_train_mode() -> None:
    net = network()
    with net.evaluating():
        assert not net.training
        assert not net.encoder.training
        assert not net(images(2)).requires_grad
    assert net.training
    assert net.encoder.training
    assert net(images(2)).requires_grad


def test_evaluating_ends_in_train_mode_after_an_error_too() -> None:
    net = network()
    with pytest.raises(ZeroDivisionError), net.evaluating():
        raise ZeroDivisionError
    assert net.training
    assert torch.is_grad_enabled()


def test_a_plain_call_gives_the_first_output_of_each_class() -> None:
    net = network(outputs_per_class=4).eval()
    everything = net.logits(images(2))
    assert net.classes == 3
    assert everything.shape == (2, 12)
    torch.testing.assert_close(net(images(2)), everything[:, [0, 4, 8]])
    assert list(net.outputs_of(1)) == [4, 5, 6, 7]


def test_classes_with_several_outputs_grow_by_all_of_them() -> None:
    net = network(outputs_per_class=4)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    weight = net.classifier.weight.detach().clone()
    net.grow(5, optimizer, torch.Generator().manual_seed(0))
    assert net.classes == 5
    assert net.classifier.out_features == 20
    assert torch.equal(net.classifier.weight[:12], weight)


@pytest.mark.parametrize("fused", [False, True])
def test_features_of_several_batches_are_those_of_one_pass_each(fused: bool) -> None:
    """Outputs, gradients and running statistics; fused kernels take all batches in one pass."""
    alone = network()
    together = copy.deepcopy(alone)
    if fused:
        together.fused = True
        use_fused_kernels(together)
    batches = [images(4), images(6, seed=1), 2 * images(3, seed=2)]
    expected = [alone.features(batch) for batch in batches]
    found = together.features_each(*batches)
    assert len(found) == 3
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(other, one)
    torch.stack([features.square().sum() for features in expected]).sum().backward()
    torch.stack([features.square().sum() for features in found]).sum().backward()
    for one, other in zip(alone.parameters(), together.parameters(), strict=True):
        torch.testing.assert_close(other.grad, one.grad)
    for name, value in alone.state_dict().items():
        torch.testing.assert_close(together.state_dict()[name], value)


def test_embeddings_are_projections_of_length_1() -> None:
    net = network()
    features = net.features(images(4))
    assert net.projector is not None
    torch.testing.assert_close(net.embed(features), normalize(net.projector(features)))
    without = network(projection=0)
    features = without.features(images(4))
    assert without.project(features) is features


def test_prototypes_of_classes_that_have_not_appeared_are_never_the_nearest() -> None:
    net = PrototypeNetwork("slim", SHAPE, 3, projection=5).double().eval()
    net.known[1] = True
    scores = net(images(4))
    assert scores[:, 1].isfinite().all()
    assert scores[:, [0, 2]].isneginf().all()
    torch.testing.assert_close(net.prototypes.norm(dim=1), torch.ones(3, dtype=torch.float64))


def test_prototypes_grow_and_are_forgotten() -> None:
    net = PrototypeNetwork("slim", SHAPE, 2, projection=5)
    net.known.fill_(True)
    before, generator = net.prototypes.clone(), torch.Generator().manual_seed(0)
    net.grow(4, torch.optim.SGD(net.parameters(), 0.1), generator)
    assert net.classes == 4
    assert torch.equal(net.prototypes[:2], before)
    assert net.known.tolist() == [True, True, False, False]
    net.forget(1, generator)
    assert net.known.tolist() == [True, False, False, False]
    assert torch.equal(net.prototypes[0], before[0])
    assert not torch.equal(net.prototypes[1], before[1])
    torch.testing.assert_close(net.prototypes.norm(dim=1), torch.ones(4))
