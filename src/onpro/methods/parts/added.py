"""Base class of wrappers that add a loss on all images of a step, new and replayed."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from onpro.losses import MASKED_LOGIT, NO_CLASS, mixup_losses
from onpro.methods.base import Context, Labelled, Method, S, Terms
from onpro.methods.parts import apf
from onpro.methods.parts.apf import Mixture
from onpro.methods.parts.known import KnownClasses, outputs_of
from onpro.methods.parts.shown import log_expected_counts
from onpro.methods.wrapper import Wrapper
from onpro.streams import Batch

Rivals = Literal["all", "task", "batch", "none", "shown"]
"""The classes that new images compete with in an added cross-entropy: all, those of the current
task, those of the batch and those not met yet, or none: only replayed images enter it. With
"shown", all images compete with all classes, each as much as it is shown."""

PEER = "peer_"
"""Begins the names of a peer's terms."""


def of_each(terms: Sequence[Terms]) -> Terms:
    """The terms of a method and of its peer in one dictionary, as `Peers.minimise` expects them."""
    own, *theirs = terms
    return own | {PEER + name: term for peer in theirs for name, term in peer.items()}


class AddedLoss(Wrapper[S]):
    """Adds a loss on new and replayed images together to that of a method."""

    sees_classes = True

    def __init__(self, settings: S, context: Context) -> None:
        super().__init__(settings, context)
        self.met = KnownClasses(self.network.classes, context.device)

    @classmethod
    def refusal(cls, base: type[Method[Any]]) -> str | None:
        """Refuse methods without one loss of new and replayed images."""
        if not base.takes_added_terms:
            return "whose loss of new and replayed images is not computed at once"
        return super().refusal(base)

    def learn(self, batch: Batch) -> Terms:
        """Note the classes of the batch, also of one that nothing is added for, and learn it."""
        for learner in self.learners:
            if isinstance(learner, AddedLoss):
                learner.met.meet(batch.labels)
        return super().learn(batch)  # type: ignore[safe-super] # of the wrapped method

    def replayed(self, old: Labelled | None) -> Labelled:
        """The replay batch, or a random one where the method has none to show."""
        settings: Any = self.settings
        return self.sample_replay(settings.replay_batch) if old is None else old

    def plain_terms(self, new: Labelled, old: Labelled) -> Terms:
        """Cross-entropy of all images of a step, of each learner, once any are stored.

        It takes the place of a loss that is nothing but cross-entropy: one mean over all images,
        augmented in the same way for all learners.
        """
        if not len(old.labels):
            return {}
        together = old.then(new)
        views = self.augment(together.images)
        return of_each(
            [
                {"ce": cross_entropy(learner.network.logits(views), together.labels)}
                for learner in self.learners
            ]
        )

    def logits_of(self, learner: Method[Any], *views: Tensor) -> list[Tensor]:
        """Logits (n, classes) of views, each in a forward pass of its own."""
        network = learner.network
        return [network.upright(logits) for logits in network.logits_each(*views)]

    def shown(self, new: Labelled, old: Labelled, *mixed: Mixture) -> Mixture | None:
        """The images of the added loss, or None while nothing is stored.

        New images, then replayed ones; in the first task new ones alone where the method's
        classifier learns from no others.
        """
        if self.replays_later and self.progress.task == 0:
            return apf.unmixed(*new)
        if not len(old.labels):
            return None
        return apf.unmixed(*new).then(mixed[0] if mixed else apf.unmixed(*old))

    def label_loss(self, logits: Tensor, shown: Mixture, new: int, rivals: Rivals) -> Tensor:
        """Cross-entropy of what was shown, whose first `new` images are new.

        Logits and labels are of classes, or of all their outputs. The mean is over the images that
        have a label: one that stands in for another has none.
        """
        network = self.network
        per_class = logits.shape[1] // network.classes
        if rivals == "none" and new < len(logits):
            logits, shown, new = logits[new:], shown.rows(slice(new, None)), 0
        if rivals in ("task", "batch"):
            classes = self.met.current if rivals == "task" else ~self.met.seen
            competing = outputs_of(classes, per_class, shown.first[:new])
            masked = logits[:new].masked_fill(~competing, MASKED_LOGIT)
            logits = torch.cat([masked, logits[new:]])
        if rivals == "shown":
            replayed, classes = len(logits) - new, shown.first[:new] // per_class
            counts = log_expected_counts(self.memory, classes, replayed, network.classes)
            logits = logits + counts.repeat_interleave(per_class)
        losses = mixup_losses(logits, shown.first, shown.second, shown.weight)
        return losses.sum() / (shown.first != NO_CLASS).sum().clamp(min=1)

    def start_task(self) -> None:
        """Classes met so far become old."""
        super().start_task()
        self.met.start_task()

    def grow(self, classes: int) -> None:
        """Make room for classes."""
        super().grow(classes)
        self.met.grow(self.network.classes)

    def forget(self, label: int) -> None:
        """Drop a class."""
        super().forget(label)
        self.met.forget(label)
