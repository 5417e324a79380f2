"""ER-ACE and PCR against the originals' numbers."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from onpro.losses import masked_cross_entropy, proxy_contrast
from onpro.methods.erace import EPSILON, SCALE
from onpro.methods.parts.known import outputs_of
from onpro.methods.pcr import EPSILON as PCR_EPSILON
from onpro.nn.heads import GrowingCosine
from tests.golden.values import Golden, near


def cosine(weight: torch.Tensor, scale: float, epsilon: float) -> GrowingCosine:
    """A cosine head with the given weights."""
    head = GrowingCosine(
        weight.shape[1], len(weight), scale=scale, epsilon=epsilon, generator=torch.Generator()
    )
    head.load_state_dict({"weight": weight}, assign=True)
    return head


@pytest.mark.golden("baselines/erace.{case}.*")
@pytest.mark.parametrize("case", ["present_is_newest", "newest_absent", "first_batch"])
def test_erace_loss(golden: Golden, case: str) -> None:
    g = golden.group(f"baselines/erace.{case}.")
    logits, seen = g["logits_x"].requires_grad_(), g["seen_before"].tolist()
    unseen = torch.tensor([k not in seen for k in range(10)])
    if case == "newest_absent":  # the original keeps the largest seen class open
        unseen[max(seen)] = True
    of_new = masked_cross_entropy(logits, g["y"], outputs_of(unseen, 1, g["y"]))
    of_old = cross_entropy(g["logits_b"], g["y_b"])
    near(of_new, g["loss_x"])
    near(of_old, g["loss_b"])
    near(of_new + of_old, g["total"])
    of_new.backward()
    assert logits.grad is not None
    near(logits.grad, g["grad_logits_x"])


@pytest.mark.golden("baselines/erace.cosine_head.*")
def test_erace_cosine_head(golden: Golden) -> None:
    g = golden.group("baselines/erace.cosine_head.")
    near(cosine(g["weight"], SCALE, EPSILON)(g["features"]), g["logits"])


@pytest.mark.golden("baselines/pcr.*")
def test_pcr_loss(golden: Golden) -> None:
    g = golden.group("baselines/pcr.")
    head = cosine(g["weight"], 1 / g["temperature"].item(), PCR_EPSILON)
    of_new, of_old = (g[f"features_{part}"].requires_grad_() for part in "xb")
    near(head(of_new), g["head_logits_x"])
    logits = torch.cat([head(of_new), head(of_old)])
    loss = proxy_contrast(logits, torch.cat([g["y"].repeat(2), g["y_b"].repeat(2)]))
    near(loss, g["loss"])
    loss.backward()
    for leaf, name in ((of_new, "features_x"), (of_old, "features_b"), (head.weight, "weight")):
        assert leaf.grad is not None
        near(leaf.grad, g[f"grad_{name}"])
