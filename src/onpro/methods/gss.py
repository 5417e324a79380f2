"""GSS, gradient-based sample selection (greedy): keep images whose gradients differ.

Aljundi et al., "Gradient Based Sample Selection for Online Continual Learning", NeurIPS 2019.
"""

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from onpro.memory.redundancy import replacement_probability, slot_weights, weighted_slots
from onpro.methods.base import Context, Labelled, Method, Terms
from onpro.methods.registry import register
from onpro.methods.settings import ReplaySettings
from onpro.nn.counter import count_images
from onpro.nn.per_group import Groups, group_gradients, inner_products
from onpro.recipes import FRAMEWORK, IMAGENET, PAPER, TUNED
from onpro.streams import Batch

FIRST_SCORE = 0.1
"""Score of images that find the memory empty, where there is nothing to compare them with."""

BATCHES_AT_ONCE = 4
"""Batches of the memory that go through the network at a time."""


@dataclass(frozen=True)
class GSSSettings(ReplaySettings):
    """Settings of GSS."""

    gradient_batches: int = 64
    """Largest number of random batches of the memory whose gradients those of new images are
    compared with (default from the paper)."""

    gradient_batch: int = 64
    """Number of images in each of them (default from the paper)."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        super().check()
        self.require_at_least(1, "gradient_batches", "gradient_batch")


@register(
    "gss",
    GSSSettings,
    title="Gradient-based sample selection, greedy",
    paper="Gradient Based Sample Selection for Online Continual Learning",
    year=2019,
    memory="images, diverse gradients",
    inference="linear head",
    images_per_step="74, and 10 + 64 for each 64 stored in eval mode",
    data=IMAGENET,
    recipes={
        "paper": PAPER,
        "tuned": TUNED,
        "original": FRAMEWORK.varied(gradient_batches=10, gradient_batch=10),
    },
)
class GSS(Method[GSSSettings]):
    """L = CE(X) + CE(Xb), as ER; images whose gradients resemble others' are replaced first."""

    takes_added_terms = True
    has_plain_loss = True

    def __init__(self, settings: GSSSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.network = self.make_network()
        self.optimizer = settings.make_optimizer(self.network.parameters())
        self.memory = self.make_memory(score=((), torch.float32))

    def learn(self, batch: Batch) -> Terms:
        """One optimizer step on the batch and a random replay batch, then the memory update."""
        new = Labelled(self.normalise(batch.images), batch.labels)
        old = self.sample_replay(self.settings.replay_batch)
        terms = self.descend(lambda: self.terms(new, old) | self.added_terms(new, old))
        self.network.eval()
        if self.memory.free:
            self.fill_memory(batch.images, batch.labels)
        else:
            self.exchange(batch.images, batch.labels)
        self.network.train()
        return terms

    def course(self) -> Hashable:
        """The same in every task."""
        return ()

    def terms(self, new: Labelled, old: Labelled) -> Terms:
        """CE of new and of replayed images, each in a forward pass of its own."""
        views = [self.augment(samples.images) for samples in (new, old) if len(samples.labels)]
        of_new, *of_old = self.network.logits_each(*views)
        terms = {"new": cross_entropy(of_new, new.labels)}
        if of_old:  # something is stored
            terms["replay"] = cross_entropy(of_old[0], old.labels)
        return terms

    def fill_memory(self, images: Tensor, labels: Tensor) -> None:
        """Store the images that find a free slot, each with its score; the others are lost."""
        memory = self.memory
        fitting = min(len(labels), memory.free)
        images, labels = images[:fitting], labels[:fitting]
        if len(memory):
            scores, _ = self.redundancy(images, labels)
        else:
            scores = torch.full((fitting,), FIRST_SCORE, device=memory.device)
        slots = torch.arange(len(memory), len(memory) + fitting, device=memory.device)
        memory.write(slots, images, labels, score=scores)
        memory.advance(fitting)

    def exchange(self, images: Tensor, labels: Tensor) -> None:
        """Offer each image a slot, redundant slots first, if the batch as a whole is new.

        It is if its mean gradient opposes every memory gradient. Images beyond the number of slots
        are offered none.
        """
        memory, generator = self.memory, self.random["memory"]
        images, labels = images[: len(memory)], labels[: len(memory)]
        scores, of_batch = self.redundancy(images, labels)
        slots = weighted_slots(slot_weights(memory.fields["score"]), len(labels), generator)
        probability = replacement_probability(scores, memory.fields["score"][slots])
        draws = torch.rand(len(labels), generator=generator, device=memory.device)
        accepted = (of_batch < 0) & (draws < probability)
        memory.write(torch.where(accepted, slots, memory.bin), images, labels, score=scores)
        memory.advance(len(labels))

    def redundancy(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """max_j cos(g, G_j) of each image and of the batch as a whole, in float32 or TF32.

        In eval mode the gradient of the batch is the mean of those of its images. The memory's
        gradients are compared a few at a time, which bounds the memory they take.
        """
        new = len(labels)
        first, *others = self.memory_slots().split(BATCHES_AT_ONCE)
        gradients = self.gradients(images, labels, first)
        products = inner_products(gradients, gradients)
        of_images, within = [rows[:new] for rows in gradients], products[:new, :new]
        highest = [highest_cosines(within, products[:new, new:], products.diagonal()[new:])]
        for slots in others:
            of_memory = self.gradients(images[:0], labels[:0], slots)
            products = inner_products(of_images, of_memory)
            squares = inner_products(of_memory, of_memory).diagonal()
            highest.append(highest_cosines(within, products, squares))
        scores = torch.stack(highest).amax(dim=0)
        return scores[:-1], scores[-1]

    def gradients(self, images: Tensor, labels: Tensor, slots: Tensor) -> list[Tensor]:
        """Gradients of single images, then of batches of stored ones, (n + batches, …) each."""
        stored = self.memory.take(slots.flatten())
        count_images(len(labels) + slots.numel())
        return group_gradients(
            self.network,
            self.normalise(torch.cat([images, stored.images])),
            torch.cat([labels, stored.labels]),
            Groups(len(labels), len(slots)),
            autocast=torch.bfloat16 if self.context.precision == "bf16" else None,
        )

    def memory_slots(self) -> Tensor:
        """Slots (k, size) of disjoint random batches of the memory, whose gradients are G_j."""
        memory, settings = self.memory, self.settings
        size = min(settings.gradient_batch, len(memory))
        count = min(settings.gradient_batches, len(memory) // size)
        shuffled = torch.randperm(
            len(memory), generator=self.random["memory"], device=memory.device
        )
        return shuffled[: count * size].view(count, size)


def highest_cosines(within: Tensor, products: Tensor, squares: Tensor) -> Tensor:
    """max_j cos(g, G_j) of gradients g_i and of their mean, (n + 1,); 0 where one is zero.

    Args:
        within: ⟨g_i, g_j⟩, (n, n).
        products: ⟨g_i, G_j⟩, (n, k).
        squares: |G_j|², (k,).
    """
    products = torch.cat([products, products.mean(dim=0, keepdim=True)])
    of_mean = within.mean().clamp(min=0)  # rounding can make it negative
    lengths = torch.cat([within.diagonal(), of_mean[None]]).sqrt()
    return (products / (lengths[:, None] * squares.sqrt()).clamp(min=1e-8)).amax(dim=1)
