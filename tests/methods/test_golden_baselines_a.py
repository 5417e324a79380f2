"""A-GEM, MIR, GSS, GDumb, DER++, iCaRL and nearest class mean against the originals' numbers."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu

from onpro.losses import binary_targets, summed_binary_cross_entropy
from onpro.memory import Memory, Replay
from onpro.memory.greedy_balanced import GreedyBalancedMemory
from onpro.memory.redundancy import replacement_probability, slot_weights
from onpro.methods import gss
from onpro.methods.derpp import DERpp
from onpro.methods.mir import interference
from onpro.methods.parts.ncm import class_mean_directions, nearest_mean_scores
from onpro.nn.gradients import projected, virtual_step
from onpro.streams import Batch
from tests.golden.values import Golden, near
from tests.methods.learners import DATA, UNSCALED, learner


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(12, 16, device="meta")
        self.fc2 = nn.Linear(16, 5, device="meta")

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc2(relu(self.fc1(x)))
        return logits


class ConvBN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1, bias=False, device="meta")
        self.bn = nn.BatchNorm2d(6, device="meta")
        self.linear = nn.Linear(6, 5, device="meta")

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.linear(relu(self.bn(self.conv(x))).mean((2, 3)))
        return logits


NETWORKS: dict[str, type[nn.Module]] = {"mlp": MLP, "bn": ConvBN}


def network(kind: str, state: Mapping[str, Tensor]) -> nn.Module:
    module = NETWORKS[kind]()
    module.load_state_dict(dict(state), assign=True)
    return module.requires_grad_()


@pytest.mark.golden("baselines/agem.{case}.*")
@pytest.mark.parametrize("case", ["conflict", "no_conflict"])
def test_agem_projection(golden: Golden, case: str) -> None:
    g = golden.group(f"baselines/agem.{case}.")
    near(projected([g["grad"]], [g["grad_ref"]])[0], g["out"])
    cut = torch.tensor_split(g["grad"], [7, 30]), torch.tensor_split(g["grad_ref"], [7, 30])
    near(torch.cat(projected(*cut)), g["out"])  # one product over all parameters


@pytest.mark.golden("baselines/mir.{kind}.*")
@pytest.mark.parametrize("kind", NETWORKS)
def test_mir_ranking(golden: Golden, kind: str) -> None:
    g = golden.group(f"baselines/mir.{kind}.")
    module = network(kind, g.group("model.")).train()
    cross_entropy(module(g["x"]), g["y"]).backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None
        near(parameter.grad, g[f"grad.{name}"])
    rate, candidates, labels = float(g["lr"]), g["cand_x"], g["cand_y"]
    stepped = virtual_step(module, rate, UNSCALED)
    after = cross_entropy(stepped(candidates), labels, reduction="none")
    score = interference(module, candidates, labels, rate, UNSCALED)
    near(after, g["post_loss"])
    near(after - score, g["pre_loss"])
    near(score, g["score"], scale=g["post_loss"])
    assert torch.equal(score.topk(8).indices, g["top8"])
    if kind == "bn":
        for name, running in g.group("model_after.").items():
            near(module.get_buffer(name), running)


@pytest.mark.golden("baselines/gss.{kind}.{case}.*")
@pytest.mark.parametrize("case", ["fill", "full_conflict", "full_no_conflict"])
@pytest.mark.parametrize("kind", NETWORKS)
def test_gss_update(golden: Golden, kind: str, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory's update, given the original's random choices."""
    g = golden.group(f"baselines/gss.{kind}.{case}.")
    method = learner(
        "gss", gradient_batches=int(g["strength"]), gradient_batch=int(g["batch"]), memory=24
    )
    method.network = network(kind, g.group("model.")).eval()
    filled, shape, dtype = int(g["memory_filled"]), g["x"].shape[1:], torch.float64
    method.memory = Memory(24, shape, device="cpu", dtype=dtype, extra={"score": ((), dtype)})
    stored = torch.arange(filled)
    method.memory.write(
        stored, g["memory_x"][:filled], g["memory_y"][:filled], score=g["memory_score"][:filled]
    )
    method.memory.advance(filled)
    assert (g["memory_score"][filled:] == 0).all()
    monkeypatch.setattr(method, "normalise", lambda images: images)
    monkeypatch.setattr(torch, "randperm", lambda count, **_: g["permutation"])

    of_memory = method.gradients(g["x"][:0], g["y"][:0], method.memory_slots())
    near(torch.cat([rows.flatten(1) for rows in of_memory], dim=1), g["memory_gradients"])
    scores, of_batch = method.redundancy(g["x"], g["y"])
    if case == "fill":
        near(scores[:4], g["item_score"])
        method.fill_memory(g["x"], g["y"])
    else:
        near(of_batch[None], g["batch_score"])
        slots, draws = torch.arange(6), torch.zeros(6)  # all would be stored, did they conflict
        if case == "full_conflict":
            near(scores, g["item_score"])
            weights = slot_weights(method.memory.fields["score"])
            near(weights, g["slot_weight"])
            near(weights / weights.sum(), g["slot_probability"])
            slots, probability = g["slots_drawn"], g["replace_probability"]
            near(replacement_probability(scores, g["memory_score"][slots]), probability)
            draws = probability + torch.where(g["replaced"] == 1, -1e-3, 1e-3)
        monkeypatch.setattr(gss, "weighted_slots", lambda *_: slots)
        monkeypatch.setattr(torch, "rand", lambda count, **_: draws)
        method.exchange(g["x"], g["y"])
    assert len(method.memory) == int(g["memory_filled_after"])
    assert torch.equal(method.memory.labels, g["memory_y_after"])
    near(method.memory.fields["score"], g["memory_score_after"])


