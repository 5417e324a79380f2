"""A-GEM, averaged gradient episodic memory: a step must not hurt a random batch of the memory.

Chaudhry et al., "Efficient Lifelong Learning with A-GEM", ICLR 2019.
"""

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from onpro.methods.base import Context, Labelled, Method, Terms, total
from onpro.methods.registry import register
from onpro.methods.settings import ReplaySettings
from onpro.nn.gradients import projected
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

    remembers = True

    def __init__(self, settings: AGEMSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.network = self.make_network()
        self.optimizer = settings.make_optimizer(self.network.parameters())
        self.memory = self.make_memory()

    def learn(self, batch: Batch) -> Terms:
        """One optimizer step along the projected gradient, then the memory update."""
        new = Labelled(self.normalise(batch.images), batch.labels)
        terms = {"new": total(self.terms(new))}
        gradients = self.gradients(terms["new"])
        if self.progress.task > 0 and not self.memory.is_empty:
            reference = self.sample_replay(self.settings.replay_batch)
            terms["reference"] = total(self.terms(reference))
            gradients = projected(gradients, self.gradients(terms["reference"]))
        for parameter, gradient in zip(self.network.parameters(), gradients, strict=True):
            parameter.grad = gradient
        self.step()
        self.remember(batch)
        return terms

    def course(self) -> Hashable:
        """Whether there is an earlier task."""
        return self.progress.task > 0

    def terms(self, samples: Labelled) -> Terms:
        """CE of augmented images."""
        logits = self.network.logits(self.augment(samples.images))
        return {"ce": cross_entropy(logits, samples.labels)}

    def gradients(self, loss: Tensor) -> list[Tensor]:
        """The gradient of a loss, parameter by parameter."""
        self.optimizer.zero_grad(set_to_none=True)
        self.backward({"loss": loss})
        parameters = self.network.parameters()
        return [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
