"""ASER, CoPE, DVC, OCM and PASS against their original implementations."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from onpro import losses
from onpro.augment import Normalise, interleaved_labels, interleaved_rotations
from onpro.memory import Memory
from onpro.methods import Context
from onpro.methods.cope import CoPE, CoPESettings
from onpro.methods.dvc import gradient_change
from onpro.methods.ocm import OCM, OCMSettings
from onpro.methods.pass_ import spread
from onpro.methods.shapley import Points, adversarial_scores, exchange, knn_shapley_values
from onpro.nn.joint_head import JointHead
from onpro.streams import Batch
from tests.conftest import Golden
from tests.methods.learners import WithoutChance
from tests.methods.test_onpro_golden import ours

IMAGE = (3, 32, 32)


def leaf(values: Tensor) -> Tensor:
    return values.clone().requires_grad_(True)


def assert_loss(ours: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(ours.detach(), expected, rtol=1e-5, atol=1e-7)


def assert_gradient(of: Tensor, expected: Tensor) -> None:
    assert of.grad is not None
    torch.testing.assert_close(
        of.grad, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max())
    )


def assert_score(ours: Tensor, expected: Tensor) -> None:
    """A difference of two numbers is as exact as they are."""
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


# ASER


def points(case: Mapping[str, Tensor], name: str) -> Points:
    labels = case[f"{name}_labels"]
    return Points(case[f"{name}_features"], labels, torch.ones_like(labels, dtype=torch.bool))


@pytest.mark.parametrize("name", ["sv_k3", "sv_k5", "sv_n_below_k"])
def test_aser_values(golden_baselines: Golden, name: str) -> None:
    case = golden_baselines.group(f"aser.{name}.")
    values = knn_shapley_values(points(case, "eval"), points(case, "cand"), int(case["k"]))
    assert_loss(values, case["sv"])


def test_aser_retrieval(golden_baselines: Golden) -> None:
    case = golden_baselines.group("aser.retrieve.")
    scores = adversarial_scores(
        points(case, "cand"), points(case, "coop"), points(case, "x"), int(case["k"])
    )
    assert_loss(scores, case["score"])
    best = scores.argsort(descending=True, stable=True)[:8]
    assert torch.equal(best, case["top8"])


def test_aser_update(golden_baselines: Golden) -> None:
    case = golden_baselines.group("aser.update.")
    stored, new = points(case, "memory"), points(case, "x")
    judges, slots, rare = case["eval_slots"], case["cand_slots"], case["eval_from_x"]

    def joined(of_memory: Tensor, of_new: Tensor) -> Points:
        labels = torch.cat([stored.labels[of_memory], new.labels[of_new]])
        features = torch.cat([stored.features[of_memory], new.features[of_new]])
        return Points(features, labels, torch.ones_like(labels, dtype=torch.bool))

    everything = torch.arange(len(new))
    values = knn_shapley_values(joined(judges, rare), joined(slots, everything), int(case["k"]))
    assert_loss(values.sum(dim=0), case["sv_sum"])
    exists = torch.ones_like(slots, dtype=torch.bool)
    places = exchange(values.sum(dim=0), exists, slots, nowhere=40)
    assert torch.equal(places[case["x_stored"]], case["slots_replaced"])
    assert (places == 40).sum() == len(new) - len(case["x_stored"])
    after = torch.cat([stored.labels, stored.labels[:1]])
    after[places] = new.labels
    assert torch.equal(after[:40], case["memory_labels_after"])


# CoPE


@pytest.mark.parametrize("case", ["several_classes", "two_known_one_in_batch"])
@pytest.mark.parametrize(("at", "temperature"), [("t1", 1.0), ("t01", 0.1)])
def test_cope_loss(golden_baselines: Golden, case: str, at: str, temperature: float) -> None:
    values = golden_baselines.group(f"cope.{case}.")
    embeddings, prototypes = leaf(values["embeddings"]), values["prototypes"]
    known = torch.ones(len(prototypes), dtype=torch.bool)
    loss = losses.pseudo_prototypical_loss(
        embeddings, values["labels"], prototypes, known, temperature
    )
    loss.backward()
    assert_loss(loss, values[f"{at}.loss"])
    assert_gradient(embeddings, values[f"{at}.grad_embeddings"])


def test_cope_prototypes(golden_baselines: Golden) -> None:
    values = golden_baselines.group("cope.several_classes.")
    context = Context(IMAGE, Normalise((0.0,) * 3, (1.0,) * 3), num_classes=6)
    settings = CoPESettings(encoder="slim", embedding=16, prototype_momentum=float(values["beta"]))
    method = CoPE(settings, context)
    method.network.prototypes = values["prototypes"]
    method.move_prototypes(values["embeddings"], values["labels"])
    assert_loss(method.network.prototypes, values["prototypes_after"])


# DVC


@pytest.mark.parametrize("case", ["ordinary", "extreme"])
@pytest.mark.parametrize(("at", "weight"), [("l3_2", 2.0), ("l3_4", 4.0)])
def test_dvc_loss(golden_baselines: Golden, case: str, at: str, weight: float) -> None:
    values = golden_baselines.group(f"dvc.{case}.")
    logits = {name: leaf(values[f"logits_{name}"]) for name in ("raw", "aug", "joint")}
    first, second, joint = logits.values()
    ce = losses.view_cross_entropy(first, second, values["labels"])
    entropy = losses.marginal_entropy_loss(first, second, joint)
    agreement = weight * losses.agreement_loss(first, second, joint)
    (ce + entropy + agreement).backward()
    assert_loss(ce, values[f"{at}.ce"])
    assert_loss(entropy, values[f"{at}.entropy"])
    assert_loss(agreement, values[f"{at}.l1_weighted"])
    for name, given in logits.items():
        assert_gradient(given, values[f"{at}.grad_logits_{name}"])


def test_dvc_score_of_given_logits(golden_baselines: Golden) -> None:
    case = golden_baselines.group("dvc.mgi_given.")
    after, before = (
        losses.gradient_magnitude(
            case[f"logits_{moment}"], case[f"features_{moment}"], case["labels"]
        )
        for moment in ("after", "before")
    )
    assert_score(after - before, case["score"])
    assert torch.equal((after - before).argsort(descending=True, stable=True)[:8], case["top8"])


def test_dvc_score_of_a_network(golden_baselines: Golden) -> None:
    case = golden_baselines.group("dvc.mgi_net.")
    fc: nn.Linear = nn.utils.skip_init(nn.Linear, 12, 16)
    encoder = nn.Sequential(fc, nn.ReLU())
    classifier = nn.utils.skip_init(nn.Linear, 16, 10)
    joint = JointHead(10, 128, generator=torch.Generator())
    inward = case["model.qnet.model.0.weight"]
    encoder.load_state_dict(
        {f"0.{name}": case[f"model.backbone.fc.{name}"] for name in ("weight", "bias")}
    )
    classifier.load_state_dict(
        {name: case[f"model.backbone.linear.{name}"] for name in ("weight", "bias")}
    )
    joint.load_state_dict(
        {
            "inward": torch.stack([inward[:, :10].T, inward[:, 10:].T], dim=1),
            "bias": case["model.qnet.model.0.bias"],
            "outward.weight": case["model.qnet.model.2.weight"],
            "outward.bias": case["model.qnet.model.2.bias"],
        }
    )
    first, second = classifier(encoder(torch.cat([case["x"], case["x_aug"]]))).chunk(2)
    logits = joint(first, second)
    assert_loss(logits, case["joint_logits"])
    loss = (
        losses.view_cross_entropy(first, second, case["y"])
        + losses.marginal_entropy_loss(first, second, logits)
        + case["lambda3"] * losses.agreement_loss(first, second, logits)
    )
    loss.backward()
    assert_loss(loss, case["loss"])
    assert_gradient(fc.weight, case["grad.backbone.fc.weight"])
    assert_gradient(classifier.weight, case["grad.backbone.linear.weight"])
    assert joint.inward.grad is not None
    ours = torch.cat([joint.inward.grad[:, 0].T, joint.inward.grad[:, 1].T], dim=1)
    expected = case["grad.qnet.model.0.weight"]
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))

    candidates = torch.cat([case["cand_x"], case["cand_x_aug"]])
    scores = gradient_change(encoder, classifier, candidates, case["cand_y"], float(case["lr"]))
    assert_score(scores, case["score"])
    assert torch.equal(scores.argsort(descending=True, stable=True)[:8], case["top8"])


# PASS


def test_pass_rotations(golden_baselines: Golden) -> None:
    case = golden_baselines.group("pass.rotation.")
    assert torch.equal(interleaved_rotations(case["x"]), case["rotated"])
    assert torch.equal(interleaved_labels(case["y"]), case["labels"])


def test_pass_prototypes(golden_baselines: Golden) -> None:
    case = golden_baselines.group("pass.prototypes.")
    whole = len(case["labels"]) // int(case["batch"]) * int(case["batch"])
    features, labels = case["features"][:whole], case["labels"][:whole]
    means, counts = losses.class_means(features, labels, int(labels.max()) + 1)
    assert_loss(means[case["class_label"]], case["prototype"])
    assert_loss(spread(features, labels, means, counts), case["radius"])


def test_pass_augmented_prototypes_are_near_their_class(golden_baselines: Golden) -> None:
    """The original's draws: noise of the radius around the prototype of the class, output 4k."""
    case = golden_baselines.group("pass.augment.")
    of_class = {int(k): p for k, p in zip(case["class_label"], case["prototype"], strict=True)}
    for augmented, output in zip(case["augmented"], case["labels"], strict=True):
        noise = (augmented - of_class[int(output) // 4]) / case["radius"]
        assert int(output) % 4 == 0
        assert noise.std() == pytest.approx(1.0, abs=0.15)


def test_pass_loss(golden_baselines: Golden) -> None:
    case = golden_baselines.group("pass.loss.")
    logits, features = leaf(case["logits"]), leaf(case["features"])
    of_prototypes, temperature = leaf(case["proto_logits"]), float(case["temperature"])
    ce = cross_entropy(logits / temperature, case["labels"])
    prototypes = cross_entropy(of_prototypes / temperature, case["proto_labels"])
    distance = losses.feature_distance(features, case["old_features"])
    loss = ce + case["proto_weight"] * prototypes + case["kd_weight"] * distance
    loss.backward()
    assert_loss(ce, case["ce"])
    assert_loss(prototypes, case["proto_ce"])
    assert_loss(distance, case["kd"])
    assert_loss(loss, case["total"])
    assert_gradient(logits, case["grad_logits"])
    assert_gradient(features, case["grad_features"])
    assert_gradient(of_prototypes, case["grad_proto_logits"])


# OCM


@pytest.mark.parametrize(
    ("name", "matrix", "labels"),
    [("l_n", "sim", "labels"), ("l_u", "sim", "labels"), ("l_prev", "prev_sim", "prev_labels")],
)
def test_ocm_losses(golden_baselines: Golden, name: str, matrix: str, labels: str) -> None:
    case = golden_baselines.group("ocm.losses.")
    functions = {
        "l_n": losses.new_instance_loss,
        "l_u": losses.replay_instance_loss,
        "l_prev": losses.previous_instance_loss,
    }
    similarity = leaf(case[matrix])
    loss = functions[name](similarity, case[labels], 0.07)
    loss.backward()
    assert_loss(loss, case[name])
    assert_gradient(similarity, case[f"{name}_grad"])


class FixedOCM(WithoutChance[OCMSettings], OCM):
    """OCM without randomness."""


@pytest.fixture
def ocm(golden_baselines: Golden) -> FixedOCM:
    as_it_is = Normalise((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    context = Context(IMAGE, as_it_is, num_classes=10, channels_last=False)
    method = FixedOCM(OCMSettings(encoder="resnet18-nf20"), context)
    method.memory = Memory(200, IMAGE, device="cpu", dtype=torch.float32)
    state = golden_baselines.group("ocm.model.")
    method.network.load_state_dict({ours(name): value for name, value in state.items()})
    return method


def compare_step(method: FixedOCM, golden: Golden, step: str, terms: Mapping[str, Tensor]) -> None:
    expected_terms = {"ins_new": "l_n", "ins_replay": "l_u", "previous": "l_prev"}
    for name, term in terms.items():
        assert_loss(term, golden[f"{step}.{expected_terms.get(name, name)}"])
    assert_loss(torch.stack(list(terms.values())).sum(), golden[f"{step}.loss"])
    parameters = dict(method.network.named_parameters())
    gradients = golden.group(f"{step}.grad.")
    assert gradients
    for name, expected in gradients.items():
        gradient = parameters[ours(name)].grad
        assert gradient is not None
        assert (gradient - expected).abs().max() <= 1e-3 * expected.abs().max(), name
    after = method.network.state_dict()
    values = golden.group(f"{step}.after.")
    assert any("running" in name for name in values)
    for name, expected in values.items():
        if "running" in name:
            torch.testing.assert_close(after[ours(name)], expected, rtol=1e-4, atol=1e-5)
        else:  # the sign of a near-zero gradient decides a first step of Adam
            assert (after[ours(name)] - expected).abs().max() <= 2.1e-3, name


def test_ocm_first_step(ocm: FixedOCM, golden_baselines: Golden) -> None:
    step = "ocm.first_step"
    ocm.slice_starts = golden_baselines[f"{step}.slice_starts"].tolist()
    batch = Batch(golden_baselines["ocm.step.x"], golden_baselines["ocm.step.first_y"], 0, (0, 1))
    terms = ocm.observe(batch)
    assert set(terms) == {"ins_new", "ce"}
    compare_step(ocm, golden_baselines, step, terms)


def test_ocm_later_step(ocm: FixedOCM, golden_baselines: Golden) -> None:
    step = "ocm.later_step"
    ocm.slice_starts = golden_baselines[f"{step}.slice_starts"].tolist()
    stored, labels = golden_baselines["ocm.step.memory_x"], golden_baselines["ocm.step.memory_y"]
    ocm.memory.write(torch.arange(len(labels)), stored, labels)
    ocm.memory.advance(len(labels))
    ocm.progress = replace(ocm.progress, task=0, announced=0, task_open=True, seen={0, 1})
    ocm.finish_task()
    previous = golden_baselines.group("ocm.previous.")
    ocm.previous.network.load_state_dict({ours(name): value for name, value in previous.items()})
    batch = Batch(golden_baselines["ocm.step.x"], golden_baselines["ocm.step.later_y"], 1, (2, 3))
    terms = ocm.observe(batch)
    assert set(terms) == {"ins_new", "ins_replay", "previous", "ce", "mse"}
    compare_step(ocm, golden_baselines, step, terms)
    after = ocm.previous.network.state_dict()
    statistics = golden_baselines.group(f"{step}.previous_after.")
    assert statistics
    for name, expected in statistics.items():
        torch.testing.assert_close(after[ours(name)], expected, rtol=1e-4, atol=1e-5)