@pytest.mark.golden("baselines/gdumb.m{size}.*")
@pytest.mark.parametrize("size", [10, 17])
@pytest.mark.parametrize("together", [1, 5, 10])
def test_gdumb_memory(golden: Golden, size: int, together: int) -> None:
    g = golden.group(f"baselines/gdumb.m{size}.")
    labels, counts = g["labels"], g["counts_after_each"]
    largest = torch.cat([torch.ones(1, dtype=torch.int64), counts[:-1].amax(dim=1)])
    draws = (g["position_deleted"].clamp(min=0) + 0.5).double() / largest
    numbers = torch.arange(len(labels))
    images = numbers.to(torch.uint8).view(-1, 1, 1, 1)
    memory = GreedyBalancedMemory(int(g["memory_size"]), (1, 1, 1), 9, device="cpu")
    for batch in numbers.split(together):
        memory.update(images[batch], labels[batch], draws[batch])
        stored = torch.bincount(memory.labels, minlength=9)
        assert torch.equal(stored, counts[batch[-1]])
    kept = memory.images.flatten().long().sort().values
    by_class = kept[memory.first_stored[labels[kept]].argsort(stable=True)]
    assert torch.equal(by_class, g["final_item_ids"])
    assert torch.equal(memory.labels.sort().values, g["final_labels"].sort().values)
    assert torch.equal(labels[by_class], g["final_labels"])


class Fed(DERpp):
    """DER++ that is given what it would draw from its memory, and the network's logits of it."""

    drawn: list[Replay]

    def sample_stored(self, count: int) -> Replay:
        return self.drawn.pop(0)


def derpp_step(g: Golden, case: str, leaves: dict[str, Tensor], drawn: list[Replay]) -> Fed:
    """One step on given logits, with something in memory if something is drawn from it."""
    method: Fed = learner("derpp", num_classes=10)
    method.__class__ = Fed
    logits, method.drawn = list(leaves.values()), drawn
    given: Any = method.network
    given.logits, given.logits_each = lambda _: logits[0], lambda *_: logits
    images, labels = torch.zeros(10, *DATA.image_shape, dtype=torch.uint8), g["y"]
    if drawn:
        method.memory.write(
            torch.zeros(1).long(), images[:1], labels[:1], logits=torch.zeros(1, 10)
        )
        method.memory.advance(1)
    terms = method.learn(Batch(images, labels, None, tuple(range(10))))
    near(torch.stack(list(terms.values())).sum(), g[f"{case}.loss"])
    for name, leaf in leaves.items():
        assert leaf.grad is not None
        near(leaf.grad, g[f"{case}.grad_logits_{name}"])
    near(method.memory.fields["logits"][-10:].double(), g[f"{case}.stored_logits_new"])
    return method


@pytest.mark.golden(
    "baselines/derpp.logits_*",
    "baselines/derpp.stored_logits_b1",
    "baselines/derpp.y*",
    "baselines/derpp.a01_b05.*",
)
def test_derpp_step(golden: Golden) -> None:
    g = golden.group("baselines/derpp.")
    leaves = {name: g[f"logits_{name}"].requires_grad_() for name in ("x", "b1", "b2")}
    nothing, images = torch.zeros(16, 10), torch.zeros(16, *DATA.image_shape, dtype=torch.uint8)
    drawn = [
        Replay(images, nothing[:, 0].long(), {"logits": g["stored_logits_b1"]}),
        Replay(images, g["y_b2"], {"logits": nothing}),
    ]
    settings = derpp_step(g, "a01_b05", leaves, drawn).settings
    assert settings.logit_weight == pytest.approx(g["a01_b05.alpha"].item())
    assert settings.label_weight == pytest.approx(g["a01_b05.beta"].item())


@pytest.mark.golden(
    "baselines/derpp.logits_x", "baselines/derpp.y", "baselines/derpp.empty_memory.*"
)
def test_derpp_step_without_memory(golden: Golden) -> None:
    g = golden.group("baselines/derpp.")
    derpp_step(g, "empty_memory", {"x": g["logits_x"].requires_grad_()}, [])


@pytest.mark.golden("baselines/icarl.{case}.*")
@pytest.mark.parametrize("case", ["first_task", "later_task"])
def test_icarl_loss(golden: Golden, case: str) -> None:
    g = golden.group(f"baselines/icarl.{case}.")
    classes = torch.cat([g["old_classes_in_unit_order"], g["new_classes_in_unit_order"]])
    unit = torch.full((10,), -1).scatter(0, classes, torch.arange(len(classes)))
    logits = g["logits"].requires_grad_()
    old = torch.arange(10) < len(g["old_classes_in_unit_order"])
    previous = g.get("previous_logits")
    targets = binary_targets(
        unit[g["y"]], len(logits), 10, previous, None if previous is None else old
    )
    near(targets[:, : len(classes)].double(), g["targets"])
    units = torch.arange(10) < len(classes)
    rows = torch.ones(len(logits), dtype=torch.bool)
    loss = summed_binary_cross_entropy(logits, targets, units=units, rows=rows)
    near(loss, g["loss"])
    loss.backward()
    assert logits.grad is not None
    near(logits.grad, g["grad_logits"])


@pytest.mark.golden("baselines/ncm.*")
def test_nearest_class_mean(golden: Golden) -> None:
    g = golden.group("baselines/ncm.")
    means = class_mean_directions(
        g["memory_features"], g["memory_labels"], g["classes"], torch.Generator()
    )
    near(means, g["means"])
    scores = nearest_mean_scores(g["query_features"], means)
    assert torch.equal(g["classes"][scores.argmax(dim=1)], g["predictions"])
