"""What every method's settings have in common, and how a bad value is refused."""

from dataclasses import dataclass, fields
from typing import Any, get_type_hints

from onpro import augment, nn
from onpro.errors import UserError
from onpro.methods.typed import described, fits

MOST = 1e9
"""A number beyond this is a slip: nothing is counted or weighed in billions."""

LEAST_TEMPERATURE = 1e-3
"""What is divided by less leaves no gradient that can be followed."""

MOST_DIMENSIONS = 2**16
"""Of a projection; far more than any encoder has features."""


@dataclass(frozen=True)
class Settings:
    """Settings that every method has."""

    encoder: str = "resnet18"
    """Network that sees the images: resnet18, resnet18-nf20, resnet18-imagenet or slim
    (default from the paper)."""

    augmentation: str = "ocm"
    """How training images are varied: none, ocm, crop, scr, dvc, or several joined by + (default
    from the paper: resized crop, flip, gray)."""

    def check(self) -> None:
        """Refuse values that cannot work, with a sentence; called before anything is built.

        Here what holds for all settings: each is of its type, numbers are finite and not absurdly
        large, and what is named exists.
        """
        hints = get_type_hints(type(self))
        for name, value in ((field.name, getattr(self, field.name)) for field in fields(self)):
            said, hint = name.replace("_", " "), hints[name]
            require(fits(value, hint), f"the {said} must be {described(hint)}, not {value!r}.")
            require(_measured(value), f"the {said} must be finite and at most 1e9, not {value!r}.")
        nn.encoder_kind(self.encoder)
        augment.parts_of(self.augmentation)


def _measured(value: Any) -> bool:
    """Whether a number, or each of a tuple, is finite and not beyond all measure."""
    if isinstance(value, (list, tuple)):
        return all(map(_measured, value))
    return not isinstance(value, (int, float)) or abs(value) <= MOST


def require_temperature(value: float, name: str = "temperature") -> None:
    """Refuse a temperature so low that similarities divided by it overwhelm everything."""
    require(
        value >= LEAST_TEMPERATURE,
        f"the {name} must be at least {LEAST_TEMPERATURE}, not {value}.",
    )


def require_dimension(value: int, name: str) -> None:
    """Refuse a dimension that a space cannot have; 0 stands for none."""
    require(
        0 <= value <= MOST_DIMENSIONS,
        f"the {name}'s dimension must lie between 0 and {MOST_DIMENSIONS}, not {value}.",
    )


def require(holds: bool, sentence: str) -> None:
    """Raise the sentence as a mistake of the user unless it holds."""
    if not holds:
        raise UserError(sentence)
