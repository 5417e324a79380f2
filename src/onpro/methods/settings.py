"""What every method's settings have in common, and how a bad value is refused."""

from dataclasses import dataclass

from onpro.errors import UserError


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
        """Refuse values that cannot work, with a sentence; called before anything is built."""


def require(holds: bool, sentence: str) -> None:
    """Raise the sentence as a mistake of the user unless it holds."""
    if not holds:
        raise UserError(sentence)
