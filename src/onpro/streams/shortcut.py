"""The settings of a shortcut: a cue painted into training images that tells classes apart.

Importing it imports neither torch nor NumPy.
"""

from dataclasses import dataclass

from onpro.errors import UserError


@dataclass(frozen=True)
class ShortcutSettings:
    """A coloured patch in a share of each class's training images.

    The cue of a class is its position within its task, so that every task uses the same cues, each
    time with another meaning. See `docs/shortcuts.md`.
    """

    share: float
    """Share of the training images of each class that have the cue, above 0, at most 1."""
    size: float = 0.2
    """Edge of the patch as a share of the image's shorter edge."""
    strength: float = 1.0
    """Opacity of the patch."""

    def __post_init__(self) -> None:
        for name, value, high in (
            ("share", self.share, 1.0),
            ("size", self.size, 0.5),
            ("strength", self.strength, 1.0),
        ):
            if not 0 < value <= high:
                raise UserError(
                    f"the {name} of a shortcut must be above 0 and at most {high:g}, not {value:g}."
                )
