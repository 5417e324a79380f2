"""ASER, CoPE, DVC, OCM and PASS against their original implementations."""

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from onpro import losses
from onpro.augment import Normalise
from onpro.losses import spread
from onpro.memory.shapley import Points, adversarial_scores, exchange, knn_shapley_values
from onpro.methods import Context
from onpro.methods.cope import CoPE, CoPESettings
from onpro.methods.dvc import gradient_change
from onpro.nn.joint_head import JointHead
from tests.golden.values import Golden, near
from tests.methods.learners import UNSCALED

IMAGE = (3, 32, 32)


def leaf(values: Tensor) -> Tensor:
    return values.clone().requires_grad_(True)


def assert_gradient(of: Tensor, expected: Tensor) -> None:
    assert of.grad is not None
    near(of.grad, expected)


# ASER


def points(case: Mapping[str, Tensor], name: str) -> Points:
    labels = case[f"{name}_labels"]
    return Points(case[f"{name}_features"], labels, torch.ones_like(labels, dtype=torch.bool))


@pytest.mark.golden("baselines/aser.{name}.*")
@pytest.mark.parametrize("name", ["sv_k3", "sv_k5", "sv_n_below_k"])
def test_aser_values(golden: Golden, name: str) -> None:
    case = golden.group(f"baselines/aser.{name}.")
    values = knn_shapley_values(points(case, "eval"), points(case, "cand"), int(case["k"]))
    near(values, case["sv"])


@pytest.mark.golden("baselines/aser.retrieve.*")
def test_aser_retrieval(golden: Golden) -> None:
    case = golden.group("baselines/aser.retrieve.")
    scores = adversarial_scores(
        points(case, "cand"), points(case, "coop"), points(case, "x"), int(case["k"])
    )
    near(scores, case["score"])
    for name, at in {"adversarial": "x", "cooperative": "coop"}.items():
        values = knn_shapley_values(points(case, at), points(case, "cand"), int(case["k"]))
        near(values, case[f"sv_{name}"])
    best = scores.argsort(descending=True, stable=True)[:8]
    assert torch.equal(best, case["top8"])


@pytest.mark.golden("baselines/aser.update.*")
def test_aser_update(golden: Golden) -> None:
    case = golden.group("baselines/aser.update.")
    stored, new = points(case, "memory"), points(case, "x")
    judges, slots, rare = case["eval_slots"], case["cand_slots"], case["eval_from_x"]

    def joined(of_memory: Tensor, of_new: Tensor) -> Points:
        labels = torch.cat([stored.labels[of_memory], new.labels[of_new]])
        features = torch.cat([stored.features[of_memory], new.features[of_new]])
        return Points(features, labels, torch.ones_like(labels, dtype=torch.bool))

    everything = torch.arange(len(new))
    values = knn_shapley_values(joined(judges, rare), joined(slots, everything), int(case["k"]))
    near(values.sum(dim=0), case["sv_sum"])
    exists = torch.ones_like(slots, dtype=torch.bool)
    places = exchange(values.sum(dim=0), exists, slots, nowhere=40)
    assert torch.equal(places[case["x_stored"]], case["slots_replaced"])
    assert (places == 40).sum() == len(new) - len(case["x_stored"])
    after = torch.cat([stored.labels, stored.labels[:1]])
    after[places] = new.labels
    assert torch.equal(after[:40], case["memory_labels_after"])


# CoPE


@pytest.mark.golden(
    "baselines/cope.{case}.embeddings",
    "baselines/cope.{case}.labels",
    "baselines/cope.{case}.prototypes",
    "baselines/cope.{case}.{at}.*",
)
@pytest.mark.parametrize("case", ["several_classes", "two_known_one_in_batch"])
@pytest.mark.parametrize(("at", "temperature"), [("t1", 1.0), ("t01", 0.1)])
def test_cope_loss(golden: Golden, case: str, at: str, temperature: float) -> None:
    values = golden.group(f"baselines/cope.{case}.")
    embeddings, prototypes = leaf(values["embeddings"]), values["prototypes"]
    known = torch.ones(len(prototypes), dtype=torch.bool)
    loss = losses.pseudo_prototypical_loss(
        embeddings, values["labels"], prototypes, known, temperature
    )
    loss.backward()
    near(loss, values[f"{at}.loss"])
    assert_gradient(embeddings, values[f"{at}.grad_embeddings"])


