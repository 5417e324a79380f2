"""What is saved with a method, and what is computed from it."""

from collections.abc import Callable, Hashable
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Stateful(Protocol):
    """Anything that can save and restore its state."""

    def state_dict(self) -> Any: ...  # noqa: D102 # the class says it

    def load_state_dict(self, state: Any, /) -> Any: ...  # noqa: D102 # the class says it


class Derived:
    """What follows from a method's state: computed when it is needed, and kept until the next step.

    It is not saved. A method that loads a state forgets it.
    """

    moment: Hashable = None
    """The `Method.moment` that it was computed at; None: it has to be computed."""

    def update(self, moment: Hashable, compute: Callable[[], None]) -> None:
        """Compute it unless that was done at this moment."""
        if self.moment != moment:
            self.moment = None  # an error leaves half of it
            compute()
            self.moment = moment
