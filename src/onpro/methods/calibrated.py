"""Predictions with the batch-norm statistics of the stored images, for methods with a classifier.

After Wu and Johnson, "Rethinking 'Batch' in BatchNorm", 2021, who estimate them after training.
"""

from collections.abc import Hashable, Mapping
from copy import deepcopy
from typing import Any

from onpro.augment import rotations
from onpro.methods.base import EVAL_BATCH, Context, Method
from onpro.methods.registry import register_wrapper
from onpro.methods.settings import Settings
from onpro.methods.wrapper import Wrapper
from onpro.nn.batch_norm import collecting_statistics
from onpro.nn.network import Network
from onpro.nn.teacher import widen


class Copy:
    """A network to calibrate, and the moment of learning that it was last calibrated at.

    It has no state: it follows from the method's network and memory.
    """

    def __init__(self, network: Network) -> None:
        self.network = deepcopy(network).requires_grad_(False)
        self.moment: Hashable = None

    def take(self, network: Network) -> None:
        """Become equal to a network."""
        widen(self.network, network.classifier.out_features)
        self.network.load_state_dict(network.state_dict())


@register_wrapper(
    "calibrated",
    Settings,
    title="statistics of the memory",
    paper='Rethinking "Batch" in BatchNorm',
    year=2021,
    images_per_step="as many; the memory before predictions",
)
class Calibrated(Wrapper[Settings]):
    """Predicts with batch-norm statistics of all stored images, as they are.

    Running statistics follow the images of training, which are augmented and often those of the
    current task. A network that learns rotations as classes sees the stored images in all of them,
    as in training.
    """

    keeps_loss = True
    is_last = True
    predicts_from_memory = True

    def __init__(self, settings: Settings, context: Context) -> None:
        super().__init__(settings, context)
        self.calibrated = Copy(self.network)

    @classmethod
    def refusal(cls, base: type[Method[Any]]) -> str | None:
        """Refuse methods that have no classifier, or no memory of the usual kind."""
        if not base.has_plain_memory:
            return "whose memory is not of the usual kind"
        if base.predicts_from_memory:
            return "which predicts from its memory already"
        return super().refusal(base)

    @property
    def predictor(self) -> Network:
        """A calibrated copy of the network that predicts, made anew after each step."""
        copy, memory = self.calibrated, self.memory
        if not len(memory):
            return super().predictor
        if copy.moment != self.moment:
            copy.moment = None  # an error leaves half the statistics
            copy.take(super().predictor)
            blocks = copy.network.outputs_per_class
            with copy.network.evaluating(), collecting_statistics(copy.network):
                for images in memory.image_batches(EVAL_BATCH):
                    for turned in rotations(self.normalise(images), blocks).chunk(blocks):
                        copy.network(turned)
            copy.moment = self.moment
        return copy.network

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state."""
        super().load_state_dict(state)
        self.calibrated.moment = None
