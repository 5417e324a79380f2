"""Predictions of a network that learned rotations as classes."""

import torch
from torch import Tensor

from onpro.augment import rotations
from onpro.nn.network import Network


def scores_of_rotations(network: Network, images: Tensor) -> Tensor:
    """Scores (n, classes) of network input, the mean over all rotations that are classes.

    Each rotation of an image is scored by the outputs of that rotation.
    """
    blocks = network.outputs_per_class
    scores = [
        network.outputs(turned)[:, turn::blocks]
        for turn, turned in enumerate(rotations(images, blocks).chunk(blocks))
    ]
    return torch.stack(scores).mean(dim=0)
