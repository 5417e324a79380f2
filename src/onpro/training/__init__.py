"""One run: the loop, its device and precision, evaluation, what is logged."""

from onpro.training.checkpoint import Checkpoints, Saver, Stopped, require_interval
from onpro.training.device import pick_device, pick_precision
from onpro.training.engine import Engine, pick_engine
from onpro.training.evaluation import accuracies, confusion_matrix
from onpro.training.metrics import Metrics
from onpro.training.trainer import Evaluated, Keeper, Listener, Step, Trainer

__all__ = [
    "Checkpoints",
    "Engine",
    "Evaluated",
    "Keeper",
    "Listener",
    "Metrics",
    "Saver",
    "Step",
    "Stopped",
    "Trainer",
    "accuracies",
    "confusion_matrix",
    "pick_device",
    "pick_engine",
    "pick_precision",
    "require_interval",
]
