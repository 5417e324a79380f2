"""ER, experience replay (Chaudhry et al., 2019): train on the new batch and a replay batch."""

from collections.abc import Hashable
from dataclasses import dataclass

from torch.nn.functional import cross_entropy

from onpro.methods.base import Context, Labelled, Method, Terms
from onpro.methods.registry import register
from onpro.methods.settings import ReplaySettings
from onpro.recipes import FRAMEWORK, IMAGENET, PAPER, TUNED
from onpro.streams import Batch


@dataclass(frozen=True)
class ERSettings(ReplaySettings):
    """Settings of ER."""


@register(
    "er",
    ERSettings,
    title="Experience replay",
    paper="On Tiny Episodic Memories in Continual Learning",
    year=2019,
    memory="images, batch reservoir",
    inference="linear head",
    images_per_step="74",
    data=IMAGENET,
    recipes={"paper": PAPER, "tuned": TUNED, "original": FRAMEWORK},
)
class ER(Method[ERSettings]):
    """L = CE(X) + CE(Xb): two means, so 10 new images weigh as much as 64 old ones."""

    remembers = True
    takes_added_terms = True
    has_plain_loss = True

    def __init__(self, settings: ERSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.network = self.make_network()
        self.optimizer = settings.make_optimizer(self.network.parameters())
        self.memory = self.make_memory()

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
        """CE of new and of replayed images, each in a forward pass of its own."""
        views = [self.augment(samples.images) for samples in (new, old) if len(samples.labels)]
        of_new, *of_old = self.network.logits_each(*views)
        terms = {"new": cross_entropy(of_new, new.labels)}
        if of_old:  # something is stored
            terms["replay"] = cross_entropy(of_old[0], old.labels)
        return terms
