"""What is asked of the network: pure functions on tensors, float32 inside."""

from onpro.losses.cross_entropy import mixup_cross_entropy
from onpro.losses.instances import new_instance_loss, replay_instance_loss, slice_similarity
from onpro.losses.prototypes import class_means, prototype_contrast
from onpro.losses.supcon import supervised_contrast

__all__ = [
    "class_means",
    "mixup_cross_entropy",
    "new_instance_loss",
    "prototype_contrast",
    "replay_instance_loss",
    "slice_similarity",
    "supervised_contrast",
]
