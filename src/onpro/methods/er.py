"""ER, experience replay: train on the new batch and on a random batch of the memory.

Chaudhry et al., "On Tiny Episodic Memories in Continual Learning", 2019.
"""

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cross_entropy

from onpro.memory.reservoir import reservoir_batch
from onpro.methods.base import Context, Method, sgd, total
from onpro.methods.registry import register
from onpro.methods.settings import Settings, require
from onpro.streams import Batch


@dataclass(frozen=True)
class ERSettings(Settings):
    """Settings of ER."""

    learning_rate: float = 0.1
    """Learning rate of SGD (default from the paper)."""

    momentum: float = 0.0
    """Momentum of SGD (default from the paper)."""

    weight_decay: float = 0.0
    """Weight decay of SGD (default from the paper)."""

    replay_batch: int = 64
    """Number of stored images replayed with each batch (default from the paper)."""

    def check(self) -> None:
        """Refuse what cannot work."""
        require(self.learning_rate > 0, "the learning rate must be above 0.")
        require(0 <= self.momentum < 1, "the momentum must be at least 0 and below 1.")
        require(self.weight_decay >= 0, "the weight decay must not be negative.")
        require(self.replay_batch >= 1, "the replay batch must hold at least 1 image.")


@register(
    "er",
    ERSettings,
    title="Experience replay",
    paper="On Tiny Episodic Memories in Continual Learning",
    year=2019,
    memory="images, batch reservoir",
    inference="linear head",
    images_per_step="74",
)
class ER(Method[ERSettings]):
    """L = CE(X) + CE(Xb): two means of two forwards, so 10 new images weigh as much as 64 old."""

    def __init__(self, settings: ERSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.network = self.make_network()
        self.optimizer = sgd(
            self.network.parameters(),
            settings.learning_rate,
            settings.momentum,
            settings.weight_decay,
        )
        self.memory = self.make_memory()

    def learn(self, batch: Batch) -> dict[str, Tensor]:
        """One SGD step on the batch and a random replay batch, then the memory's update."""
        new = self.vary(self.prepare(batch.images))
        terms = {"new": cross_entropy(self.classify(new), batch.labels)}
        if len(self.memory):
            images, labels = self.draw(self.settings.replay_batch)
            terms["replay"] = cross_entropy(self.classify(self.vary(images)), labels)
        self.descend(total(terms))
        reservoir_batch(self.memory, batch.images, batch.labels, self.random["memory"])
        return terms
