"""A-GEM: a step along the new gradient, less what opposes the memory's."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from onpro.nn.gradients import projected
from tests.methods.learners import batches, learner, refused, stepper, watch


def flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def test_the_first_task_is_plain_sgd_without_replay() -> None:
    agem, er = learner("agem"), learner("er")
    forwards = watch(agem)
    for batch in batches(3):
        assert set(stepper(agem).step(batch)) == {"new"}
    assert [len(f.images) for f in forwards] == [10, 10, 10]
    stepper(er).step(batches(1)[0])  # nothing to replay yet: the same step
    agem = learner("agem")
    stepper(agem).step(batches(1)[0])
    torch.testing.assert_close(agem.network.state_dict(), er.network.state_dict())


def test_later_steps_follow_the_projected_gradient() -> None:
    method = learner(
        "agem", float64=True, augmentation="none", learning_rate=0.05, replay_batch=200
    )
    for batch in batches(10):
        stepper(method).step(batch)
    conflicts = 0
    for batch in batches(6, start=10):
        network = deepcopy(method.network)
        parameters = list(network.parameters())
        new = cross_entropy(network(method.normalise(batch.images)), batch.labels)
        gradient = flat(list(torch.autograd.grad(new, parameters)))
        stored = method.normalise(method.memory.images)
        old = cross_entropy(network(stored), method.memory.labels)
        reference = flat(list(torch.autograd.grad(old, parameters)))
        product = float(gradient @ reference)
        if product < 0:
            conflicts += 1
            gradient = gradient - product / float(reference @ reference) * reference

        assert set(stepper(method).step(batch)) == {"new", "reference"}
        expected = flat(parameters) - 0.05 * gradient
        after = flat(list(method.network.parameters()))
        torch.testing.assert_close(after, expected)
        for name, running in network.named_buffers():  # both batches in train mode, apart
            torch.testing.assert_close(method.network.get_buffer(name), running)
    assert conflicts > 0


def test_a_projected_gradient_opposes_nothing_and_scales_with_the_loss() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        gradient, reference = torch.randn(2, 30, generator=generator)
        (result,) = projected([gradient], [reference])
        assert float(result @ reference) > -1e-4
        (scaled,) = projected([gradient * 2**16], [reference * 2**16])
        torch.testing.assert_close(scaled, result * 2**16)


def test_a_zero_reference_changes_nothing() -> None:
    gradient = torch.arange(4.0)
    assert torch.equal(projected([gradient], [torch.zeros(4)])[0], gradient)


def test_replay_is_augmented_and_the_memory_raw() -> None:
    method = learner("agem")
    stream = batches(11)
    forwards = watch(method)
    for batch in stream:
        stepper(method).step(batch)
    assert [len(f.images) for f in forwards] == [10] * 11 + [64]
    assert method.progress.images == 174
    assert torch.equal(method.memory.images, torch.cat([batch.images for batch in stream]))


@pytest.mark.parametrize(
    ("changes", "word"), [({"replay_batch": 0}, "replay batch"), ({"momentum": 1.0}, "momentum")]
)
def test_a_bad_value_is_refused(changes: dict[str, Any], word: str) -> None:
    refused("agem", word, **changes)
