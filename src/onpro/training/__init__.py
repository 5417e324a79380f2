"""One run: the loop, its device and precision, evaluation, what is logged."""

from onpro.training.device import pick_device, pick_precision
from onpro.training.evaluation import accuracies, confusion_matrix
from onpro.training.metrics import Metrics
from onpro.training.trainer import Evaluated, Listener, Step, Trainer

__all__ = [
    "Evaluated",
    "Listener",
    "Metrics",
    "Step",
    "Trainer",
    "accuracies",
    "confusion_matrix",
    "pick_device",
    "pick_precision",
]
