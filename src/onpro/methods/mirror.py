"""Predictions from an image and its mirror image together, for any method."""

from torch import Tensor

from onpro.methods.registry import register_wrapper
from onpro.methods.settings import Settings
from onpro.methods.wrapper import Wrapper


@register_wrapper(
    "mirror",
    Settings,
    title="mirrored predictions",
    paper="ImageNet Classification with Deep Convolutional Neural Networks",
    year=2012,
    images_per_step="as many; twice as many to predict",
)
class Mirror(Wrapper[Settings]):
    """Predicts by the mean of the scores of an image and of its mirror image."""

    keeps_loss = True

    def eval_scores(self, images: Tensor) -> Tensor:
        """The mean of both scores (n, classes)."""
        return (super().eval_scores(images) + super().eval_scores(images.flip(-1))) / 2
