"""ASER, adversarial Shapley value experience replay: replay, and keep, what neighbours value.

Shim et al., "Online Class-Incremental Continual Learning with Adversarial Shapley Value", AAAI
2021.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from onpro.losses import NO_CLASS
from onpro.memory import retrieval
from onpro.memory.shapley import Points, adversarial_scores, exchange, knn_shapley_values
from onpro.methods.base import Context, Labelled, Method, Terms
from onpro.methods.parts.sets import joined
from onpro.methods.registry import register
from onpro.methods.settings import ReplaySettings
from onpro.recipes import FRAMEWORK, IMAGENET, PAPER
from onpro.streams import Batch


@dataclass(frozen=True)
class ASERSettings(ReplaySettings):
    """Settings of ASER."""

    replay_batch: int = 64
    """Largest number of stored images replayed with each batch; once the memory has overflowed,
    also at most `samples_per_class`, rounded down, of each class (default from the paper)."""

    neighbours: int = 3
    """K of the nearest-neighbour classifier whose Shapley values are computed (default from the
    paper)."""

    samples_per_class: float = 1.5
    """Stored images of each class, rounded down, that are candidates for replay and that values
    are evaluated at; this times the number of classes, rounded down, are candidates for being
    replaced (default from the paper)."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        super().check()
        self.require_at_least(1, "neighbours", "samples_per_class")


