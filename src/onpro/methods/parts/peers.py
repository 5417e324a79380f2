"""Two learners on one stream and one memory that teach each other."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from onpro.methods.base import Context, Labelled, Method, S, Terms
from onpro.methods.parts.added import PEER, AddedLoss, of_each
from onpro.methods.parts.momentum import MomentumTaught
from onpro.randomness import derive_seed
from onpro.streams import Batch

SHARED = ("progress", "memory", "known", "task_steps")
"""Parts that both learners have in common."""


class Peers(AddedLoss[S]):
    """The wrapped method, and a peer that is another one of its kind.

    Both learn from the same images and the same memory, each with its network, its optimizer and
    its random numbers. Subclasses define `added_terms`: what learners are shown, and what one takes
    from the other. The mean of both scores predicts.
    """

    is_last = True
    same_start: ClassVar[bool] = False
    """Whether both start from the same network, including outputs added later."""

    def __init__(self, settings: S, context: Context) -> None:
        super().__init__(settings, context)
        self.peer = self._make_peer()

    def _make_peer(self) -> Any:
        """Another method of the wrapped kind."""
        kind, context = self.wrapped, self.context
        own = {field.name for field in fields(kind.settings_type)}
        settings = {name: value for name, value in vars(self.settings).items() if name in own}
        peer = kind(
            kind.settings_type(**settings),
            replace(context, seed=derive_seed(context.seed, "peer"), memory=1),
        )
        for name in SHARED:
            if hasattr(peer, name):
                setattr(peer, name, getattr(self, name))
        if self.same_start:
            peer.network.load_state_dict(self.network.state_dict())
            if isinstance(peer, MomentumTaught):  # its average, too
                peer.start_average()
        return peer

    @property
    def learners(self) -> Sequence[Method[Any]]:
        """This method and the peer."""
        return self, self.peer

    def terms(self, *samples: Any) -> Terms:
        """The terms of the wrapped method's loss, of both learners."""
        return of_each([super().terms(*samples), self.peer.terms(*samples)])

    def added_terms(self, new: Labelled, old: Labelled | None = None, *mixed: Any) -> Terms:
        """The terms that wrappers inside add, of both learners."""
        return of_each(
            [super().added_terms(new, old, *mixed), self.peer.added_terms(new, old, *mixed)]
        )

    def minimise(self, terms: Terms) -> None:
        """One optimizer step of each learner, down the gradient of its terms."""
        theirs = {name: term for name, term in terms.items() if name.startswith(PEER)}
        super().minimise({name: term for name, term in terms.items() if name not in theirs})
        self.peer.minimise(theirs)

    def scores(self, images: Tensor) -> Tensor:
        """Scores (n, classes) of both learners together."""
        return self.combined(torch.stack([super().scores(images), self.peer.scores(images)]))

    def combined(self, scores: Tensor) -> Tensor:
        """The mean of scores (learners, n, classes)."""
        return scores.mean(dim=0)

    @property
    def predicting_parts(self) -> tuple[str, ...]:
        """The peer too."""
        return (*super().predicting_parts, "peer")

    def after_step(self, batch: Batch) -> None:
        """Handle a batch on the host after each step, for both learners."""
        super().after_step(batch)
        self.peer.after_step(batch)

    def start_task(self) -> None:
        """Prepare both learners for a task."""
        super().start_task()
        self.peer.start_task()

    def end_task(self) -> None:
        """Finish a task of both learners."""
        super().end_task()
        self.peer.end_task()

    def grow(self, classes: int) -> None:
        """Make room for classes in both networks."""
        self._start_outputs_alike()
        super().grow(classes)
        self.peer.grow(classes)

    def forget(self, label: int) -> None:
        """Drop a class from both learners."""
        self._start_outputs_alike()
        super().forget(label)
        self.peer.forget(label)

    def _start_outputs_alike(self) -> None:
        """Let new outputs of both networks start alike, where the networks did."""
        if self.same_start:
            self.peer.random["growth"].set_state(self.random["growth"].get_state())

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes; what both learners have in common is saved once."""
        state = super().state_dict()
        state["peer"] = {name: part for name, part in state["peer"].items() if name not in SHARED}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state."""
        shared = {name: state[name] for name in SHARED if name in state}
        super().load_state_dict({**state, "peer": {**state["peer"], **shared}})
