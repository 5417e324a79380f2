"""Two learners on one stream and one memory that teach each other."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from onpro.methods.base import Labelled, Method, S, Terms
from onpro.methods.parts.added import AddedLoss
from onpro.randomness import derive_seed
from onpro.streams import Batch

SHARED = ("progress", "memory")
"""What a peer has no state of its own of."""

PEER = "peer_"
"""Begins the names of the peer's terms."""


class Peers(AddedLoss[S]):
    """The wrapped method, and a peer that is another one of its kind.

    Both learn from the same images, each with its network, its optimizer and its random numbers;
    only the first fills its memory. Subclasses define `terms`: what learners are shown, and what
    one takes from the other. The mean of both scores predicts.
    """

    is_last = True
    peer: Method[Any] | None = None

    def make_peer(self, *, same_start: bool = False) -> Method[Any]:
        """Another method of the wrapped kind, for the constructor.

        It starts from another network, or from the same one if asked for.
        """
        kind, context = self.wrapped, self.context
        own = {field.name for field in fields(kind.settings_type)}
        settings = {name: value for name, value in vars(self.settings).items() if name in own}
        peer = kind(
            kind.settings_type(**settings),
            replace(context, seed=derive_seed(context.seed, "peer"), memory=1),
        )
        peer.progress = self.progress
        if same_start:
            peer.network.load_state_dict(self.network.state_dict())
        return peer

    @property
    def learners(self) -> Sequence[Method[Any]]:
        """This method, and the peer if there is one."""
        return (self,) if self.peer is None else (self, self.peer)

    def own_terms(self, new: Labelled, old: Labelled, *others: Any) -> list[Terms]:
        """The terms of the wrapped method's loss, of each learner.

        Of a method that is nothing but cross-entropy: one mean over all images, augmented in the
        same way for both learners, once any are stored.
        """
        if not self.has_plain_loss:
            theirs: Any = self.learners[1:]
            return [
                super().terms(new, old, *others),
                *(peer.terms(new, old, *others) for peer in theirs),
            ]
        if not len(old.labels):
            return [{} for _ in self.learners]
        together = old.then(new)
        views = self.augment(together.images)
        return [
            {"ce": cross_entropy(learner.network.logits(views), together.labels)}
            for learner in self.learners
        ]

    def logits_of(self, learner: Method[Any], *views: Tensor) -> list[Tensor]:
        """Logits (n, classes) of views, each in a forward pass of its own."""
        return [self.upright(logits) for logits in learner.network.logits_each(*views)]

    def minimise(self, terms: Terms) -> None:
        """One optimizer step of each learner, down the gradient of its terms."""
        theirs = {name: term for name, term in terms.items() if name.startswith(PEER)}
        super().minimise({name: term for name, term in terms.items() if name not in theirs})
        for peer in self.learners[1:]:
            peer.minimise(theirs)

    def scores(self, images: Tensor) -> Tensor:
        """Scores (n, classes) of both learners together."""
        theirs = [peer.scores(images) for peer in self.learners[1:]]
        return self.combined(torch.stack([super().scores(images), *theirs]))

    @property
    def predicting_parts(self) -> tuple[str, ...]:
        """The peer too, if there is one."""
        return (*super().predicting_parts, *("peer" for _ in self.learners[1:]))

    def combined(self, scores: Tensor) -> Tensor:
        """The mean of scores (learners, n, classes)."""
        return scores.mean(dim=0)

    def after_step(self, batch: Batch) -> None:
        """Handle a batch on the host after each step, for both learners."""
        super().after_step(batch)
        for peer in self.learners[1:]:
            peer.after_step(batch)

    def start_task(self) -> None:
        """Prepare both learners for a task."""
        super().start_task()
        for peer in self.learners[1:]:
            peer.start_task()

    def end_task(self) -> None:
        """Finish a task of both learners."""
        super().end_task()
        for peer in self.learners[1:]:
            peer.end_task()

    def grow(self, classes: int) -> None:
        """Make room for classes in both networks."""
        super().grow(classes)
        for peer in self.learners[1:]:
            peer.grow(classes)

    def forget(self, label: int) -> None:
        """Drop a class from both learners."""
        super().forget(label)
        for peer in self.learners[1:]:
            peer.forget(label)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes; the progress is the same for both, the peer stores nothing."""
        state = super().state_dict()
        if self.peer is not None:
            state["peer"] = {
                name: part for name, part in state["peer"].items() if name not in SHARED
            }
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state."""
        if self.peer is not None:
            own = {name: getattr(self.peer, name).state_dict() for name in SHARED}
            own["progress"] = state["progress"]
            state = {**state, "peer": {**state["peer"], **own}}
        super().load_state_dict(state)


def of_each(terms: Sequence[Terms]) -> Terms:
    """The terms of this method and of its peer in one dictionary, as `minimise` expects them."""
    own, *theirs = terms
    return own | {PEER + name: term for peer in theirs for name, term in peer.items()}
