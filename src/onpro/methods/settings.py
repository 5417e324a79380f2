"""Settings that methods share, and how a bad value is refused."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Literal, get_type_hints

import torch
from torch import Tensor

from onpro import augment, nn
from onpro.data.registry import LARGEST_SIDE
from onpro.errors import UserError
from onpro.nn.optimizers import SGD, Adam, AdamW
from onpro.nn.pretrained import own_rate
from onpro.validation import described, fits

MAX_NUMBER = 1e9
"""A number beyond this is a slip: nothing is counted or weighed in billions."""

MIN_TEMPERATURE = 1e-3
"""Similarities divided by less leave no usable gradient."""

MAX_DIMENSION = 2**16
"""Of a projection; far more than any encoder has features."""

PRETRAINED: dict[str, Any] = {
    "encoder_weights": "",
    "encoder_image_size": 0,
    "encoder_learning_rate": 0.0,
}
"""Settings of pretrained encoders, with the values that other encoders have."""


@dataclass(frozen=True)
class Settings:
    """Settings that every method has."""

    encoder: str = "resnet18"
    """Network that sees the images: resnet18, resnet18-4x4, resnet18-nf20, resnet18-imagenet, slim,
    or a pretrained one of timm, such as timm:resnet18.a1_in1k (default from the paper)."""

    augmentation: str = "ocm"
    """How training images are augmented: none, ocm, crop, scr, dvc, gsa, mose, or several joined by
    + (default from the paper: resized crop, flip, gray)."""

    encoder_weights: str = ""
    """File with the weights of a timm encoder, safetensors or torch (default ours: timm's own, from
    the cache of Hugging Face, else downloaded)."""

    encoder_image_size: int = 0
    """Side to which images are resized for a timm encoder; 0: as it was pretrained
    (default ours)."""

    encoder_learning_rate: float = 0.0
    """Learning rate of a timm encoder; 0: it is frozen, and only what is on top of it learns
    (default ours)."""

    def check(self) -> None:
        """Refuse values that cannot work; called before anything is built.

        Here what holds for all settings: each is of its type, numbers are finite and not absurdly
        large, and what is named exists.
        """
        hints = get_type_hints(type(self))
        for name, value in ((field.name, getattr(self, field.name)) for field in fields(self)):
            said, hint = _spoken(name), hints[name]
            require(fits(value, hint), f"the {said} must be {described(hint)}, not {value!r}.")
            require(_measured(value), f"the {said} must be finite and at most 1e9, not {value!r}.")
        augment.parts_of(self.augmentation)
        if nn.is_pretrained(self.encoder):
            self.require_between(0, LARGEST_SIDE, "encoder_image_size")
            self.require_at_least(0, "encoder_learning_rate")
            self.pretrained.check()
            return
        nn.encoder_kind(self.encoder)
        for name, usual in PRETRAINED.items():
            require(
                getattr(self, name) == usual,
                f"{name} is for pretrained encoders: set the encoder to timm:NAME.",
            )

    @property
    def pretrained(self) -> nn.Pretrained:
        """The pretrained encoder, if it is one."""
        return nn.Pretrained(
            self.encoder, self.encoder_weights, self.encoder_image_size, self.encoder_learning_rate
        )

    def parameter_groups(self, parameters: Iterable[Tensor]) -> list[Any]:
        """Parameters for an optimizer; those of a pretrained encoder have its learning rate."""
        every = list(parameters)
        own = [parameter for parameter in every if own_rate(parameter) is not None]
        if not own:
            return every
        others = [parameter for parameter in every if own_rate(parameter) is None]
        return [{"params": others}, {"params": own, "lr": self.encoder_learning_rate}]

    def require_between(self, low: float, high: float, *names: str) -> None:
        """Refuse settings outside low…high, ends included."""
        for name in names:
            value = getattr(self, name)
            wanted = f"between {low:g} and {high:g}" if high < math.inf else f"at least {low:g}"
            require(low <= value <= high, f"the {_spoken(name)} must be {wanted}, not {value}.")

    def require_at_least(self, low: float, *names: str) -> None:
        """Refuse settings below a bound."""
        self.require_between(low, math.inf, *names)

    def require_above(self, low: float, *names: str) -> None:
        """Refuse settings that are not above a bound."""
        for name in names:
            value = getattr(self, name)
            require(value > low, f"the {_spoken(name)} must be above {low:g}, not {value}.")


@dataclass(frozen=True)
class OptimizerSettings(Settings):
    """Settings of an optimizer."""

    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    """What takes the steps: sgd (default from the paper), adam or adamw."""

    learning_rate: float = 0.1
    """Length of the optimizer's steps (default from the paper, for SGD)."""

    momentum: float = 0.0
    """Momentum of SGD; Adam and AdamW have averages of their own (default from the paper)."""

    weight_decay: float = 0.0
    """Weight decay, added to the gradient (adamw: to the step) (default from the paper)."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        super().check()
        self.require_above(0, "learning_rate")
        self.require_at_least(0, "weight_decay")
        require(0 <= self.momentum < 1, "the momentum must be at least 0 and below 1.")
        require(
            self.optimizer == "sgd" or self.momentum == 0,
            "momentum is for SGD: leave it at 0, or set the optimizer to sgd.",
        )

    def make_optimizer(self, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
        """The optimizer, whose step is one fused kernel."""
        groups = self.parameter_groups(parameters)
        rate, decay = self.learning_rate, self.weight_decay
        if self.optimizer != "sgd":
            kind = AdamW if self.optimizer == "adamw" else Adam
            return kind(groups, rate, weight_decay=decay, fused=True)
        return SGD(groups, rate, momentum=self.momentum, weight_decay=decay, fused=True)


@dataclass(frozen=True)
class AdamSettings(Settings):
    """Settings of a method that replays stored images and trains with Adam."""

    learning_rate: float = 1e-3
    """Learning rate of Adam (default from the paper)."""

    weight_decay: float = 1e-4
    """Weight decay of Adam, added to the gradient (default from the paper)."""

    betas: tuple[float, float] = (0.9, 0.99)
    """Betas of Adam (default from the official code)."""

    replay_batch: int = 64
    """Number of stored images replayed with each batch (default from the paper)."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        super().check()
        self.require_above(0, "learning_rate")
        self.require_at_least(0, "weight_decay")
        self.require_at_least(1, "replay_batch")
        require(all(0 <= b < 1 for b in self.betas), "betas must be at least 0 and below 1.")

    @property
    def adam(self) -> type[Adam | AdamW]:
        """The kind of Adam."""
        return Adam

    def make_optimizer(self, parameters: Iterable[Tensor]) -> Adam | AdamW:
        """Adam, whose step is one fused kernel."""
        return self.adam(
            self.parameter_groups(parameters),
            self.learning_rate,
            betas=self.betas,
            weight_decay=self.weight_decay,
            fused=True,
        )


@dataclass(frozen=True)
class ReplaySettings(OptimizerSettings):
    """Settings of a method that replays stored images."""

    replay_batch: int = 64
    """Number of stored images replayed with each batch (default from the paper)."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        super().check()
        self.require_at_least(1, "replay_batch")


def require(holds: bool, sentence: str) -> None:
    """Raise the sentence as a mistake of the user unless it holds."""
    if not holds:
        raise UserError(sentence)


def _spoken(name: str) -> str:
    return name.replace("_", " ")


def _measured(value: Any) -> bool:
    """Whether a number, or each of a tuple, is finite and not absurdly large."""
    if isinstance(value, (list, tuple)):
        return all(map(_measured, value))
    return not isinstance(value, (int, float)) or abs(value) <= MAX_NUMBER
