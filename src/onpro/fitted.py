"""A model in training: a method, and the label of each of its outputs."""

import copy
from collections.abc import Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from onpro.inputs import as_array, as_labels
from onpro.methods.base import EVAL_BATCH, Method
from onpro.methods.registry import AnyMethod
from onpro.randomness import derive_seed
from onpro.restoring import check_method
from onpro.streams import Batch
from onpro.training.engine import Engine
from onpro.training.stepper import Stepper

MODEL_FILE = "model.onpro"
"""Name of the saved classifier in the folder of a run."""


class Remembered(NamedTuple):
    """Images in a classifier's memory, uint8 (n, height, width, 3), and their labels (n,)."""

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[Any]


class FittedModel:
    """A method that learns labels of any hashable kind.

    Args:
        method: What learns; a new one.
        params: The classifier's parameters, as they are when learning begins.
        engine: How training steps are computed; a step that cannot be captured is computed eagerly.
    """

    def __init__(self, method: AnyMethod, params: dict[str, Any], engine: Engine = "eager") -> None:
        self.method = method
        self.stepper = Stepper(method, engine, lenient=True)
        self.params = params
        self.labels: dict[int, Hashable] = {}
        """The label of each output, in the order of arrival."""
        self.taken = 0
        """Number of outputs ever given to a label; those of forgotten labels are not reused."""
        self.seen = 0
        """Number of images learned from."""

    def check(self, pixels: Tensor) -> None:
        """Refuse images of another size than those learned from."""
        expected = self.method.context.image_shape
        if len(pixels) and shape_of(pixels) != expected:
            (_, height, width), (_, expected_height, expected_width) = shape_of(pixels), expected
            raise ValueError(
                f"images of {height}×{width} pixels were given, but the first had "
                f"{expected_height}×{expected_width}: make them alike, or give an image_size"
            )

    def encode(self, labels: list[Hashable]) -> tuple[list[int], dict[int, Hashable]]:
        """Return the output of each label, and the labels of new outputs.

        All code of the labels themselves (`__hash__`, `__eq__`) runs here, so that it cannot fail
        once learning has begun.
        """
        try:
            outputs = {label: output for output, label in self.labels.items()}
            known = len(outputs)
            codes = [
                outputs.setdefault(label, self.taken + len(outputs) - known) for label in labels
            ]
        except Exception as error:  # raised by the code of a label
            raise ValueError(f"labels cannot be told from each other: {error}") from error
        if len(set(zip(map(id, labels), codes, strict=True))) > len(set(map(id, labels))):
            raise ValueError("the hash of a label changes: it cannot be told from others")
        unseen = {output: label for label, output in outputs.items() if output >= self.taken}
        return codes, unseen

    def learn(self, pixels: Tensor, codes: list[int], unseen: Mapping[int, Hashable]) -> None:
        """Take one training step; new labels are known once it is done.

        Args:
            pixels: Images (n, 3, height, width).
            codes: Their outputs, from `encode`.
            unseen: The labels of new outputs, from `encode`; it may name more than this batch has.
        """
        images, labels = self._to_device(pixels), self._to_device(torch.tensor(codes))
        batch = Batch(images, labels, task=None, classes=tuple(sorted(set(codes))))
        with self._on_device():
            self.stepper.step(batch)
        taken = max(self.taken, max(codes) + 1)
        self.labels = self.labels | {k: unseen[k] for k in range(self.taken, taken)}
        self.taken = taken
        self.seen += len(codes)

    def _to_device(self, tensor: Tensor) -> Tensor:
        """Copy a tensor to the device without waiting for what the device computes."""
        device = self.method.context.device
        if device.type == "cuda" and tensor.device.type == "cpu":
            return tensor.pin_memory().to(device, non_blocking=True)
        return tensor.to(device)

    def _on_device(self) -> AbstractContextManager[object]:
        """Make the method's GPU the current one, which graphs and fused kernels need."""
        device = self.method.context.device
        return torch.cuda.device(device) if device.type == "cuda" else nullcontext()

    def forget(self, label: Hashable) -> None:
        """Drop a class; its output is not reused."""
        codes, unseen = self.encode(as_labels([label]))
        if unseen:
            name = f"{label!r} " if type(label) in (str, int, float, bool) else ""
            raise ValueError(f"the class {name}is not known: classes_ lists those to forget")
        self.stepper.forget(codes[0])
        self.labels = {k: other for k, other in self.labels.items() if k != codes[0]}

    def scores(self, pixels: Tensor) -> Tensor:
        """Return scores (n, classes) on the CPU, the classes in the order of `labels`."""
        device = self.method.context.device
        with self._on_device():
            self.stepper.settle()
            chunks = [self.method.scores(chunk.to(device)) for chunk in pixels.split(EVAL_BATCH)]
        scores = torch.cat(chunks)[:, list(self.labels)].double().cpu()
        if bool(scores.isnan().any()):
            raise FloatingPointError(
                "the network's weights are no longer finite: go back to a saved classifier, and "
                "give it a smaller learning rate"
            )
        return scores.clamp(-1e300, 1e300)  # so that a row without any finite score is uniform

    def remembered(self) -> Remembered:
        """Return copies of the images in the memory, with their labels."""
        memory = self.method.memory
        return Remembered(
            memory.images.permute(0, 2, 3, 1).cpu().numpy().copy(),
            as_array([self.labels[k] for k in memory.labels.tolist()]),
        )

    def state_dict(self) -> dict[str, Any]:
        """Return copies of everything learned."""
        context = self.method.context
        return {
            "image_shape": context.image_shape,
            "device": context.device.type,
            "labels": list(self.labels.values()),
            "outputs": list(self.labels),
            "taken": self.taken,
            "seen": self.seen,
            "method": copy.deepcopy(self.stepper.state_dict()),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state, also one of another kind of device.

        Raises:
            UnsoundError: if its parts do not fit together.
        """
        self.labels = dict(zip(state["outputs"], state["labels"], strict=True))
        self.taken, self.seen = state["taken"], state["seen"]
        learned = state["method"]
        same_device = state["device"] == self.method.context.device.type
        learned = self._adapted(self.method, learned, same_device=same_device)
        self.stepper.load_state_dict(learned)
        check_method(self.method, learned, state)

    def _adapted(
        self, method: AnyMethod, learned: Mapping[str, Any], *, same_device: bool
    ) -> dict[str, Any]:
        """Return a state of a method, and of methods inside it, as this device and precision need.

        The state of a generator is of no use on another kind of device; a generator that starts
        over would repeat its numbers.
        """
        adapted, random, scaler = dict(learned), method.random, method.scaler.state_dict()
        if not same_device:
            for purpose in learned["random"]:
                seed = derive_seed(method.context.seed, f"{purpose} after {self.seen}")
                random[purpose].manual_seed(seed)
            adapted["random"] = random.state_dict()
        if bool(learned["scaler"]) != bool(scaler):  # only fp16 scales the loss
            adapted["scaler"] = scaler
        for name, part in vars(method).items():
            if isinstance(part, Method):
                adapted[name] = self._adapted(part, learned[name], same_device=same_device)
        return adapted


def shape_of(pixels: Tensor) -> tuple[int, int, int]:
    """Return channels, height and width of images."""
    channels, height, width = pixels.shape[1:]
    return channels, height, width
