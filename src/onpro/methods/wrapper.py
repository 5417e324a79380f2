"""Base class of wrappers, which are put in front of a method's class and change a part of it."""

from typing import Any, ClassVar

from onpro.methods.base import Method, S, Terms


class Wrapper(Method[S]):
    """A variation of any method, see `register_wrapper`; subclasses override what they change.

    `super()` is the wrapped method.
    """

    sees_classes: ClassVar[bool] = False
    """Whether it takes labels as classes, so that no other wrapper may turn them into outputs."""
    keeps_loss: ClassVar[bool] = False
    """Whether the loss of a step is that of the wrapped method."""
    is_last: ClassVar[bool] = False
    """Whether no other wrapper can be put in front of it."""
    wrapped: ClassVar[type[Method[Any]]]
    """The class of the wrapped method."""

    @classmethod
    def refusal(cls, base: type[Method[Any]]) -> str | None:
        """Return why a method cannot be wrapped, to end "X cannot wrap Y, …"; None: it can be."""
        if issubclass(base, Wrapper) and base.is_last:
            return f"since {base.about.name.rpartition('-')[2]} comes last"
        innermost = base
        while issubclass(innermost, Wrapper):
            innermost = innermost.wrapped
        if not cls.keeps_loss and not hasattr(innermost, "terms"):
            return "whose loss is not available apart from its step"
        return None

    def terms(self, *samples: Any) -> Terms:
        """The terms of the wrapped method's loss."""
        terms: Terms = super().terms(*samples)  # type: ignore[misc] # the wrapped method has it
        return terms
