"""Compare the losses with values of the official implementations."""

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from onpro import losses
from tests.golden.values import Golden, near


@pytest.mark.golden("onpro/ope_z?", "onpro/ope_y", "onpro/ope_loss", "onpro/ope_proto?")
def test_prototype_contrast(golden: Golden) -> None:
    z1, z2, y = golden["onpro/ope_z1"], golden["onpro/ope_z2"], golden["onpro/ope_y"]
    loss, first, second = losses.prototype_contrast(z1, z2, y, 8, 0.5)
    near(loss, golden["onpro/ope_loss"])
    near(first, golden["onpro/ope_proto1"])
    near(second, golden["onpro/ope_proto2"])


@pytest.mark.golden("onpro/ope_z?", "onpro/ope_y", "onpro/ope_old_only_loss_classes_below_4")
def test_prototype_contrast_of_old_classes_only(golden: Golden) -> None:
    z1, z2, y = golden["onpro/ope_z1"], golden["onpro/ope_z2"], golden["onpro/ope_y"]
    loss, _, _ = losses.prototype_contrast(z1, z2, y, 4, 0.5)
    near(loss, golden["onpro/ope_old_only_loss_classes_below_4"])


@pytest.mark.golden("onpro/ins_*")
def test_instance_losses(golden: Golden) -> None:
    similarity, labels = golden["onpro/ins_sim"], golden["onpro/ins_labels"]
    new = losses.new_instance_loss(similarity, labels, 0.07)
    replay = losses.replay_instance_loss(similarity, labels, 0.07)
    near(new, golden["onpro/ins_new"])
    near(replay, golden["onpro/ins_replay"])


@pytest.mark.golden("baselines/supcon.z?", "baselines/supcon.labels", "baselines/supcon.{case}.*")
@pytest.mark.parametrize(("case", "temperature"), [("t007", 0.07), ("t01", 0.1)])
def test_supervised_contrast(golden: Golden, case: str, temperature: float) -> None:
    data = golden.group("baselines/supcon.")
    z1, z2 = data["z1"].requires_grad_(), data["z2"].requires_grad_()
    z = torch.cat([z1, z2])
    loss = losses.supervised_contrast(z @ z.T, data["labels"].repeat(2), temperature).mean()
    loss.backward()
    near(loss, data[f"{case}.loss"])
    assert z1.grad is not None
    assert z2.grad is not None
    near(z1.grad, data[f"{case}.grad_z1"])
    near(z2.grad, data[f"{case}.grad_z2"])


def test_mixup_cross_entropy_is_a_weighted_pair() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 4, generator=generator)
    y1, y2 = torch.tensor([0, 1, 2, 3, 0, 1]), torch.tensor([3, 2, 1, 0, 0, 0])
    weight = torch.tensor([0.0, 0.1, 0.5, 1.0, 0.3, 0.9])
    expected = sum(
        (1 - w) * cross_entropy(row[None], a[None]) + w * cross_entropy(row[None], b[None])
        for row, a, b, w in zip(logits, y1, y2, weight, strict=True)
    )
    torch.testing.assert_close(losses.mixup_cross_entropy(logits, y1, y2, weight), expected / 6)


def test_one_class_has_nothing_to_contrast() -> None:
    z = normalize(torch.randn(5, 8, generator=torch.Generator().manual_seed(1))).requires_grad_()
    loss, _, _ = losses.prototype_contrast(z, z.flip(0), torch.full((5,), 2), 6, 0.5)
    loss.backward()
    assert loss.item() == 0.0
    assert z.grad is not None
    assert z.grad.abs().max() < 1e-6


def test_no_class_gives_zero_and_no_nan() -> None:
    z = normalize(torch.randn(5, 8, generator=torch.Generator().manual_seed(1))).requires_grad_()
    loss, means, _ = losses.prototype_contrast(z, z, torch.full((5,), 7), 6, 0.5)
    loss.backward()
    assert loss.item() == 0.0
    assert z.grad is not None
    assert not z.grad.any()
    assert not means.any()


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_orthogonal_classes_have_the_closed_form_loss(classes: int) -> None:
    z, y = torch.eye(classes), torch.arange(classes)
    loss, _, _ = losses.prototype_contrast(z, z, y, classes, 0.5)
    expected = torch.log(1 + 2 * (classes - 1) * torch.exp(torch.tensor(-2.0)))
    torch.testing.assert_close(loss, expected)


def test_constant_similarity_has_the_closed_form_losses() -> None:
    labels = torch.arange(160) // 5  # 320 rows, each label on ten of them
    new = losses.new_instance_loss(torch.ones(320, 320), labels, 0.07)
    replay = losses.replay_instance_loss(torch.ones(320, 320), labels, 0.07)
    assert new.item() == pytest.approx(19.83, abs=0.005)
    assert replay.item() == pytest.approx(torch.log(torch.tensor(320.0)).item(), rel=1e-5)


def test_slice_similarity_is_scaled_and_not_symmetric() -> None:
    generator = torch.Generator().manual_seed(2)
    z = normalize(torch.randn(4, 3, generator=generator))
    n = normalize(torch.randn(4, 8, generator=generator))
    start = torch.tensor([2])
    s = losses.slice_similarity(z, n, start, 0.5)
    for i in range(4):
        for j in range(4):
            torch.testing.assert_close(s[i, j], 0.5 * (z[i] @ n[j, 2:5] + z[i] @ z[j]))
    assert not torch.allclose(s, s.T)


def test_losses_are_float32_inside_autocast() -> None:
    generator = torch.Generator().manual_seed(3)
    z = normalize(torch.randn(16, 8, generator=generator))
    n = normalize(torch.randn(16, 16, generator=generator))
    y = torch.arange(8) % 3
    start = torch.tensor([4])

    def total() -> torch.Tensor:
        s = losses.slice_similarity(z, n, start, 1.0)
        ope, _, _ = losses.prototype_contrast(z[:8], z[8:], y, 3, 0.5)
        instances = losses.new_instance_loss(s, y, 0.07) + losses.replay_instance_loss(s, y, 0.07)
        return ope + instances

    plain = total()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(total(), plain)


def test_losses_take_their_arguments_by_name() -> None:
    s, y = torch.eye(4), torch.tensor([0, 1])
    by_name = losses.replay_instance_loss(similarity=s, labels=y, temperature=0.1)
    assert torch.equal(by_name, losses.replay_instance_loss(s, y, 0.1))
