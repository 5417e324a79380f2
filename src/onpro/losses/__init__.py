"""What is asked of the network: pure functions on tensors, in float32 or better."""

from onpro.losses.cross_entropy import mixup_cross_entropy
from onpro.losses.dvc import (
    agreement_loss,
    gradient_magnitude,
    marginal_entropy_loss,
    view_cross_entropy,
)
from onpro.losses.instances import new_instance_loss, replay_instance_loss, slice_similarity
from onpro.losses.ocm import known_logits_error, previous_instance_loss
from onpro.losses.pass_ import feature_distance
from onpro.losses.ppp import pseudo_prototypical_loss
from onpro.losses.prototypes import class_means, prototype_contrast
from onpro.losses.supcon import supervised_contrast

__all__ = [
    "agreement_loss",
    "class_means",
    "feature_distance",
    "gradient_magnitude",
    "known_logits_error",
    "marginal_entropy_loss",
    "mixup_cross_entropy",
    "new_instance_loss",
    "previous_instance_loss",
    "prototype_contrast",
    "pseudo_prototypical_loss",
    "replay_instance_loss",
    "slice_similarity",
    "supervised_contrast",
    "view_cross_entropy",
]
