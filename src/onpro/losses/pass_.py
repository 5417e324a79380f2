"""How far features have moved, as PASS measures it."""

import torch
from torch import Tensor

from onpro.losses.precision import float32


@float32
def feature_distance(features: Tensor, old: Tensor) -> Tensor:
    """‖f(x) − f_old(x)‖: one norm over all features of all images (n, features), not averaged."""
    distance: Tensor = torch.linalg.vector_norm(features - old)
    return distance
