"""State on the device about the stream: the classes met so far, and the steps of the task."""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from onpro.methods.base import Method, S


class KnownClasses(nn.Module):
    """Which classes have been met so far, and which before the current task.

    The masks are on the device, so that a captured step can read and update them.

    Args:
        classes: Number of classes of the network.
        device: The device.
    """

    seen: Tensor
    """(classes,) bool: classes met so far."""
    old: Tensor
    """(classes,) bool: classes met before the current task."""

    def __init__(self, classes: int, device: torch.device) -> None:
        super().__init__()
        for name in ("seen", "old"):
            self.register_buffer(name, torch.zeros(classes, dtype=torch.bool, device=device))

    @property
    def current(self) -> Tensor:
        """(classes,) bool: classes met for the first time in the current task."""
        return self.seen & ~self.old

    def meet(self, labels: Tensor) -> None:
        """Note the classes of a batch, given its labels (n,)."""
        self.seen = self.seen.index_fill(0, labels, True)

    def start_task(self) -> None:
        """Classes met so far become old."""
        self.old = self.seen.clone()

    def grow(self, classes: int) -> None:
        """Make room for more classes, none of which has been met."""
        added = (0, classes - len(self.seen))
        self.seen, self.old = pad(self.seen, added), pad(self.old, added)

    def forget(self, label: int) -> None:
        """Drop a class between two steps."""
        self.seen[label] = self.old[label] = False


class MeetsClasses(Method[S]):
    """A method that knows which classes it has met; its constructor sets `known`."""

    known: KnownClasses

    def start_task(self) -> None:
        """Classes met so far become old."""
        super().start_task()
        self.known.start_task()

    def grow(self, classes: int) -> None:
        """Make room for classes."""
        super().grow(classes)
        self.known.grow(self.network.classes)

    def forget(self, label: int) -> None:
        """Drop a class, also from the classes met."""
        super().forget(label)
        self.known.forget(label)


class TaskSteps(nn.Module):
    """Number of steps of the current task, on the device for captured steps."""

    count: Tensor
    """() int64"""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64, device=device))

    def advance(self) -> None:
        """Count a step."""
        self.count = self.count + 1

    def start_task(self) -> None:
        """Count from 0 again."""
        self.count = torch.zeros_like(self.count)


def outputs_of(classes: Tensor, outputs_per_class: int, labels: Tensor | None = None) -> Tensor:
    """Return the mask (outputs,) of the outputs of classes, and of labels if any are given.

    Args:
        classes: (classes,) bool.
        outputs_per_class: Number of outputs of each class.
        labels: (n,) outputs; negative ones do not count.
    """
    outputs = classes.repeat_interleave(outputs_per_class)
    if labels is None:
        return outputs
    spare = pad(outputs, (0, 1))  # labels below 0 go to an output that does not exist
    return spare.index_fill(0, labels.where(labels >= 0, len(outputs)), True)[:-1]
