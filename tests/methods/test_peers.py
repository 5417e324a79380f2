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
PLAIN: dict[str, Any] = QUICK | {"augmentation": "none"}


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


def chained(name: str, **changes: Any) -> Any:
    """A method with a chain of views in float64, which augments no other images."""
    learned = learner(name, float64=True, augmentation="none", **QUICK | changes)
    harder = learned.chain
    learned.chain = [lambda x, random, f=f: f(x.float(), random).double() for f in harder]
    return learned


def noted(learned: Any, name: str) -> list[Any]:
    """A list to which everything that a function of the method returns is added from now on."""
    results: list[Any] = []
    function = getattr(learned, name)

    def call(*arguments: Any) -> Any:
        results.append(function(*arguments))
        return results[-1]

    setattr(learned, name, call)
    return results


@pytest.mark.parametrize("name", ["er-chain", "er-ccldc"])
def test_the_loss_of_a_chain(name: str) -> None:
    learned = chained(name, chain_ce_weight=0.3, chain_weight=1.7)
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
        assert torch.allclose(terms[f"{prefix}chain_ce"], ce, rtol=1e-9)
        assert torch.allclose(terms[f"{prefix}chain"], chain, rtol=1e-9)
    assert ("peer_ce" in terms) == (name == "er-ccldc")


def test_the_loss_of_a_student() -> None:
    learned = learner("er-gwm", float64=True, average_weight=3.0, average_rate=0.2, **PLAIN)
    learned.peer.network.double()
    learned.average.network.double()
    learned.augmentations = [lambda images, _: images / 2, lambda images, _: images.flip(3)]
    *before, last = batches(3)
    train = stepper(learned)
    for batch in before:
        train.step(batch)
    networks = [deepcopy(each.network) for each in learned.learners]
    average = deepcopy(learned.average.network)
    terms = train.step(last)
    stored = [*before, last]  # all are replayed
    images = learned.normalise(torch.cat([batch.images for batch in stored]))
    y = torch.cat([batch.labels for batch in stored])
    views = images / 2, images.flip(3)
    raw = [network.logits(images) for network in networks]
    logits = [network.logits(view) for network, view in zip(networks, views, strict=True)]
    for one, prefix in enumerate(("", "peer_")):
        expected = {
            "student_ce": cross_entropy(raw[one], y) + cross_entropy(logits[one], y),
            "student_kl": taught(logits[one], logits[1 - one]),
            "average_kl": 3 * taught(logits[one], average.logits(views[one])),
        }
        for name, value in expected.items():
            torch.testing.assert_close(terms[prefix + name], value, rtol=1e-9, atol=0)


def test_er_ace_shows_new_and_replayed_images_in_two_chains() -> None:
    values = settings_for("erace-ccldc", "cifar100")
    assert (values.chain_rivals, values.separate_chains) == ("batch", True)  # type: ignore[attr-defined] # of this wrapper
    learned = chained("erace-ccldc", num_classes=6, chain_rivals="batch", separate_chains=True)
    stream = batches(1) + batches(2, start=10)
    train = stepper(learned)
    for batch in stream[:2]:
        train.step(batch)
    networks = [deepcopy(each.network) for each in learned.learners]
    views, shown = noted(learned, "views"), noted(learned, "shown")
    terms = train.step(stream[2])
    labels = shown[0].first[:10], shown[0].first[10:]
    assert torch.equal(labels[0], stream[2].labels)
    assert len(labels[1]) == 20
    # Classes 0 and 1 are old, 2 and 3 are those of the batch, 4 and 5 have not been met.
    allowed = [2, 3, 4, 5] if set(stream[2].labels.tolist()) == {2, 3} else None
    assert allowed is not None
    for prefix, network, other in zip(("", "peer_"), networks, networks[::-1], strict=True):
        ce, chain = torch.zeros((2, 1), dtype=torch.float64)
        for x, y, masked in zip(views, labels, (True, False), strict=True):
            own, theirs = ([each.logits(view) for view in x] for each in (network, other))
            for view in own:
                logits, target = (view[:, allowed], y - 2) if masked else (view, y)
                ce = ce + 0.5 * cross_entropy(logits, target)
            for pair in zip(own, [*theirs[1:], theirs[3]], strict=True):
                chain = chain + taught(*pair)
        assert torch.allclose(terms[f"{prefix}chain_ce"], ce, rtol=1e-9)
        assert torch.allclose(terms[f"{prefix}chain"], chain, rtol=1e-9)


