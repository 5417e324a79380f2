"""The registry of stream kinds, which say when each image of a data set arrives.

Importing it imports neither torch nor NumPy, so that lists and `--help` are quick.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from inspect import isabstract
from random import Random
from typing import Any, ClassVar, TypeVar, get_type_hints

from onpro.errors import UserError, unknown
from onpro.plugins import load_plugins
from onpro.user_file import choose, load, split_file
from onpro.validation import accepted, described, fits, require_options


@dataclass(frozen=True)
class StreamKind(ABC):
    """A kind of stream: its fields are its settings, `arrivals` is its definition.

    Values are checked and converted to the types of their fields when it is made.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    has_tasks: ClassVar[bool] = True
    """Whether the stream consists of tasks; otherwise arrival times are only an order."""
    announced: ClassVar[bool] = True
    """Whether methods are told when a task begins; only a kind with tasks can announce them."""
    separates_classes: ClassVar[bool] = False
    """Whether all images of a class arrive in its task, or never."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for field in fields(self):
            value, hint = getattr(self, field.name), hints[field.name]
            if not fits(value, hint):
                said = field.name.replace("_", " ")
                raise UserError(
                    f"the {said} of the stream {self.name} must be {described(hint)}, "
                    f"not {value!r}."
                )
            object.__setattr__(self, field.name, accepted(value, hint))
        self.check()

    def check(self) -> None:  # noqa: B027 # a kind without limits needs none
        """Refuse values that cannot work."""

    def require_between(self, low: float, high: float, *names: str) -> None:
        """Refuse settings outside low…high, ends included."""
        for name in names:
            value = getattr(self, name)
            if not low <= value <= high:
                raise UserError(
                    f"the {name.replace('_', ' ')} of the stream {self.name} must be between "
                    f"{low:g} and {high:g}, not {value:g}."
                )

    @abstractmethod
    def arrivals(
        self, labels: Sequence[int], task_of: Sequence[int], random: Random
    ) -> Sequence[float]:
        """Return the time at which each training image arrives; NaN for one that never does.

        Time t to t+1 is task t, for kinds with tasks. Images with equal times arrive in random
        order. Classes are numbered in their order of arrival.

        Args:
            labels: class of each image.
            task_of: task that each class belongs to, in ascending order.
            random: source of randomness.
        """

    def values(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        """Return the name, with the settings that differ from their defaults.

        >>> str(stream_kind("blurry")), str(stream_kind("blurry", blur=30))
        ('blurry', 'blurry (blur=30.0)')
        """
        changed = [
            f"{field.name}={value}"
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default
        ]
        return f"{self.name} ({', '.join(changed)})" if changed else self.name


_kinds: dict[str, type[StreamKind]] = {}
K = TypeVar("K", bound=StreamKind)


def register(name: str, description: str) -> Callable[[type[K]], type[K]]:
    """Register the decorated class, a frozen dataclass derived from `StreamKind`.

    The kinds of a package that names the class's module in the entry-point group `onpro.streams`
    are available like the built-in ones.

    Args:
        name: name of the kind, as `--stream` takes it.
        description: what it is, in one line.
    """
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise ValueError(f"a stream is named by words of small letters and digits: {name!r}")

    def add(cls: type[K]) -> type[K]:
        known = _kinds.get(name, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"the stream {name!r} is already registered: choose another name")
        require_options(cls, StreamKind)
        if isabstract(cls):
            raise TypeError(f"{cls.__qualname__} does not define arrivals")
        cls.name, cls.description = name, description
        _kinds[name] = cls
        return cls

    return add


def stream_kinds() -> dict[str, type[StreamKind]]:
    """Return all kinds of streams by name, third-party ones last."""
    load_plugins("onpro.streams")
    return dict(_kinds)


def find_kind(name: str) -> type[StreamKind]:
    """Return the class of a kind, named or in a file: `./late.py`, `./late.py:NAME` of several."""
    if parts := split_file(name):
        path, chosen = parts
        found = load(path, "stream", stream_kinds)
        known = choose(path, chosen, "stream", found)
        if known is None:
            raise unknown(f"stream in {path}", chosen, found)
        return found[known]
    kinds = stream_kinds()
    if name not in kinds:
        raise unknown("stream", name, kinds)
    return kinds[name]


def stream_kind(name: str, **settings: Any) -> StreamKind:
    """Make a kind of stream from its name and settings."""
    kind = find_kind(name)
    known = {field.name for field in fields(kind)}
    for setting in settings:
        if setting not in known:
            raise unknown(f"setting of the stream {name}", setting, known)
    return kind(**settings)
