"""ER-ACE, experience replay with asymmetric cross-entropy.

Caccia et al., "New Insights on Reducing Abrupt Representation Change in Online Continual Learning",
ICLR 2022.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

from torch.nn.functional import cross_entropy

from onpro.losses import masked_cross_entropy
from onpro.methods.base import Context, Labelled, Terms
from onpro.methods.parts.known import KnownClasses, MeetsClasses, outputs_of
from onpro.methods.registry import register
from onpro.methods.settings import ReplaySettings
from onpro.nn.network import CosineNetwork
from onpro.recipes import FRAMEWORK, IMAGENET, SHORT_STREAMS, Recipe, on
from onpro.streams import Batch

SCALE, EPSILON = 10.0, 1e-5
"""Scale of the cosine head, and what it adds to norms, in the official code."""


@dataclass(frozen=True)
class ERACESettings(ReplaySettings):
    """Settings of ER-ACE."""

    optimizer: Literal["sgd", "adam", "adamw"] = "adamw"
    """What takes the steps: adamw (default from CCL-DC's port), adam, or sgd (the official
    code)."""

    learning_rate: float = 5e-4
    """Length of the optimizer's steps (default from CCL-DC's port, for AdamW)."""

    weight_decay: float = 1e-4
    """Weight decay, added to the gradient (adamw: to the step) (default from CCL-DC's port)."""

    head: Literal["linear", "cosine"] = "linear"
    """The classifier: linear (default from CCL-DC's and MKD's ports) or cosines times 10 (the
    official code)."""

    unseen_compete: bool = True
    """Whether new images also compete with classes not met yet (default from the official code; in
    CCL-DC's and MKD's ports nearly none of these do)."""


@register(
    "erace",
    ERACESettings,
    title="Experience replay with asymmetric cross-entropy",
    paper="New Insights on Reducing Abrupt Representation Change in Online Continual Learning",
    year=2022,
    memory="images, batch reservoir",
    inference="linear head",
    images_per_step="74",
    data={**IMAGENET, **on(SHORT_STREAMS, learning_rate=5e-3)},
    recipes={
        "original": FRAMEWORK.varied(
            "its own code's numbers, without augmentation",
            optimizer="sgd",
            learning_rate=0.1,
            weight_decay=0.0,
            head="cosine",
        ),
        "port": Recipe(
            "CCL-DC's port: new images compete with the classes of their batch alone; crop, flip",
            {"augmentation": "crop", "unseen_compete": False},
        ),
    },
)
class ERACE(MeetsClasses[ERACESettings]):
    """L = CE(X; classes of X and, by default, unseen ones) + CE(Xb; all classes)."""

    remembers = True
    takes_added_terms = True

    def __init__(self, settings: ERACESettings, context: Context) -> None:
        super().__init__(settings, context)
        if settings.head == "cosine":
            self.network = self.make_network(kind=CosineNetwork, scale=SCALE, epsilon=EPSILON)
        else:
            self.network = self.make_network()
        self.optimizer = settings.make_optimizer(self.network.parameters())
        self.memory = self.make_memory()
        self.known = KnownClasses(self.network.classes, context.device)

    def learn(self, batch: Batch) -> Terms:
        """One optimizer step on the batch and a random replay batch, then the memory update."""
        new = Labelled(self.normalise(batch.images), batch.labels)
        old = self.sample_replay(self.settings.replay_batch)
        terms = self.descend(lambda: self.terms(new, old) | self.added_terms(new, old))
        self.remember(batch)
        return terms

    def course(self) -> Hashable:
        """The same in every task."""
        return ()

    def terms(self, new: Labelled, old: Labelled) -> Terms:
        """CE of new and of replayed images, each in a forward pass of its own.

        New images do not compete with classes that were met before and are not in the batch, so
        that they do not push the features of these away.
        """
        per_class = self.network.outputs_per_class
        self.known.meet(new.labels // per_class)
        unseen = ~self.known.seen & self.settings.unseen_compete
        competing = outputs_of(unseen, per_class, new.labels)
        views = [self.augment(samples.images) for samples in (new, old) if len(samples.labels)]
        of_new, *of_old = self.network.logits_each(*views)
        terms = {"new": masked_cross_entropy(of_new, new.labels, competing)}
        if of_old:
            terms["replay"] = cross_entropy(of_old[0], old.labels)
        return terms