def test_replayed_images_alone_have_labels_in_two_chains_too() -> None:
    learned = learner("er-chain", chain_rivals="none", separate_chains=True, **QUICK)
    train = stepper(learned)
    train.step(batches(1)[0])
    calls = noted(learned, "label_loss")
    terms = train.step(batches(2)[1])
    of_new, of_old = calls[:4], calls[4:]
    assert len(of_new) == len(of_old) == 4
    assert torch.allclose(terms["chain_ce"], 0.5 * torch.stack(of_old).sum())


def test_peers_store_the_mean_of_their_logits() -> None:
    learned = learner("derpp-ccldc", augmentation="none", **QUICK)
    train = stepper(learned)
    networks = [deepcopy(each.network) for each in learned.learners]
    first = batches(1)[0]
    train.step(first)
    images = learned.normalise(first.images)
    expected = torch.stack([network.logits(images) for network in networks]).mean(dim=0)
    stored = learned.memory.fields["logits"]
    assert torch.allclose(stored, expected.detach(), rtol=1e-4, atol=1e-5)
    assert learned.peer.memory is learned.memory


def test_both_learners_recall_what_is_stored_with_an_image() -> None:
    learned = learner("hpcr-gwm", **QUICK)
    train = stepper(learned)
    for batch in (*batches(2), *batches(2, start=10)):
        terms = train.step(batch)
    assert {"relations", "logits", "peer_relations", "peer_logits"} <= terms.keys()


@pytest.mark.parametrize("name", ["gsa-ccldc", "hpcr-ccldc", "mose-gwm"])
def test_classes_and_steps_are_counted_once_for_both_learners(name: str) -> None:
    changes: dict[str, Any] = {"projection": 16} if "mose" in name else {}
    learned = learner(name, learning_rate=5e-3, **changes)
    train = stepper(learned)
    for batch in (*batches(3), *batches(2, start=10)):
        train.step(batch)
    for each in learned.learners:
        if hasattr(each, "task_steps"):
            assert int(each.task_steps.count) == 2
        if hasattr(each, "known"):
            assert each.known.seen.tolist() == [True] * 4
            assert each.known.old.tolist() == [True, True, False, False]
    restored = learner(name, learning_rate=5e-3, **changes)
    stepper(restored).load_state_dict(train.state_dict())
    assert restored.peer.memory is restored.memory
    assert torch.equal(restored.memory.labels, learned.memory.labels)


def test_each_learner_weights_classes_by_its_own_gradients() -> None:
    learned = learner("gsa-ccldc", learning_rate=5e-3)
    train = stepper(learned)
    for batch in batches(3):
        train.step(batch)
    counts, positive, _ = learned.sums
    assert torch.equal(counts, learned.peer.sums[0])
    assert not torch.equal(positive, learned.peer.sums[1])


def test_peers_of_experts_predict_with_one_memory() -> None:
    learned = learner("mose-gwm", learning_rate=5e-3, projection=16)
    train = stepper(learned)
    for batch in batches(4):
        train.step(batch)
    images = batches(1)[0].images
    kind = type(learned).wrapped
    scores = torch.stack([kind.scores(each, images) for each in learned.learners])
    expected = scores.softmax(2).mean(0).log()
    assert torch.allclose(learned.scores(images), expected, rtol=1e-4, atol=1e-5)


