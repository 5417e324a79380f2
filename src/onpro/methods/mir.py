"""MIR, maximally interfered retrieval: replay what the new batch is about to spoil.

Aljundi et al., "Online Continual Learning with Maximally Interfered Retrieval", NeurIPS 2019.
"""

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from onpro.methods.base import Context, Labelled, Method, Terms, total
from onpro.methods.registry import register
from onpro.methods.settings import ReplaySettings, require
from onpro.nn.counter import count_images
from onpro.nn.gradients import virtual_step
from onpro.recipes import FRAMEWORK, IMAGENET, PAPER, TUNED
from onpro.streams import Batch


@dataclass(frozen=True)
class MIRSettings(ReplaySettings):
    """Settings of MIR."""

    candidates: int = 100
    """Number of random stored images among which those to replay are chosen (default from the
    paper)."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        super().check()
        require(
            self.candidates >= self.replay_batch,
            f"{self.replay_batch} images cannot be chosen among {self.candidates} candidates: "
            "give at least as many candidates as the replay batch holds.",
        )


@register(
    "mir",
    MIRSettings,
    title="Maximally interfered retrieval",
    paper="Online Continual Learning with Maximally Interfered Retrieval",
    year=2019,
    memory="images, batch reservoir",
    inference="linear head",
    images_per_step="74, and 200 without gradient",
    data=IMAGENET,
    recipes={
        "paper": PAPER,
        "tuned": TUNED,
        "original": FRAMEWORK.varied(
            "its own code's numbers; candidates still include the current task", candidates=50
        ),
    },
)
class MIR(Method[MIRSettings]):
    """L = CE(X) + CE(Xb), Xb being the candidates whose loss a step on X alone raises most."""

    remembers = True

    def __init__(self, settings: MIRSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.network = self.make_network()
        self.optimizer = settings.make_optimizer(self.network.parameters())
        self.memory = self.make_memory()

    def learn(self, batch: Batch) -> Terms:
        """One optimizer step on the batch and the most interfered images, then the memory."""
        new = Labelled(self.normalise(batch.images), batch.labels)
        terms = {"new": total(self.terms(new))}
        self.optimizer.zero_grad(set_to_none=True)
        self.backward(terms)
        if not self.memory.is_empty:
            candidates = self.sample_replay(self.settings.candidates)
            terms["replay"] = total(self.terms(self.most_interfered(candidates)))
            self.backward({"replay": terms["replay"]})
        self.step()
        self.remember(batch)
        return terms

    def course(self) -> Hashable:
        """The same in every task."""
        return ()

    def terms(self, samples: Labelled) -> Terms:
        """CE of augmented images."""
        logits = self.network.logits(self.augment(samples.images))
        return {"ce": cross_entropy(logits, samples.labels)}

    def most_interfered(self, candidates: Labelled) -> Labelled:
        """Up to `replay_batch` of the candidates, those whose loss rises most."""
        (images, labels), rate = candidates, self.settings.learning_rate
        count_images(2 * len(labels))
        scores = interference(self.network, images, labels, rate, self.loss_scale)
        chosen = scores.topk(min(self.settings.replay_batch, len(labels))).indices
        return Labelled(images[chosen], labels[chosen])


@torch.no_grad()
def interference(
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    learning_rate: float,
    loss_scale: Tensor,
) -> Tensor:
    """CE after a virtual step − CE now, for each image, (n,).

    Both passes run in train mode, so each normalises by the candidates' own statistics; the first
    moves the running statistics of the network, the second only copies of them. They run in
    float32 or TF32, because small differences of losses decide.

    Args:
        network: the network, whose parameters hold the gradients of the new batch.
        images: (n, 3, height, width) network input.
        labels: (n,).
        learning_rate: of the virtual step, a plain one of SGD.
        loss_scale: what the loss was multiplied by before its backward pass.
    """
    stepped = virtual_step(network, learning_rate, loss_scale)
    now = cross_entropy(network(images), labels, reduction="none")
    then = cross_entropy(stepped(images), labels, reduction="none")
    return then - now
