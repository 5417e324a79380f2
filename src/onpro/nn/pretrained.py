"""Pretrained encoders from timm."""

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from onpro.errors import UserError, unknown
from onpro.nn.encoder import Encoder
from onpro.randomness import seeded

LOG = logging.getLogger(__name__)

PREFIX = "timm:"

Channels = tuple[float, ...]
"""One number for each channel."""

_reads_weights: ContextVar[bool] = ContextVar("reads_weights", default=True)


@dataclass(frozen=True)
class Pretrained:
    """A model of timm, its weights, and how they are used."""

    name: str
    """`timm:` and the name of a model of timm, with the tag of its weights."""
    weights: str = ""
    """File of the weights; empty: timm's own."""
    image_size: int = 0
    """Side of the images that the model sees; 0: as it was trained."""
    learning_rate: float = 0.0
    """Learning rate of its weights; 0: they are frozen."""

    def check(self) -> None:
        """Raise UserError if there is no such model, or if its weights have to be named."""
        _config(self)

    @property
    def input_size(self) -> tuple[int, int]:
        """Height and width of the images that the model sees."""
        side = self.image_size
        height, width = (side, side) if side else _config(self).input_size[1:]
        return height, width

    def build(self, mean: Channels, std: Channels) -> "PretrainedEncoder":
        """Build the encoder on the CPU, with its weights unless inside `without_weights`.

        Args:
            mean: Mean that is subtracted from the images it is given.
            std: Standard deviation that they are divided by.
        """
        config = _config(self)
        model, digest = _model(self, config)
        if not self.learning_rate:
            _freeze(model)
        for parameter in model.parameters():
            parameter.learning_rate = self.learning_rate  # type: ignore[attr-defined] # `own_rate`
        own_std = torch.tensor(config.std)
        slope = torch.tensor(std) / own_std
        offset = (torch.tensor(mean) - torch.tensor(config.mean)) / own_std
        return PretrainedEncoder(model, self.input_size, slope, offset, digest)


class PretrainedEncoder(Encoder):
    """A pretrained model, which resizes and normalises images as it was trained.

    It is always in eval mode, as in prediction: batch norm uses the statistics of pretraining.

    Args:
        model: A model of timm without its classifier.
        input_size: Height and width to which images are resized.
        slope: What each channel of the images is multiplied by.
        offset: What is then added to each channel.
        digest: SHA-256 of the file of its weights; empty if they were not read.
    """

    slope: Tensor
    offset: Tensor

    def __init__(
        self,
        model: Any,
        input_size: tuple[int, int],
        slope: Tensor,
        offset: Tensor,
        digest: str,
    ) -> None:
        super().__init__()
        self.model = model
        self.input_size = input_size
        self.digest = digest
        self.out_features = int(model.head_hidden_size)
        self.stage_widths = _stage_widths(model, self.out_features)
        self.register_buffer("slope", slope[:, None, None], persistent=False)
        self.register_buffer("offset", offset[:, None, None], persistent=False)
        self.eval()

    @property
    def is_frozen(self) -> bool:
        """Whether none of its weights are trained."""
        return not any(True for _ in self.parameters())

    def train(self, mode: bool = True) -> Self:
        """Stay in eval mode."""
        return super().train(False)

    def forward(self, images: Tensor) -> Tensor:
        """Return features (n, out_features) of images (n, 3, height, width)."""
        features: Tensor = self.model(self._input(images))
        return features

    def stages(self, images: Tensor) -> list[Tensor]:
        """Return the feature maps after the last four stages."""
        maps: list[Tensor] = self.model.forward_intermediates(
            self._input(images), indices=len(self.stage_widths), intermediates_only=True
        )
        return maps

    def _input(self, images: Tensor) -> Tensor:
        images = torch.addcmul(self.offset, images, self.slope)
        if images.shape[-2:] == self.input_size:
            return images
        return interpolate(images, self.input_size, mode="bilinear", antialias=True)


def is_pretrained(encoder: str) -> bool:
    """Return whether an encoder is named `timm:NAME`."""
    return encoder.startswith(PREFIX)


def own_rate(parameter: Tensor) -> float | None:
    """Return the learning rate that a weight of a pretrained encoder has for itself, else None."""
    rate: float | None = getattr(parameter, "learning_rate", None)
    return rate


def pretrained_part(module: nn.Module) -> PretrainedEncoder | None:
    """Return the pretrained encoder of a network, if it has one."""
    return next((part for part in module.modules() if isinstance(part, PretrainedEncoder)), None)


