"""A-GEM, averaged gradient episodic memory: a step must not hurt a random batch of the memory.

Chaudhry et al., "Efficient Lifelong Learning with A-GEM", ICLR 2019.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from onpro.memory.reservoir import reservoir_batch
from onpro.methods.base import Context, Method, Terms
from onpro.methods.registry import register
from onpro.methods.settings import ReplaySettings
from onpro.nn.gradients import flattened
from onpro.recipes import FRAMEWORK, IMAGENET, PAPER
from onpro.streams import Batch


@dataclass(frozen=True)
class AGEMSettings(ReplaySettings):
    """Settings of A-GEM."""

    replay_batch: int = 64
    """Number of stored images whose gradient a step must not oppose (default from the paper)."""


@register(
    "agem",
    AGEMSettings,
    title="Averaged gradient episodic memory",
    paper="Efficient Lifelong Learning with A-GEM",
    year=2019,
    memory="images, batch reservoir",
    inference="linear head",
    images_per_step="10 in the first task, then 74",
    data=IMAGENET,
    recipes={
        "paper": PAPER,
        "original": FRAMEWORK.varied(
            "its own code's numbers, with our memory and one head",
            learning_rate=0.03,
            replay_batch=256,
        ),
    },
)
class AGEM(Method[AGEMSettings]):
    """The gradient of CE(X), with what opposes the gradient of CE(Xb) taken out of it."""

    def __init__(self, settings: AGEMSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.network = self.make_network()
        self.optimizer = settings.make_optimizer(self.network.parameters())
        self.memory = self.make_memory()

    def learn(self, batch: Batch) -> Terms:
        """One optimizer step along the projected gradient, then the memory update."""
        terms = {"new": self.loss(self.normalise(batch.images), batch.labels)}
        gradients = self.gradients(terms["new"])
        if self.progress.task > 0 and len(self.memory):
            terms["reference"] = self.loss(*self.sample_replay(self.settings.replay_batch))
            gradients = projected(gradients, self.gradients(terms["reference"]))
        for parameter, gradient in zip(self.network.parameters(), gradients, strict=True):
            parameter.grad = gradient
        self.step()
        reservoir_batch(self.memory, batch.images, batch.labels, self.random["memory"])
        return terms

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """CE of network input, augmented."""
        return cross_entropy(self.network.logits(self.augment(images)), labels)

    def gradients(self, loss: Tensor) -> list[Tensor]:
        """The gradient of a loss, parameter by parameter."""
        self.optimizer.zero_grad(set_to_none=True)
        self.backward({"loss": loss})
        return [p.grad for p in self.network.parameters() if p.grad is not None]


def projected(gradients: Sequence[Tensor], reference: Sequence[Tensor]) -> list[Tensor]:
    """G − (⟨G, G_ref⟩ / ⟨G_ref, G_ref⟩)·G_ref where ⟨G, G_ref⟩ < 0, else G.

    Both inner products run over all parameters at once, not layer by layer. A common factor of
    both gradients changes nothing, so they may be scaled for half precision.

    Args:
        gradients: G, parameter by parameter.
        reference: G_ref, likewise.
    """
    whole, whole_reference = flattened(gradients), flattened(reference)
    product = (whole * whole_reference).sum()
    share = torch.where(product < 0, product / whole_reference.square().sum(), 0.0)
    return [torch.addcmul(g, share, r, value=-1) for g, r in zip(gradients, reference, strict=True)]
