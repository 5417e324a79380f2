"""Predictions with the batch-norm statistics of the stored images, for methods with a classifier.

After Wu and Johnson, "Rethinking 'Batch' in BatchNorm", 2021, who estimate them after training.
"""

from copy import deepcopy
from typing import Any

from onpro.augment import rotations
from onpro.methods.base import EVAL_BATCH, Context, Method
from onpro.methods.registry import register_wrapper
from onpro.methods.settings import Settings
from onpro.methods.state import Derived
from onpro.methods.wrapper import Wrapper
from onpro.nn.batch_norm import collecting_statistics
from onpro.nn.network import Network
from onpro.nn.teacher import widen


class CalibratedCopy(Derived):
    """A copy of a method's network with the statistics of its memory."""

    def __init__(self, network: Network) -> None:
        self.network = deepcopy(network).requires_grad_(False)

    def calibrate(self, network: Network, method: Method[Any]) -> None:
        """Copy a network, and compute the statistics of the stored images of a method."""
        widen(self.network, network.classifier.out_features)
        self.network.load_state_dict(network.state_dict())
        blocks = self.network.outputs_per_class
        with self.network.evaluating(), collecting_statistics(self.network):
            for images in method.memory.image_batches(EVAL_BATCH):
                for turned in rotations(method.normalise(images), blocks).chunk(blocks):
                    self.network(turned)


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
        self.calibrated = CalibratedCopy(self.network)

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
        """A calibrated copy of the network that predicts."""
        network, copy = super().predictor, self.calibrated
        if not len(self.memory):
            return network
        copy.update(self.moment, lambda: copy.calibrate(network, self))
        return copy.network
