"""How far a stream has been learned."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Progress:
    """Where the stream stands; the training loop keeps it, methods read it.

    All of it is on the host, so that reading it needs no host–device sync.
    """

    steps: int = 0
    task: int = -1
    """Number of the current task, from 0; −1 before the first."""
    task_open: bool = False
    announced: int | None = None
    """What the stream calls the current task."""
    steps_in_task: int = 0
    seen: set[int] = field(default_factory=set)
    """Classes met so far, those of the current batch included."""
    seen_before_task: set[int] = field(default_factory=set)
    """Classes met before the current task began."""
    images: int = 0
    """Images that went through the network in training."""

    def state_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        sets = {name: sorted(value) for name, value in vars(self).items() if type(value) is set}
        return vars(self) | sets

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state."""
        if state.keys() != vars(self).keys():
            raise ValueError(f"progress has {', '.join(vars(self))}, not {', '.join(state)}")
        for name, value in vars(self).items():
            setattr(self, name, set(state[name]) if type(value) is set else state[name])
