"""A-GEM, MIR, GSS, GDumb, DER++, iCaRL and nearest class mean against the originals' numbers."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu

from onpro.memory import Replay
from onpro.memory.greedy_balanced import GreedyBalancedMemory
from onpro.methods.agem import projected
from onpro.methods.derpp import DERpp
from onpro.methods.gradients import batch_gradient, cosines, per_sample_gradients
from onpro.methods.gss import replacement_probability, slot_weights
from onpro.methods.icarl import binary_targets, summed_binary_cross_entropy
from onpro.methods.mir import interference
from onpro.methods.ncm import class_mean_directions, nearest_mean_scores
from onpro.streams import Batch
from tests.conftest import Golden
from tests.methods.learners import DATA, learner


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


def network(kind: str, state: dict[str, Tensor]) -> nn.Module:
    module = NETWORKS[kind]()
    module.load_state_dict(state, assign=True)
    return module.requires_grad_()


def near(actual: Tensor, expected: Tensor, *, relative: float = 1e-5) -> None:
    torch.testing.assert_close(actual.detach(), expected, rtol=relative, atol=relative * 1e-1)


@pytest.mark.parametrize("case", ["conflict", "no_conflict"])
def test_agem_projection(golden_baselines: Golden, case: str) -> None:
    g = golden_baselines.group(f"agem.{case}.")
    near(projected([g["grad"]], [g["grad_ref"]])[0], g["out"])
    cut = torch.tensor_split(g["grad"], [7, 30]), torch.tensor_split(g["grad_ref"], [7, 30])
    near(torch.cat(projected(*cut)), g["out"])  # one product over all parameters


@pytest.mark.parametrize("kind", NETWORKS)
def test_mir_ranking(golden_baselines: Golden, kind: str) -> None:
    g = golden_baselines.group(f"mir.{kind}.")
    module = network(kind, golden_baselines.group(f"mir.{kind}.model.")).train()
    cross_entropy(module(g["x"]), g["y"]).backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None
        near(parameter.grad, g[f"grad.{name}"], relative=1e-4)
    score = interference(module, g["cand_x"], g["cand_y"], float(g["lr"]))
    torch.testing.assert_close(score, g["score"], rtol=1e-5, atol=1e-6)
    assert torch.equal(score.topk(8).indices, g["top8"])
    for name, running in golden_baselines.group(f"mir.{kind}.model_after.").items():
        near(module.get_buffer(name), running)


@pytest.mark.parametrize("case", ["fill", "full_conflict", "full_no_conflict"])
@pytest.mark.parametrize("kind", NETWORKS)
def test_gss_scores(golden_baselines: Golden, kind: str, case: str) -> None:
    g = golden_baselines.group(f"gss.{kind}.{case}.")
    module = network(kind, golden_baselines.group(f"gss.{kind}.{case}.model.")).eval()
    size = int(g["batch"])
    batches = [b for b in g["permutation"].split(size)[: int(g["strength"])] if len(b) == size]
    references = [batch_gradient(module, g["memory_x"][b], g["memory_y"][b]) for b in batches]
    near(torch.stack(references), g["memory_gradients"], relative=1e-4)

    each = per_sample_gradients(module, g["x"], g["y"])
    near(each.mean(dim=0), batch_gradient(module, g["x"], g["y"]), relative=1e-4)
    score = torch.stack([cosines(each, r) for r in references]).amax(dim=0)
    if "item_score" in g:
        near(score[: len(g["item_score"])], g["item_score"], relative=1e-4)
    if "batch_score" in g:
        whole = [cosines(each.mean(dim=0, keepdim=True), r) for r in references]
        near(torch.stack(whole).amax(dim=0), g["batch_score"], relative=1e-4)


@pytest.mark.parametrize("kind", NETWORKS)
def test_gss_replacement_probabilities(golden_baselines: Golden, kind: str) -> None:
    g = golden_baselines.group(f"gss.{kind}.full_conflict.")
    weights = slot_weights(g["memory_score"])
    near(weights, g["slot_weight"])
    near(weights / weights.sum(), g["slot_probability"])
    of_slots = g["memory_score"][g["slots_drawn"]]
    near(replacement_probability(g["item_score"], of_slots), g["replace_probability"])


@pytest.mark.parametrize("size", [10, 17])
@pytest.mark.parametrize("together", [1, 5, 10])
def test_gdumb_memory(golden_baselines: Golden, size: int, together: int) -> None:
    g = golden_baselines.group(f"gdumb.m{size}.")
    labels, counts = g["labels"], g["counts_after_each"]
    largest = torch.cat([torch.ones(1, dtype=torch.int64), counts[:-1].amax(dim=1)])
    draws = (g["position_deleted"].clamp(min=0) + 0.5).double() / largest
    numbers = torch.arange(len(labels))
    images = numbers.to(torch.uint8).view(-1, 1, 1, 1)
    memory = GreedyBalancedMemory(size, (1, 1, 1), 9, device="cpu")
    for batch in numbers.split(together):
        memory.update(images[batch], labels[batch], draws[batch])
        stored = torch.bincount(memory.labels, minlength=9)
        assert torch.equal(stored, counts[batch[-1]])
    kept = memory.images.flatten().long()
    assert torch.equal(kept.sort().values, g["final_item_ids"].sort().values)
    assert torch.equal(labels[kept], memory.labels)


class Fed(DERpp):
    """DER++ that is given what it would draw from its memory, and the network's logits of it."""

    logits: list[Tensor]
    drawn: list[Replay]

    def encode_each(self, *batches: Tensor) -> list[Tensor]:
        return self.logits[: len(batches)]

    def replay(self) -> Replay:
        return self.drawn.pop(0)