@register(
    "aser",
    ASERSettings,
    title="Adversarial Shapley value experience replay",
    paper="Online Class-Incremental Continual Learning with Adversarial Shapley Value",
    year=2021,
    memory="images, by Shapley value",
    inference="linear head",
    images_per_step="up to 74, and 20 + 4.5 for each class without gradient",
    data=IMAGENET,
    recipes={
        "paper": PAPER,
        "original": FRAMEWORK,
        "original-cifar10": FRAMEWORK.varied(
            "the framework's runs on CIFAR-10: nine samples of each class", samples_per_class=9.0
        ),
        "original-cifar100": FRAMEWORK.varied(
            "the framework's runs on CIFAR-100: two samples of each class", samples_per_class=2.0
        ),
    },
)
class ASER(Method[ASERSettings]):
    """L = CE(Xb and X), one mean; Xb stands for its classes and lies among new images of others."""

    takes_added_terms = True

    def __init__(self, settings: ASERSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.network = self.make_network()
        self.optimizer = settings.make_optimizer(self.network.parameters())
        self.memory = self.make_memory()

    def learn(self, batch: Batch) -> Terms:
        """One optimizer step on retrieved and new images together, then the memory update."""
        new = Labelled(self.normalise(batch.images), batch.labels)
        old = self.retrieve(batch.images, batch.labels)
        terms = self.descend(lambda: self.terms(new, old) | self.added_terms(new, old))
        self.update_memory(batch.images, batch.labels)
        return terms

    def course(self) -> Hashable:
        """The number of classes to sample from."""
        return len(self.progress.seen)

    def terms(self, new: Labelled, old: Labelled) -> Terms:
        """CE of replayed and new images in one forward pass, except where there is no label."""
        images, labels = self.augment(new.images), new.labels
        if len(old.labels):
            images = torch.cat([self.augment(old.images), images])
            labels = torch.cat([old.labels, labels])
        logits = self.network.logits(images)
        return {"ce": cross_entropy(logits, labels, ignore_index=NO_CLASS)}

    # What is replayed

    def retrieve(self, images: Tensor, labels: Tensor) -> Labelled:
        """Random images until the memory has overflowed, then those of highest value.

        How many images of a class are stored is known to the device alone. In place of images that
        do not exist, others are repeated without a label.
        """
        memory, most = self.memory, self.settings.replay_batch
        if not memory.overflowed:
            return self.sample_replay(most)
        slots, exists = self.sample_each_class()
        partners, partners_exist = self.sample_each_class(exclude=self.marked(slots, exists))
        of_slots, of_partners, of_new = self.features(
            memory.take(slots).images, memory.take(partners).images, images
        )
        scores = adversarial_scores(
            candidates=Points(of_slots, memory.labels[slots], exists),
            cooperative=Points(of_partners, memory.labels[partners], partners_exist),
            adversarial=Points(of_new, labels, torch.ones_like(labels, dtype=torch.bool)),
            neighbours=self.settings.neighbours,
        )
        best = scores.argsort(descending=True, stable=True)[:most]
        replay = memory.take(slots[best])
        labels = replay.labels.masked_fill(~exists[best], NO_CLASS)
        return joined(Labelled(self.normalise(replay.images), labels))

    def sample_each_class(self, exclude: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Random slots of every class in the memory, and which of them count: the first ones.

        Args:
            exclude: (fill,) bool, slots not to be sampled.
        """
        memory = self.memory
        count = min(math.floor(self.settings.samples_per_class), memory.capacity)
        slots, exists = retrieval.per_class(
            memory, count, self.network.classes, self.random["memory"], exclude
        )
        existing_first = (~exists).to(torch.uint8).argsort(stable=True)
        first = existing_first[: min(count * len(self.progress.seen), len(memory))]
        return slots[first], exists[first]

    def marked(self, slots: Tensor, exists: Tensor) -> Tensor:
        """(fill,): whether a slot is among those that exist."""
        marks = torch.zeros(self.memory.fill + 1, dtype=torch.bool, device=slots.device)
        return marks.index_fill_(0, slots.where(exists, self.memory.fill), True)[:-1]

    # What is kept

    def update_memory(self, images: Tensor, labels: Tensor) -> None:
        """Fill free slots in order; then let values decide which images stay."""
        memory = self.memory
        fitting = min(len(labels), memory.free)
        first = torch.arange(memory.fill, memory.fill + fitting, device=labels.device)
        memory.write(first, images[:fitting], labels[:fitting])
        memory.advance(fitting)
        if fitting < len(labels):
            images, labels = images[fitting:], labels[fitting:]
            memory.write(self.slots_of_new(images, labels), images, labels)
            memory.advance(len(labels))

    def slots_of_new(self, images: Tensor, labels: Tensor) -> Tensor:
        """Slots (n,) of new images in a full memory, `memory.bin` for those of least value."""
        memory = self.memory
        judges, judges_exist = self.sample_each_class()
        count = math.floor(self.settings.samples_per_class * self.network.classes)
        others = ~self.marked(judges, judges_exist)
        slots, exists = retrieval.where(memory, others, count, self.random["memory"])
        of_judges, of_slots, of_new = self.features(
            memory.take(judges).images, memory.take(slots).images, images
        )
        evaluated = Points(
            torch.cat([of_judges, of_new]),
            torch.cat([memory.labels[judges], labels]),
            torch.cat([judges_exist, self.is_rare(labels)]),
        )
        candidates = Points(
            torch.cat([of_slots, of_new]),
            torch.cat([memory.labels[slots], labels]),
            torch.cat([exists, torch.ones_like(labels, dtype=torch.bool)]),
        )
        values = knn_shapley_values(evaluated, candidates, self.settings.neighbours)
        return exchange(values.sum(dim=0), exists, slots, memory.bin)

    def is_rare(self, labels: Tensor) -> Tensor:
        """(n,): whether a class's share of the memory is below a random one, U(0, 1/classes)."""
        classes, generator = self.network.classes, self.random["memory"]
        share = retrieval.class_counts(self.memory, classes) / len(self.memory)
        threshold = torch.rand(1, generator=generator, device=labels.device) / classes
        return share[labels] < threshold

    def features(self, *sets: Tensor) -> tuple[Tensor, ...]:
        """Features of sets of images as stored, in eval mode, not normalised; one forward."""
        features = self.eval_features(self.normalise(torch.cat(sets)))
        return torch.split(features, [len(images) for images in sets])
