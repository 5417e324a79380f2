"""Losses: pure functions on tensors, computed in float32 or better."""

from onpro.losses.classification import (
    agreement_loss,
    gradient_magnitude,
    marginal_entropy_loss,
    masked_cross_entropy,
    mixup_cross_entropy,
    mixup_losses,
    view_cross_entropy,
)
from onpro.losses.contrastive import (
    new_instance_loss,
    previous_instance_loss,
    proxy_contrast,
    replay_instance_loss,
    slice_similarity,
    supervised_contrast,
)
from onpro.losses.distillation import (
    binary_targets,
    feature_distance,
    known_logits_error,
    label_logits_error,
    relation_cross_entropy,
    softened_divergence,
    summed_binary_cross_entropy,
)
from onpro.losses.precision import MASKED_LOGIT
from onpro.losses.prototypes import (
    NO_CLASS,
    class_means,
    prototype_contrast,
    pseudo_prototypical_loss,
    spread,
)

__all__ = [
    "MASKED_LOGIT",
    "NO_CLASS",
    "agreement_loss",
    "binary_targets",
    "class_means",
    "feature_distance",
    "gradient_magnitude",
    "known_logits_error",
    "label_logits_error",
    "marginal_entropy_loss",
    "masked_cross_entropy",
    "mixup_cross_entropy",
    "mixup_losses",
    "new_instance_loss",
    "previous_instance_loss",
    "prototype_contrast",
    "proxy_contrast",
    "pseudo_prototypical_loss",
    "relation_cross_entropy",
    "replay_instance_loss",
    "slice_similarity",
    "softened_divergence",
    "spread",
    "summed_binary_cross_entropy",
    "supervised_contrast",
    "view_cross_entropy",
]
