"""CCL-DC and GWM: two learners that teach each other."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div

from onpro.errors import UserError
from onpro.methods import method, settings_for
from tests.methods.learners import batches, learner, refused, stepper

QUICK: dict[str, Any] = {"optimizer": "adam", "learning_rate": 5e-3}


def trained(name: str, steps: int = 6, **changes: Any) -> tuple[Any, dict[str, Tensor]]:
    """A method after some steps, and the terms of the last."""
    learned = learner(name, **QUICK | changes)
    terms: dict[str, Tensor] = {}
    train = stepper(learned)
    for batch in batches(steps):
        terms = train.step(batch)
    return learned, terms


def taught(own: Tensor, other: Tensor) -> Tensor:
    """16·KL at temperature 4."""
    return 16 * kl_div((own / 4).log_softmax(1), (other / 4).softmax(1), reduction="batchmean")


def noted(learned: Any, name: str) -> list[Any]:
    """A list to which everything that a function of the method returns is added from now on."""
    results: list[Any] = []
    function = getattr(learned, name)

    def call(*arguments: Any) -> Any:
        results.append(function(*arguments))
        return results[-1]

    setattr(learned, name, call)
    return results


@pytest.mark.parametrize("peers", [1, 2])
def test_the_loss_of_a_chain(peers: int) -> None:
    learned = learner("er-ccldc", peers=peers, chain_ce_weight=0.3, chain_weight=1.7, **QUICK)
    first, second = batches(2)
    train = stepper(learned)
    assert train.step(first) == {}  # nothing is stored yet
    networks = [deepcopy(each.network) for each in learned.learners]
    views, shown = noted(learned, "views"), noted(learned, "shown")
    terms = train.step(second)
    x, y = views[0], shown[0].first
    assert len(y) == 20
    # The method's own cross-entropy comes first; it moves running statistics, not the logits.
    logits = [[network.logits(view) for view in x] for network in networks]
    for prefix, own, other in zip(("", "peer_"), logits, logits[::-1], strict=False):
        ce = 0.3 * torch.stack([cross_entropy(view, y) for view in own]).sum()
        pairs = zip(own, [*other[1:], other[3]], strict=True)
        chain = 1.7 * torch.stack([taught(*pair) for pair in pairs]).sum()
        assert torch.allclose(terms[f"{prefix}chain_ce"], ce, rtol=1e-3)
        assert torch.allclose(terms[f"{prefix}chain"], chain, rtol=1e-2, atol=1e-4)
    assert ("peer_ce" in terms) == (peers == 2)


def test_each_view_is_made_of_the_one_before() -> None:
    learned = learner("er-ccldc", operations=0)
    images = learned.normalise(batches(1)[0].images)
    raw, cropped, harder, hardest = learned.views(images)
    assert torch.equal(raw, images)
    assert not torch.allclose(cropped, images)
    # No operation only rounds to 8 bits.
    assert torch.allclose(harder, cropped, atol=0.05)
    assert torch.allclose(hardest, harder, atol=0.05)


def test_peers_start_from_different_networks_and_learn() -> None:
    learned, terms = trained("er-ccldc", steps=1)
    fresh = [deepcopy(each.network.state_dict()) for each in learned.learners]
    weight = "classifier.weight"
    assert not torch.equal(fresh[0][weight], fresh[1][weight])
    stepper(learned).step(batches(2)[1])
    for before, each in zip(fresh, learned.learners, strict=True):
        assert not torch.equal(before[weight], each.network.state_dict()[weight])
    assert terms == {}


@pytest.mark.parametrize("name", ["er-ccldc", "er-gwm"])
def test_both_learners_predict(name: str) -> None:
    learned, _ = trained(name)
    images = batches(1)[0].images
    scores = []
    for each in learned.learners:
        with each.network.evaluating():
            scores.append(each.network(each.normalise(images)))
    logits = torch.stack(scores)
    expected = logits.mean(0) if name == "er-ccldc" else logits.softmax(2).mean(0).log()
    assert torch.allclose(learned.scores(images), expected, rtol=1e-4, atol=1e-5)


def test_one_learner_can_teach_itself() -> None:
    learned, terms = trained("er-ccldc", peers=1)
    assert learned.peer is None
    assert set(terms) == {"ce", "chain_ce", "chain"}


def test_students_start_alike_and_see_different_views() -> None:
    learned = learner("er-gwm", **QUICK)
    states = [each.network.state_dict() for each in learned.learners]
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    train = stepper(learned)
    for batch in batches(3):
        train.step(batch)
    states = [each.network.state_dict() for each in learned.learners]
    assert not torch.equal(states[0]["classifier.weight"], states[1]["classifier.weight"])


def test_the_average_follows_both_students() -> None:
    learned = learner("er-gwm", average_rate=0.4, **QUICK)
    train = stepper(learned)
    train.step(batches(1)[0])
    before = [weight.clone() for weight in learned.average.network.parameters()]
    train.step(batches(2)[1])
    students = [list(each.network.parameters()) for each in learned.learners]
    for old, now, first, second in zip(
        before, learned.average.network.parameters(), *students, strict=True
    ):
        assert torch.allclose(now, 0.6 * old + 0.2 * first + 0.2 * second, rtol=1e-4, atol=1e-6)


def test_students_move_to_the_average_at_the_end_of_a_task() -> None:
    learned, _ = trained("er-gwm", fusion=0.25)
    before = [[weight.clone() for weight in each.network.parameters()] for each in learned.learners]
    stepper(learned).finish_task()
    average = list(learned.average.network.parameters())
    for each, weights in zip(learned.learners, before, strict=True):
        for now, old, mean in zip(each.network.parameters(), weights, average, strict=True):
            assert torch.allclose(now, 0.75 * old + 0.25 * mean, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("wrapper", ["ccldc", "gwm"])
def test_a_method_with_its_own_loss_keeps_it_in_both_learners(wrapper: str) -> None:
    learned = learner(f"onpro-{wrapper}", projection=16, rotations=4)
    train = stepper(learned)
    terms: dict[str, Tensor] = {}
    for batch in batches(12):
        terms = train.step(batch)
    assert {"ins_new", "peer_ins_new", "ope_new", "peer_ope_new"} <= terms.keys()


def test_the_settings_are_those_of_the_method() -> None:
    er: Any = settings_for("er-ccldc", "cifar100")
    assert (er.optimizer, er.weight_decay, er.augmentation) == ("adamw", 1e-4, "scr")
    assert (er.chain_weight, er.chain_ce_weight, er.magnitude) == (2.0, 0.5, 15)
    onpro: Any = settings_for("onpro-ccldc", "tinyimagenet")
    assert (onpro.chain_weight, onpro.chain_ce_weight) == (1.0, 0.25)
    assert (onpro.operations, onpro.magnitude) == (1, 11)


@pytest.mark.parametrize("wrapper", ["ccldc", "gwm"])
@pytest.mark.parametrize("other", ["kd", "mkd"])
def test_nothing_wraps_peers(wrapper: str, other: str) -> None:
    assert method(f"er-{other}-{wrapper}")
    with pytest.raises(UserError, match="comes last"):
        method(f"er-{wrapper}-{other}")


@pytest.mark.parametrize(
    ("name", "changes", "word"),
    [
        ("er-ccldc", {"magnitude": 31}, "magnitude"),
        ("er-ccldc", {"operations": -1}, "operations"),
        ("er-ccldc", {"peers": 3}, "peers"),
        ("er-gwm", {"fusion": 1.5}, "fusion"),
        ("er-gwm", {"average_rate": 0.0}, "average rate"),
    ],
)
def test_bad_values_are_refused(name: str, changes: dict[str, Any], word: str) -> None:
    refused(name, word, **changes)
