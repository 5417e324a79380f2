"""What the methods share that train on new and on replayed images."""

from dataclasses import dataclass

from onpro.methods.descent import DescentSettings
from onpro.methods.settings import require


@dataclass(frozen=True)
class ReplaySettings(DescentSettings):
    """Settings of a method that replays stored images."""

    replay_batch: int = 64
    """Number of stored images replayed with each batch (default from the paper)."""

    def check(self) -> None:
        """Refuse what cannot work."""
        super().check()
        require(self.replay_batch >= 1, "the replay batch must hold at least 1 image.")
