"""Progress of training on a stream."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Progress:
    """Position in the stream, updated by the training loop and read by methods.

    It is on the host: reading it needs no host–device sync.
    """

    steps: int = 0
    task: int = -1
    """Number of the current task, from 0; −1 before the first."""
    task_open: bool = False
    announced: int | None = None
    """Index of the current task as announced by the stream; None if it announces none."""
    steps_in_task: int = 0
    seen: set[int] = field(default_factory=set)
    """Classes seen so far and not forgotten, those of the current batch included."""
    seen_before_task: set[int] = field(default_factory=set)
    """Classes seen before the current task."""
    images: int = 0
    """Number of training images passed through the network."""

    def state_dict(self) -> dict[str, Any]:
        """Return all fields, in a form that JSON can represent."""
        sets = {name: sorted(value) for name, value in vars(self).items() if type(value) is set}
        return vars(self) | sets

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state."""
        if state.keys() != vars(self).keys():
            raise ValueError(f"progress has {', '.join(vars(self))}, not {', '.join(state)}")
        for name, value in vars(self).items():
            setattr(self, name, set(state[name]) if type(value) is set else state[name])