@pytest.mark.parametrize("case", ["a01_b05", "empty_memory"])
def test_derpp_step(golden_baselines: Golden, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    g = golden_baselines.group("derpp.")
    method = learner("derpp", num_classes=10)
    method.__class__ = Fed
    monkeypatch.setattr(method.network.classifier, "forward", lambda logits: logits)
    replayed = case != "empty_memory"
    names = ("x", "b1", "b2") if replayed else ("x",)
    leaves = {name: g[f"logits_{name}"].requires_grad_() for name in names}
    method.logits = list(leaves.values())
    nothing, images = torch.zeros(16), torch.zeros(16, *DATA.image_shape, dtype=torch.uint8)
    method.drawn = [
        Replay(images, nothing.long(), {"logits": g["stored_logits_b1"]}),
        Replay(images, g["y_b2"], {"logits": torch.zeros(16, 10)}),
    ]
    if replayed:
        one = torch.zeros(1, 10)
        method.memory.write(torch.tensor([0]), images[:1], g["y"][:1], logits=one)
        method.memory.advance(1)
    terms = method.learn(Batch(images[:10], g["y"], None, tuple(range(10))))
    near(torch.stack(list(terms.values())).sum(), g[f"{case}.loss"])
    for name, leaf in leaves.items():
        assert leaf.grad is not None
        near(leaf.grad, g[f"{case}.grad_logits_{name}"], relative=1e-4)
    near(method.memory.fields["logits"][-10:], g[f"{case}.stored_logits_new"])


@pytest.mark.parametrize("case", ["first_task", "later_task"])
def test_icarl_loss(golden_baselines: Golden, case: str) -> None:
    g = golden_baselines.group(f"icarl.{case}.")
    classes = torch.cat([g["old_classes_in_unit_order"], g["new_classes_in_unit_order"]])
    unit = torch.full((10,), -1).scatter(0, classes, torch.arange(len(classes)))
    logits = g["logits"].requires_grad_()
    old = torch.arange(10) < len(g["old_classes_in_unit_order"])
    previous = g.get("previous_logits")
    targets = binary_targets(
        unit[g["y"]], len(logits), 10, previous, None if previous is None else old
    )
    near(targets[:, : len(classes)], g["targets"])
    units = torch.arange(10) < len(classes)
    rows = torch.ones(len(logits), dtype=torch.bool)
    loss = summed_binary_cross_entropy(logits, targets, units=units, rows=rows)
    near(loss, g["loss"])
    loss.backward()
    assert logits.grad is not None
    near(logits.grad, g["grad_logits"], relative=1e-4)


def test_nearest_class_mean(golden_baselines: Golden) -> None:
    g = golden_baselines.group("ncm.")
    means = class_mean_directions(
        g["memory_features"], g["memory_labels"], g["classes"], torch.Generator()
    )
    near(means, g["means"])
    scores = nearest_mean_scores(g["query_features"], means)
    assert torch.equal(g["classes"][scores.argmax(dim=1)], g["predictions"])
