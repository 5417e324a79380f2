"""GSS: training as ER, a memory of diverse gradients."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy

from onpro.memory.redundancy import weighted_slots
from onpro.methods.gss import BATCHES_AT_ONCE, GSS
from tests.methods.learners import batches, found_in, learner, refused, stepper, watch


def gradient(method: GSS, images: Tensor, labels: Tensor) -> Tensor:
    """In eval mode, the obvious way."""
    network = deepcopy(method.network).eval()
    loss = cross_entropy(network(method.normalise(images)), labels)
    parts = torch.autograd.grad(loss, list(network.parameters()))
    return torch.cat([part.reshape(-1) for part in parts])


def test_it_trains_like_er() -> None:
    gss, er = learner("gss"), learner("er")
    for batch in batches(1):
        stepper(gss).step(batch)
        stepper(er).step(batch)
    torch.testing.assert_close(gss.network.state_dict(), er.network.state_dict())
    assert torch.equal(gss.memory.images, er.memory.images)


def test_images_that_find_the_memory_empty_score_a_tenth() -> None:
    method = learner("gss")
    first = batches(1)[0]
    stepper(method).step(first)
    assert torch.equal(method.memory.fields["score"], torch.full((10,), 0.1))


def test_later_images_score_their_largest_cosine() -> None:
    method = learner("gss", float64=True, augmentation="none", gradient_batch=20, memory=25)
    first, second, third = batches(3)
    stepper(method).step(first)
    stepper(method).step(second)
    stored = method.memory.images.clone(), method.memory.labels.clone()
    stepper(method).step(third)
    assert len(method.memory) == 25  # what finds no slot is lost
    assert torch.equal(method.memory.images[20:], third.images[:5])
    reference = gradient(method, *stored)  # one batch, the whole memory
    for i in range(5):
        alone = gradient(method, third.images[i : i + 1], third.labels[i : i + 1])
        expected = cosine_similarity(alone, reference, dim=0)
        torch.testing.assert_close(method.memory.fields["score"][20 + i], expected.float())


def test_memory_gradients_come_from_disjoint_full_batches() -> None:
    method = learner("gss", gradient_batch=8, gradient_batches=4, memory=30)
    for batch in batches(3):
        stepper(method).step(batch)
    slots = method.memory_slots()
    assert slots.shape == (3, 8)  # 30 // 8
    assert len(slots.unique()) == 24
    assert set(slots.flatten().tolist()) <= set(range(30))
    method = learner("gss", gradient_batch=8, gradient_batches=2, memory=30)
    for batch in batches(3):
        stepper(method).step(batch)
    assert method.memory_slots().shape == (2, 8)


def test_images_and_their_batch_are_compared_with_all_memory_batches() -> None:
    method = learner(
        "gss",
        float64=True,
        augmentation="none",
        gradient_batch=2,
        gradient_batches=9,
        memory=20,
    )
    for batch in batches(2):
        stepper(method).step(batch)
    third = batches(1, start=2)[0]
    images, labels = third.images, third.labels
    method.network.eval()
    state = method.random.state_dict()
    slots = method.memory_slots()
    assert len(slots) == 9 > 2 * BATCHES_AT_ONCE  # some passes through the network
    method.random.load_state_dict(state)
    scores, of_batch = method.redundancy(images, labels)
    of_memory = [
        gradient(method, method.memory.images[some], method.memory.labels[some]) for some in slots
    ]
    alone = [gradient(method, images[i : i + 1], labels[i : i + 1]) for i in range(len(labels))]
    together = gradient(method, images, labels)
    for score, g in zip([*scores, of_batch], [*alone, together], strict=True):
        expected = max(cosine_similarity(g, other, dim=0) for other in of_memory)
        torch.testing.assert_close(score, expected)


def test_the_memory_is_examined_in_eval_mode_with_raw_images() -> None:
    method = learner("gss", memory=20, gradient_batch=20)
    for batch in batches(2):
        stepper(method).step(batch)
    forwards = watch(method)
    batch = batches(1, start=2)[0]
    stored = method.normalise(method.memory.images)
    before = deepcopy(method.network)
    stepper(method).step(batch)
    assert [f.training for f in forwards] == [True, True, False]
    assert torch.equal(forwards[-1].images[:10], method.normalise(batch.images))
    assert found_in(stored, forwards[-1].images[10:]).all()
    for forward in forwards[:2]:
        before(forward.images)
    for name, running in before.named_buffers():  # moved by the two training passes alone
        torch.testing.assert_close(method.network.get_buffer(name), running)
    assert method.network.training
    assert method.progress.images == 10 + (10 + 10 + 10 + 10) + (10 + 20 + 10 + 20)


class Told(GSS):
    """GSS that is told the scores."""

    scores_told: Tensor
    batch_told: Tensor

    def redundancy(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return self.scores_told[: len(labels)], self.batch_told


def full(memory: int = 20) -> Told:
    method = learner("gss", memory=memory)
    for batch in batches(2):
        stepper(method).step(batch)
    method.__class__ = Told
    return method  # type: ignore[no-any-return] # a GSS of another class now


def test_a_batch_that_agrees_with_the_memory_changes_nothing() -> None:
    method = full()
    method.scores_told, method.batch_told = torch.full((10,), -1.0), torch.tensor(0.0)
    before = deepcopy(method.memory.state_dict())
    stepper(method).step(batches(1, start=2)[0])
    after = method.memory.state_dict()
    assert torch.equal(before["images"], after["images"])
    assert torch.equal(before["fields"]["score"], after["fields"]["score"])


def test_a_batch_that_opposes_the_memory_takes_distinct_slots() -> None:
    method = full()
    batch = batches(1, start=2)[0]
    method.scores_told, method.batch_told = torch.full((10,), -1.0), torch.tensor(-0.1)
    stepper(method).step(batch)  # no redundancy at all: each item surely replaces its slot
    new = found_in(method.memory.images, batch.images)
    assert int(new.sum()) == 10
    assert torch.equal(method.memory.fields["score"] == -1, new)
    assert len(method.memory) == 20


def test_an_item_replaces_its_slot_with_the_probability_of_its_score() -> None:
    stored = []
    for seed in range(30):
        method = full()
        method.random = type(method.random)(seed, method.context.device)
        method.memory.fields["score"].fill_(0.0)
        method.scores_told, method.batch_told = torch.full((10,), 0.5), torch.tensor(-0.1)
        batch = batches(1, start=2)[0]
        method.exchange(batch.images, batch.labels)
        stored.append(int(found_in(batch.images, method.memory.images).sum()))
    share = 0.5 / (0.5 + 0.75)
    deviation = (share * (1 - share) / 300) ** 0.5
    assert abs(sum(stored) / 300 - share) < 4 * deviation


def test_more_images_than_slots() -> None:
    method = full(memory=5)
    method.scores_told, method.batch_told = torch.full((10,), -1.0), torch.tensor(-0.1)
    batch = batches(1, start=2)[0]
    stepper(method).step(batch)
    assert found_in(method.memory.images, batch.images[:5]).all()


def test_slots_are_drawn_by_weight_and_distinct() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = torch.tensor([0.1, 0.0, 0.6, 0.3])
    draws = torch.stack([weighted_slots(weights, 2, generator) for _ in range(2000)])
    assert (draws[:, 0] != draws[:, 1]).all()
    first = torch.bincount(draws[:, 0], minlength=4) / 2000
    torch.testing.assert_close(first, weights, rtol=0, atol=0.05)
    second_after_2 = draws[draws[:, 0] == 2, 1]
    share = float((second_after_2 == 3).float().mean())
    assert abs(share - 0.3 / 0.4) < 0.06


def test_slots_without_weight_are_drawn_where_there_are_too_few_others() -> None:
    generator = torch.Generator().manual_seed(0)
    drawn = weighted_slots(torch.tensor([0.0, 0.0, 0.5, 0.0]), 3, generator)
    assert drawn[0] == 2
    assert len(drawn.unique()) == 3


@pytest.mark.parametrize(
    ("changes", "word"),
    [({"gradient_batches": 0}, "gradient batch"), ({"gradient_batch": 0}, "gradient batch")],
)
def test_a_bad_value_is_refused(changes: dict[str, Any], word: str) -> None:
    refused("gss", word, **changes)