@contextmanager
def without_weights() -> Iterator[None]:
    """Build pretrained encoders without reading their weights, since a saved state follows."""
    token = _reads_weights.set(False)
    try:
        yield
    finally:
        _reads_weights.reset(token)


def file_digest(path: str | Path) -> str:
    """Return the SHA-256 of a file of weights."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise UserError(f"there is no file {path} with weights of the encoder.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None


def _timm() -> Any:
    try:
        import timm
    except ImportError:
        raise UserError(
            "timm is not installed: pip install 'onpro[timm]', or take another encoder."
        ) from None
    return timm


@cache
def _config(wanted: Pretrained) -> Any:
    """Return timm's configuration of a model; raise UserError if there is none."""
    timm = _timm()
    name = wanted.name.removeprefix(PREFIX)
    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        raise unknown("model of timm", architecture, timm.list_models(), listed=False)
    tags = [known.partition(".")[2] for known in timm.list_pretrained(f"{architecture}.*")]
    if tag not in ("", *tags):
        raise unknown(f"set of weights of {architecture} in timm", tag, tags)
    if not (tag or wanted.weights):
        raise UserError(
            f"timm has several weights of {architecture}: name one of {', '.join(tags)}, as in "
            f"{PREFIX}{architecture}.{tags[0]}, or a file of weights."
            if tags
            else f"timm has no weights of {architecture}: give a file of weights."
        )
    return timm.get_pretrained_cfg(name)


def _model(wanted: Pretrained, config: Any) -> tuple[nn.Module, str]:
    """Return the model without its classifier, and the digest of the weights that were read."""
    timm = _timm()
    name = wanted.name.removeprefix(PREFIX)
    size = {"img_size": wanted.input_size} if config.fixed_input_size else {}
    with seeded(0):
        if not _reads_weights.get():
            return timm.create_model(name, num_classes=0, **size), ""
        path = Path(wanted.weights) if wanted.weights else _cached(wanted.name, config)
        digest = file_digest(path)
        try:
            weights = timm.models.load_state_dict(str(path), weights_only=True)
            # With as many classes as the file has, timm loads strictly.
            overlay = {
                "state_dict": weights,
                "num_classes": _classes(weights, config),
                "label_offset": 0,
                "custom_load": False,
            }
            model = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay, **size)
        except Exception as error:  # of pickle, safetensors, torch or timm
            reason = " ".join(str(error).split())[:200].rstrip(".")
            raise UserError(f"{path} does not hold the weights of {name} ({reason}).") from error
    model.reset_classifier(0)
    model.pretrained_cfg = model.default_cfg = {}  # they hold the weights of the file
    return model, digest


def _classes(weights: dict[str, Tensor], config: Any) -> int:
    """Return the number of classes that weights have outputs for."""
    layers = [config.classifier] if isinstance(config.classifier, str) else config.classifier or ()
    found = [len(weights[f"{layer}.weight"]) for layer in layers if f"{layer}.weight" in weights]
    return found[0] if found else 0


def _cached(name: str, config: Any) -> Path:
    """Return the file of timm's own weights in the cache; download it if it is not there."""
    from huggingface_hub import (
        get_hf_file_metadata,
        hf_hub_download,
        hf_hub_url,
        try_to_load_from_cache,
    )

    if not config.hf_hub_id:
        raise UserError(f"timm downloads no weights of {name}: give a file of weights.")
    place = config.hf_hub_id, config.hf_hub_filename or "model.safetensors"
    found = try_to_load_from_cache(*place)
    if isinstance(found, str):
        return Path(found)
    LOG.warning("downloading the weights of %s from Hugging Face", name)
    try:
        get_hf_file_metadata(hf_hub_url(*place))  # fails at once, without retries
        return Path(hf_hub_download(*place))
    except Exception as error:
        raise UserError(
            f"the weights of {name} are not in the cache of Hugging Face and cannot be downloaded "
            f"({type(error).__name__}): give {place[1]} of huggingface.co/{place[0]} as the "
            "encoder's weights."
        ) from error


def _freeze(model: nn.Module) -> None:
    """Turn parameters into buffers: saved and moved, but neither trained nor averaged."""
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            delattr(module, name)
            module.register_buffer(name, parameter.detach())


def _stage_widths(model: Any, out_features: int) -> tuple[int, ...]:
    """Return the channels of the last four stages, if each has a lower resolution than the last."""
    info = list(getattr(model, "feature_info", []))[-4:]
    widths = tuple(int(stage["num_chs"]) for stage in info)
    reductions = [stage["reduction"] for stage in info]
    suits = hasattr(model, "forward_intermediates") and sorted(set(reductions)) == reductions
    return widths if suits and widths and widths[-1] == out_features else ()