@pytest.mark.golden(
    "baselines/cope.several_classes.embeddings",
    "baselines/cope.several_classes.labels",
    "baselines/cope.several_classes.beta",
    "baselines/cope.several_classes.prototypes*",
)
def test_cope_prototypes(golden: Golden) -> None:
    values = golden.group("baselines/cope.several_classes.")
    context = Context(IMAGE, Normalise((0.0,) * 3, (1.0,) * 3), num_classes=6)
    settings = CoPESettings(encoder="slim", embedding=16, prototype_momentum=float(values["beta"]))
    method = CoPE(settings, context)
    method.network.prototypes = values["prototypes"]
    method.move_prototypes(values["embeddings"], values["labels"])
    near(method.network.prototypes, values["prototypes_after"])


# DVC


@pytest.mark.golden(
    "baselines/dvc.{case}.logits_*", "baselines/dvc.{case}.labels", "baselines/dvc.{case}.{at}.*"
)
@pytest.mark.parametrize("case", ["ordinary", "extreme"])
@pytest.mark.parametrize(("at", "weight"), [("l3_2", 2.0), ("l3_4", 4.0)])
def test_dvc_loss(golden: Golden, case: str, at: str, weight: float) -> None:
    values = golden.group(f"baselines/dvc.{case}.")
    logits = {name: leaf(values[f"logits_{name}"]) for name in ("raw", "aug", "joint")}
    first, second, joint = logits.values()
    ce = losses.view_cross_entropy(first, second, values["labels"])
    entropy = losses.marginal_entropy_loss(first, second, joint)
    agreement = weight * losses.agreement_loss(first, second, joint)
    total = ce + entropy + agreement
    total.backward()
    near(ce, values[f"{at}.ce"])
    near(entropy, values[f"{at}.entropy"])
    near(agreement, values[f"{at}.l1_weighted"])
    near(total, values[f"{at}.total"], scale=values[f"{at}.ce"])
    for name, given in logits.items():
        assert_gradient(given, values[f"{at}.grad_logits_{name}"])


@pytest.mark.golden("baselines/dvc.mgi_given.*")
def test_dvc_score_of_given_logits(golden: Golden) -> None:
    case = golden.group("baselines/dvc.mgi_given.")
    after, before = (
        losses.gradient_magnitude(
            case[f"logits_{moment}"], case[f"features_{moment}"], case["labels"]
        )
        for moment in ("after", "before")
    )
    near(after - before, case["score"], scale=after)
    assert torch.equal((after - before).argsort(descending=True, stable=True)[:8], case["top8"])


@pytest.mark.golden("baselines/dvc.mgi_net.*")
def test_dvc_score_of_a_network(golden: Golden) -> None:
    case = golden.group("baselines/dvc.mgi_net.")
    fc: nn.Linear = nn.utils.skip_init(nn.Linear, 12, 16, dtype=torch.float64)
    encoder = nn.Sequential(fc, nn.ReLU())
    classifier = nn.utils.skip_init(nn.Linear, 16, 10, dtype=torch.float64)
    joint = JointHead(10, 128, generator=torch.Generator()).double()
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
    near(logits, case["joint_logits"])
    loss = (
        losses.view_cross_entropy(first, second, case["y"])
        + losses.marginal_entropy_loss(first, second, logits)
        + case["lambda3"] * losses.agreement_loss(first, second, logits)
    )
    loss.backward()
    near(loss, case["loss"])
    assert joint.inward.grad is not None
    gradients = {
        "backbone.fc.weight": fc.weight.grad,
        "backbone.fc.bias": fc.bias.grad,
        "backbone.linear.weight": classifier.weight.grad,
        "backbone.linear.bias": classifier.bias.grad,
        "qnet.model.0.weight": joint.inward.grad.permute(2, 1, 0).flatten(1),
        "qnet.model.0.bias": joint.bias.grad,
        "qnet.model.2.weight": joint.outward.weight.grad,
        "qnet.model.2.bias": joint.outward.bias.grad,
    }
    assert gradients.keys() == set(case.group("grad."))
    for name, gradient in gradients.items():
        assert gradient is not None
        near(gradient, case[f"grad.{name}"])

    candidates = torch.cat([case["cand_x"], case["cand_x_aug"]])
    labels, rate = case["cand_y"], float(case["lr"])
    scores = gradient_change(encoder, classifier, candidates, labels, rate, UNSCALED)
    with torch.no_grad():
        features = encoder(case["cand_x"])
        magnitude = losses.gradient_magnitude(classifier(features), features, case["cand_y"])
    near(scores, case["score"], scale=magnitude)
    assert torch.equal(scores.argsort(descending=True, stable=True)[:8], case["top8"])


