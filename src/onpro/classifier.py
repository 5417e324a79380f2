"""The product API: a classifier behind a stream whose classes nobody knows in advance."""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from threading import Lock
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from torch import Tensor

from onpro.augment import Normalise
from onpro.data.registry import LARGEST_SIDE
from onpro.errors import UserError, counted
from onpro.files import PRIVATE_FILE
from onpro.inputs import (
    are_equal,
    as_array,
    as_labels,
    as_per_channel,
    as_pixels,
    as_settings,
    as_weights,
    as_whole_number,
    can_be_saved,
)
from onpro.learner import Learner, Remembered, Turns, shape_of
from onpro.memory.memory import out_of_memory
from onpro.methods import Context, Settings, data_values, method
from onpro.nn import AUTOCAST
from onpro.restoring import UnsoundError, check_file, check_learner, require, same
from onpro.training.device import pick_device, pick_precision
from onpro.training.statefile import freeze, load_state, save_state

VERSION = 1
"""Of what a saved classifier holds; it goes up when older files need a translation."""
TRIAL_SIDE = 32
"""Every encoder takes images of this side: settings are tried with it while none is known."""
OWN = ("method", "memory", "seed", "device", "precision", "batch_size", "image_size", "mean", "std")
"""Parameters of a classifier, whatever its method."""


@contextmanager
def _sentences() -> Iterator[None]:
    """Mistakes of the user as ValueErrors, which is what callers of a library expect."""
    try:
        yield
    except UserError as error:
        missing = isinstance(error.__cause__, FileNotFoundError)
        raise (FileNotFoundError if missing else ValueError)(str(error)) from error


class OnlineClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # untyped bases
    """Learns from a stream of labelled images, batch by batch, and can be asked at any time.

    Neither the classes nor their number need be known: a class is whatever label arrives, and the
    arrival of a new one is all the method is told of the stream's structure. Any method of
    `onpro methods` can be asked for, and any of its settings be given by name.

    On a CPU, unless an encoder is named, the method starts from the values for folders of
    images (a slim encoder) instead of its own defaults, which are made for a GPU.

    Follows scikit-learn's conventions, but takes images instead of a table, and lists classes in
    the order of their arrival. May be used from many threads: calls that learn wait for each
    other, and a prediction sees the state before or after a step, never one in between.

    Args:
        method: Name of the method.
        memory: How many images may be kept.
        seed: Of everything random.
        device: "auto" (a GPU where there is one), "cpu", "cuda", or a device of torch.
        precision: Of the network in training: "auto", "fp32", "tf32", "fp16" or "bf16".
        batch_size: A call with more images is learned in batches of this size, in order.
        image_size: Side to which every image is resized; None: all have the size of the first.
        mean: Of the pixels scaled to 0…1, one number or one for each channel.
        std: Their standard deviation.
        **settings: Of the method.

    Raises:
        ValueError: if a parameter cannot work. All methods raise it for whatever they refuse, and
            nothing has changed then.
    """

    def __init__(
        self,
        method: str = "onpro",
        *,
        memory: int = 200,
        seed: int = 0,
        device: str | torch.device = "auto",
        precision: str = "auto",
        batch_size: int = 10,
        image_size: int | None = None,
        mean: float | tuple[float, float, float] = 0.5,
        std: float | tuple[float, float, float] = 0.25,
        **settings: Any,
    ) -> None:
        self.method = method
        self.memory = memory
        self.seed = seed
        self.device = device
        self.precision = precision
        self.batch_size = batch_size
        self.image_size = image_size
        self.mean = mean
        self.std = std
        self._settings = settings
        self._learning = Lock()
        self._turns = Turns()
        self._learner: Learner | None = None
        side = self._plain()["image_size"] or TRIAL_SIDE
        self._new_learner((3, side, side))

    # Learning

    def partial_fit(self, images: Any, labels: Any) -> Self:
        """Learn from labelled images, in the order given.

        Everything is checked before anything is learned: if the input is refused, nothing changed.

        Args:
            images: uint8 or floats in 0…1, (n, height, width, channels), (n, channels, height,
                width) or grey (n, height, width), NumPy or torch, or a list of single images, those
                of Pillow among them; see `onpro.inputs.as_pixels`.
            labels: n labels of any hashable kind; equal labels are one class.
        """
        with self._learning:
            learner = self._learner
            size = (self._plain() if learner is None else learner.params)["image_size"]
            pixels, values = as_pixels(images, size), as_labels(labels)
            _require_as_many(pixels, values)
            if not values:
                return self
            learner = learner or self._new_learner(shape_of(pixels))
            learner.check(pixels)
            codes, unseen = learner.encode(values)
            for batch in self._batches(len(codes)):
                with self._turns:
                    learner.learn(pixels[batch], codes[batch], unseen)
                    self._learner = learner
        return self

    def fit(self, images: Any, labels: Any) -> Self:
        """Learn as a new classifier does, which takes the place of what was learned so far.

        Until it has learned everything, predictions are those of the old one.
        """
        pixels, values = as_pixels(images, self._plain()["image_size"]), as_labels(labels)
        _require_as_many(pixels, values)
        if not values:
            raise ValueError("there is nothing to learn from: give at least 1 image")
        with self._learning:
            learner = self._new_learner(shape_of(pixels))
            codes, unseen = learner.encode(values)
            for batch in self._batches(len(codes)):
                learner.learn(pixels[batch], codes[batch], unseen)
            with self._turns:
                self._learner = learner
        return self

    def forget(self, label: Hashable) -> Self:
        """Give a class up: its images leave the memory and it is never predicted again.

        Should it arrive again, it is a new class. The encoder is not trained anew, so what it
        learned from the class may still shape how it sees others.
        """
        with self._learning, self._turns:
            self._fitted().forget(label)
        return self

    # Asking

    def predict(self, images: Any) -> npt.NDArray[Any]:
        """The label of each image, (n,), of the kind it was given in."""
        classes, scores = self._scores(images)
        labels: npt.NDArray[Any] = as_array(classes)[scores.argmax(dim=1).numpy()]
        return labels

    def predict_proba(self, images: Any) -> npt.NDArray[np.float64]:
        """How much speaks for each class, (n, classes) in the order of `classes_`; rows sum to 1.

        The softmax of the method's scores, which nothing has calibrated.
        """
        _, scores = self._scores(images)
        return scores.softmax(dim=1).numpy()

    def score(self, images: Any, labels: Any, sample_weight: Any = None) -> float:
        """The share of images predicted right."""
        predicted, truth = self.predict(images).tolist(), as_labels(labels)
        if not truth or len(truth) != len(predicted):
            raise ValueError(
                f"{len(predicted)} images and {len(truth)} labels cannot be compared: "
                "give as many, and at least 1"
            )
        right = [are_equal(a, b) for a, b in zip(predicted, truth, strict=True)]
        if sample_weight is None:
            return float(np.mean(right))
        return float(np.average(right, weights=as_weights(sample_weight, len(right))))

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The labels met so far, in the order of their arrival."""
        return as_array(list(self._fitted().labels.values()))

    @property
    def n_seen_(self) -> int:
        """How many images have been learned from."""
        return self._fitted().seen

    @property
    def memory_(self) -> Remembered:
        """The images that are kept, and their labels."""
        with self._turns:
            return self._fitted().remembered()

    @property
    def settings_(self) -> Settings:
        """The settings of the method, the defaults among them."""
        settings: Settings = self._fitted().method.settings
        return settings

    # Keeping

    def save(self, path: str | Path) -> None:
        """Write the classifier to one file, whole or not at all.

        Any number of threads and processes may save to one path: the last to finish wins. A new
        file can be read by its owner alone, since it holds images; an existing one keeps its mode.
        Labels must be strings, numbers, booleans, None, or tuples of those.
        """
        path = Path(path)
        state = self.__getstate__()
        del state["params"]["device"], state["given"]
        for label in state["learner"]["labels"] if state["learner"] else []:
            if not can_be_saved(label):
                raise ValueError(
                    f"a label of the kind {type(label).__name__} cannot be saved: use strings, "
                    "finite numbers, booleans, None, or tuples of those"
                )
        try:
            if path.exists() and not path.is_file():
                raise ValueError(f"{path} is a folder or a device: give the name of a file")
            save_state(path, freeze(state, kind="classifier"), mode=PRIVATE_FILE)
        except OSError as error:
            reason = f"{path} cannot be written: {error.strerror}"
            raise OSError(error.errno, reason) from error  # of the same kind, by its number

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        device: str | torch.device = "auto",
        precision: str | None = None,
    ) -> Self:
        """Go on from a saved classifier: on a device of the kind it was on, exactly as it would.

        Args:
            path: The file.
            device: As in the constructor.
            precision: As in the constructor; None: as it was saved.
        """
        with _sentences():
            state = load_state(Path(path), kind="classifier")
        version = state.get("version")
        if type(version) is int and version > VERSION:
            raise ValueError(f"{path} was saved by a newer version of onpro: install that")
        loaded = cls.__new__(cls)
        try:
            require(type(version) is int and version == VERSION, "its version")
            check_file(state)
            params = state["params"] | ({"precision": precision} if precision else {})
            loaded.__setstate__(state | {"params": params | {"device": device}})
            plain = loaded._plain()
            kept = {name: plain[name] for name in (*OWN, *params) if name in plain}
            require(same(params, kept), "its parameters")
        except UnsoundError as error:
            raise ValueError(_unsound(path, error)) from error
        except (ValueError, torch.AcceleratorError):
            raise  # a sentence already, or a device that fails
        except (AttributeError, LookupError, OverflowError, RuntimeError, TypeError) as error:
            if out_of_memory(error):
                raise MemoryError(f"there is not enough memory to load {path}") from error
            raise ValueError(_unsound(path, error)) from error
        return loaded

    def clone(self) -> Self:
        """An independent copy with everything learned; `sklearn.base.clone` gives an empty one."""
        twin = type(self).__new__(type(self))
        twin.__setstate__(self.__getstate__())
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """A copy of everything, taken between two steps."""
        with self._turns:
            learner = self._learner
            plain = self._plain() if learner is None else learner.params
            return {
                "version": VERSION,
                "params": plain
                | {"batch_size": self._plain()["batch_size"], "device": self.device},
                "learner": None if learner is None else learner.state_dict(),
                "given": self.get_params(),
            }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["params"])  # type: ignore[misc] # an object without a state yet
        learned = state["learner"]
        if learned is not None:
            check_learner(learned, self._plain()["image_size"])
            learner = self._new_learner(learned["image_shape"])
            learner.load_state_dict(learned)
            self._learner = learner
        if "given" in state:  # a copy; a file holds only what was learned with
            self._give(state["given"])

    # Scikit-learn's conventions

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments, and those settings of the method that were given."""
        return {name: getattr(self, name) for name in OWN} | self._settings

    def set_params(self, **params: Any) -> Self:
        """Change parameters: the batch size at once, all others when `fit` starts afresh."""
        given = self.get_params() | params
        type(self)(**given)  # refuses what cannot work
        self._give(given)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return self._learner is not None and bool(self._learner.labels)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags

    # Parts

    def _give(self, params: dict[str, Any]) -> None:
        """Take parameters over as they were given."""
        for name in OWN:
            setattr(self, name, params[name])
        self._settings = {name: value for name, value in params.items() if name not in OWN}

    @_sentences()
    def _plain(self) -> dict[str, Any]:
        """The parameters, checked, as plain values, with every setting of the method."""
        kind = method(str(self.method))
        given = self._settings
        if "encoder" not in given and _device(self.device).type == "cpu":
            given = {**data_values(kind.about.name, "folder"), **given}
        settings = as_settings(kind.about.name, kind.settings_type(), given, OWN)
        if self.precision not in ("auto", *AUTOCAST):
            raise ValueError(
                f"the precision must be one of auto, {', '.join(AUTOCAST)}, not {self.precision!r}"
            )
        side = self.image_size
        return {
            "method": kind.about.name,
            "memory": as_whole_number("memory", self.memory, 1),
            "seed": as_whole_number("seed", self.seed, 0),
            "precision": self.precision,
            "batch_size": as_whole_number("batch_size", self.batch_size, 1),
            "image_size": None
            if side is None
            else as_whole_number("image_size", side, 1, LARGEST_SIDE),
            "mean": as_per_channel("mean", self.mean),
            "std": as_per_channel("std", self.std),
            **asdict(settings),
        }

    @_sentences()
    def _new_learner(self, image_shape: tuple[int, int, int]) -> Learner:
        params, device = self._plain(), _device(self.device)
        kind = method(params["method"])
        context = Context(
            image_shape,
            Normalise(params["mean"], params["std"]),
            memory=params["memory"],
            seed=params["seed"],
            device=device,
            precision=pick_precision(params["precision"], device),
        )
        names = [field.name for field in fields(kind.settings_type)]
        settings = kind.settings_type(**{name: params[name] for name in names})
        return Learner(kind(settings, context), params)

    def _batches(self, count: int) -> list[slice]:
        size = self._plain()["batch_size"]
        return [slice(start, start + size) for start in range(0, count, size)]

    def _scores(self, images: Any) -> tuple[list[Hashable], Tensor]:
        learner = self._fitted()  # another call of `fit` may replace it meanwhile
        pixels = as_pixels(images, learner.params["image_size"])
        with self._turns:
            _require_classes(learner)
            learner.check(pixels)
            return list(learner.labels.values()), learner.scores(pixels)

    def _fitted(self) -> Learner:
        return _require_classes(self._learner)


def _require_classes(learner: Learner | None) -> Learner:
    if learner is None or not learner.labels:
        raise NotFittedError("this classifier knows no class yet: call partial_fit first")
    return learner


def _unsound(path: str | Path, error: Exception) -> str:
    return f"{path} does not hold a classifier that fits together: {error}"


def _require_as_many(pixels: Tensor, labels: list[Hashable]) -> None:
    if len(pixels) != len(labels):
        images, labelled = counted(len(pixels), "image"), counted(len(labels), "label")
        raise ValueError(f"there must be a label for each image, not {images} and {labelled}")


def _device(name: Any) -> torch.device:
    """A device by any of its names; an unknown one is refused."""
    if isinstance(name, str) and name == "auto":
        return pick_device("auto")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"there is no device {name!r}: take auto, cpu or cuda") from error
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"a device {device} is not supported: take auto, cpu or cuda")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"there is no device {device} here: take cpu, or auto")
    pick_device("cuda" if device.type == "cuda" else "cpu")
    return device
