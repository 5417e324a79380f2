"""A small model of timm whose weights are in a file."""

from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import timm
from safetensors.torch import save_file

from onpro.nn import seeded

MODEL = "test_resnet"


@cache
def weights(classes: int = 3) -> Path:
    """A file with random weights of the model, with a classifier of so many classes."""
    path = Path(mkdtemp(prefix="onpro-weights-")) / f"{MODEL}-{classes}.safetensors"
    with seeded(7):
        save_file(timm.create_model(MODEL, num_classes=classes).state_dict(), path)
    return path


def pretrained(learning_rate: float = 0.0) -> dict[str, Any]:
    """Settings of a method with the model as its encoder, for images of 16×16."""
    return {
        "encoder": f"timm:{MODEL}",
        "encoder_weights": str(weights()),
        "encoder_image_size": 16,
        "encoder_learning_rate": learning_rate,
    }
