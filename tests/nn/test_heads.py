import copy
import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from onpro.nn import GrowingLinear


def generator_of(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch(count: int, classes: int) -> tuple[Tensor, Tensor]:
    generator = generator_of(9)
    features = torch.randn(count, 6, generator=generator)
    return features, torch.randint(classes, (count,), generator=generator)


def train(head: GrowingLinear, optimizer: torch.optim.Optimizer, steps: int = 3) -> None:
    features, labels = batch(20, head.out_features)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.autograd.backward(cross_entropy(head(features), labels))
        optimizer.step()


def test_it_is_a_linear_layer() -> None:
    head = GrowingLinear(6, 4, generator=generator_of(0))
    twin = torch.nn.Linear(6, 4, device="meta")
    twin.load_state_dict(head.state_dict(), strict=True, assign=True)
    features, _ = batch(5, 4)
    torch.testing.assert_close(head(features), twin(features))


def test_initial_weights_are_uniform_in_the_usual_bounds() -> None:
    head = GrowingLinear(400, 500, generator=generator_of(0))
    bound = 1 / math.sqrt(400)
    for values in (head.weight.detach(), head.bias.detach()):
        assert float(values.abs().max()) <= bound
        assert float(values.std()) == pytest.approx(bound / math.sqrt(3), rel=0.05)


def test_weights_depend_on_the_generator_alone() -> None:
    one, same, other = (GrowingLinear(6, 4, generator=generator_of(s)) for s in (1, 1, 2))
    assert torch.equal(one.weight, same.weight)
    assert not torch.equal(one.weight, other.weight)
    one.grow(7, generator=generator_of(5))
    same.grow(7, generator=generator_of(5))
    assert torch.equal(one.weight, same.weight)


def test_old_outputs_stay_when_it_grows() -> None:
    head = GrowingLinear(6, 3, generator=generator_of(0))
    features, _ = batch(5, 3)
    before = head(features)
    head.grow(8, generator=generator_of(1))
    after = head(features)
    assert head.out_features == after.shape[1] == 8
    torch.testing.assert_close(after[:, :3], before)
    assert head.weight[3:].any(dim=1).all()


def test_adam_keeps_its_averages_and_trains_on() -> None:
    head = GrowingLinear(6, 3, generator=generator_of(0))
    optimizer = torch.optim.Adam(head.parameters(), lr=0.1)
    train(head, optimizer)
    old = {k: v.clone() for k, v in optimizer.state[head.weight].items()}
    head.grow(5, generator=generator_of(1), optimizer=optimizer)

    state = optimizer.state[head.weight]
    assert torch.equal(state["step"], old["step"])
    for name in ("exp_avg", "exp_avg_sq"):
        assert torch.equal(state[name][:3], old[name])
        assert state[name].shape == (5, 6)
        assert not state[name][3:].any()
    assert {p for group in optimizer.param_groups for p in group["params"]} == {
        head.weight,
        head.bias,
    }
    assert set(optimizer.state) == {head.weight, head.bias}

    before = head.weight.detach().clone()
    train(head, optimizer, steps=1)
    assert (head.weight != before).any(dim=1).all()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_trains_on(momentum: float) -> None:
    head = GrowingLinear(6, 3, generator=generator_of(0))
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1, momentum=momentum)
    train(head, optimizer)
    head.grow(4, generator=generator_of(1), optimizer=optimizer)
    before = head.weight.detach().clone()
    train(head, optimizer, steps=1)
    assert (head.weight != before).any(dim=1).all()


def test_it_may_start_without_any_output() -> None:
    head = GrowingLinear(6, 0, generator=generator_of(0))
    optimizer = torch.optim.Adam(head.parameters(), lr=0.1)
    assert head(torch.zeros(2, 6)).shape == (2, 0)
    head.grow(2, generator=generator_of(0), optimizer=optimizer)
    train(head, optimizer)


def test_a_saved_head_and_optimizer_are_restored_after_growing_to_their_size() -> None:
    head = GrowingLinear(6, 3, generator=generator_of(0))
    optimizer = torch.optim.Adam(head.parameters(), lr=0.1)
    train(head, optimizer)
    head.grow(5, generator=generator_of(1), optimizer=optimizer)
    train(head, optimizer)

    twin = GrowingLinear(6, 3, generator=generator_of(7))
    twin_optimizer = torch.optim.Adam(twin.parameters(), lr=0.1)
    twin.grow(5, generator=generator_of(7), optimizer=twin_optimizer)
    twin.load_state_dict(head.state_dict())
    twin_optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(head, optimizer)
    train(twin, twin_optimizer)
    assert torch.equal(head.weight, twin.weight)


def test_growing_to_the_same_size_changes_nothing() -> None:
    head = GrowingLinear(6, 3, generator=generator_of(0))
    weight, generator = head.weight, generator_of(1)
    state = generator.get_state()
    head.grow(3, generator=generator)
    assert head.weight is weight
    assert torch.equal(generator.get_state(), state)


def test_it_does_not_shrink() -> None:
    with pytest.raises(ValueError, match="cannot shrink to 2"):
        GrowingLinear(6, 3, generator=generator_of(0)).grow(2, generator=generator_of(0))