def test_wrappers_inside_keep_their_terms() -> None:
    _, terms = trained("er-mkd-ccldc")
    both = {"taught_ce", "taught_kl", "chain", "chain_ce"}
    assert set(terms) == both | {f"peer_{name}" for name in both}
    _, terms = trained("er-chain-mkd")
    assert set(terms) == {"ce"} | both
    learned, terms = trained("er-kd-mkd", steps=12)
    assert learned.teacher.in_use
    assert set(terms) == {"new", "replay", "distillation", "taught_ce", "taught_kl"}


def test_the_mean_of_a_student_follows_when_students_are_fused() -> None:
    learned, _ = trained("er-mkd-gwm")
    stepper(learned).finish_task()
    pairs = zip(
        learned.predictor.parameters(),
        learned.network.parameters(),
        learned.momentum_teacher.network.parameters(),
        strict=True,
    )
    assert all(torch.allclose(mean, (a + b) / 2, atol=1e-6) for mean, a, b in pairs)


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
    learned, terms = trained("er-chain")
    assert learned.learners == (learned,)
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


def test_students_grow_alike() -> None:
    learned = learner("mose-gwm", num_classes=None, projection=16)
    learned.peer.random["growth"].manual_seed(5)  # as on another kind of device
    for classes in (1, 3):
        learned.grow(classes)
        learned.forget(0)
        states = [each.network.state_dict() for each in learned.learners]
        states.append(learned.average.network.state_dict())
        for name in ("classifier.weight", "classifier.bias", "heads.0.weight"):
            assert len(states[0][name]) == classes
            assert all(torch.equal(state[name], states[0][name]) for state in states)


def test_outputs_of_independent_peers_start_apart() -> None:
    learned = learner("er-ccldc", num_classes=None)
    learned.grow(1)
    learned.grow(3)
    weights = [each.network.classifier.weight[1:] for each in learned.learners]
    assert (weights[0] != weights[1]).any(dim=1).all()


def test_both_learners_handle_a_batch_on_the_host() -> None:
    learned = learner("er-ccldc", **QUICK)
    handled = noted(learned.peer, "after_step")
    for batch in batches(2):
        stepper(learned).step(batch)
    assert len(handled) == 2


def test_a_task_ends_for_both_learners() -> None:
    learned, _ = trained("er-kd-ccldc")
    stepper(learned).finish_task()
    assert all(each.teacher.in_use for each in learned.learners)


def test_students_that_have_averages_start_with_the_same() -> None:
    learned = learner("er-mkd-gwm", **QUICK)
    own, other = (each.momentum_teacher.network.state_dict() for each in learned.learners)
    assert all(torch.equal(own[name], other[name]) for name in own)


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
    assert method("er-chain-gwm")
    with pytest.raises(UserError, match="comes last"):
        method(f"er-{wrapper}-{other}")


@pytest.mark.parametrize(
    ("name", "changes", "word"),
    [
        ("er-ccldc", {"magnitude": 31}, "magnitude"),
        ("er-ccldc", {"operations": -1}, "operations"),
        ("er-chain", {"chain_rivals": "some"}, "chain rivals"),
        ("er-gwm", {"fusion": 1.5}, "fusion"),
        ("er-gwm", {"average_rate": 0.0}, "average rate"),
    ],
)
def test_bad_values_are_refused(name: str, changes: dict[str, Any], word: str) -> None:
    refused(name, word, **changes)


@pytest.mark.parametrize("wrapper", ["ccldc", "chain"])
def test_methods_are_wrapped_with_the_settings_of_the_official_code(wrapper: str) -> None:
    augmentations = {"er": "scr", "erace": "crop", "derpp": "crop", "gsa": "gsa", "ocm": "scr"}
    for base, augmentation in augmentations.items():
        settings: Any = settings_for(f"{base}-{wrapper}", "cifar100")
        assert settings.augmentation == augmentation
        assert settings.learning_rate == (1e-3 if base == "ocm" else 5e-4)
        assert settings.weight_decay == (0.0 if base == "ocm" else 1e-4)