# PASS


@pytest.mark.golden("baselines/pass.prototypes.*")
def test_pass_prototypes(golden: Golden) -> None:
    case = golden.group("baselines/pass.prototypes.")
    whole = len(case["labels"]) // int(case["batch"]) * int(case["batch"])
    features, labels = case["features"][:whole], case["labels"][:whole]
    means, counts = losses.class_means(features, labels, int(labels.max()) + 1)
    near(means[case["class_label"]], case["prototype"])
    near(spread(features, labels, means, counts), case["radius"])


@pytest.mark.golden("baselines/pass.augment.*")
def test_pass_augmented_prototypes_are_near_their_class(golden: Golden) -> None:
    """The original's draws: noise of the radius around the prototype of the class, output 4k."""
    case = golden.group("baselines/pass.augment.")
    of_class = {int(k): p for k, p in zip(case["class_label"], case["prototype"], strict=True)}
    for augmented, output in zip(case["augmented"], case["labels"], strict=True):
        noise = (augmented - of_class[int(output) // 4]) / case["radius"]
        assert int(output) % 4 == 0
        assert noise.std() == pytest.approx(1.0, abs=0.15)


@pytest.mark.golden("baselines/pass.loss.*")
def test_pass_loss(golden: Golden) -> None:
    case = golden.group("baselines/pass.loss.")
    logits, features = leaf(case["logits"]), leaf(case["features"])
    of_prototypes, temperature = leaf(case["proto_logits"]), float(case["temperature"])
    ce = cross_entropy(logits / temperature, case["labels"])
    prototypes = cross_entropy(of_prototypes / temperature, case["proto_labels"])
    distance = losses.feature_distance(features, case["old_features"])
    loss = ce + case["proto_weight"] * prototypes + case["kd_weight"] * distance
    loss.backward()
    near(ce, case["ce"])
    near(prototypes, case["proto_ce"])
    near(distance, case["kd"])
    near(loss, case["total"])
    assert_gradient(logits, case["grad_logits"])
    assert_gradient(features, case["grad_features"])
    assert_gradient(of_prototypes, case["grad_proto_logits"])


# OCM


@pytest.mark.golden(
    "baselines/ocm.losses.{matrix}",
    "baselines/ocm.losses.{labels}",
    "baselines/ocm.losses.{name}",
    "baselines/ocm.losses.{name}_grad",
)
@pytest.mark.parametrize(
    ("name", "matrix", "labels"),
    [("l_n", "sim", "labels"), ("l_u", "sim", "labels"), ("l_prev", "prev_sim", "prev_labels")],
)
def test_ocm_losses(golden: Golden, name: str, matrix: str, labels: str) -> None:
    case = golden.group("baselines/ocm.losses.")
    functions = {
        "l_n": losses.new_instance_loss,
        "l_u": losses.replay_instance_loss,
        "l_prev": losses.previous_instance_loss,
    }
    similarity = leaf(case[matrix])
    loss = functions[name](similarity, case[labels], 0.07)
    loss.backward()
    near(loss, case[name])
    assert_gradient(similarity, case[f"{name}_grad"])
