"""One run in memory: training loop, device and precision, evaluation, checkpoints."""

from onpro.training.checkpoint import Checkpoints, CheckpointWriter, Stopped, require_interval
from onpro.training.device import pick_device, pick_precision
from onpro.training.engine import Engine, pick_engine
from onpro.training.evaluation import CueRates, accuracies, confusion_matrix
from onpro.training.metrics import CueMetrics, CurvePoint, Metrics, anytime_accuracy
from onpro.training.observers import Checkpointer, EvaluationEvent, Listener, Probe, StepEvent
from onpro.training.trainer import Trainer

__all__ = [
    "CheckpointWriter",
    "Checkpointer",
    "Checkpoints",
    "CueMetrics",
    "CueRates",
    "CurvePoint",
    "Engine",
    "EvaluationEvent",
    "Listener",
    "Metrics",
    "Probe",
    "StepEvent",
    "Stopped",
    "Trainer",
    "accuracies",
    "anytime_accuracy",
    "confusion_matrix",
    "pick_device",
    "pick_engine",
    "pick_precision",
    "require_interval",
]
