"""A classifier for a stream whose classes are not known in advance."""

from collections.abc import Hashable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, fields
from pathlib import Path
from threading import Lock
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from onpro.augment import Normalise
from onpro.data.registry import LARGEST_SIDE
from onpro.errors import UserError, counted
from onpro.fair_lock import FairLock
from onpro.files import PRIVATE_FILE
from onpro.fitted import MODEL_FILE, FittedModel, Remembered, shape_of
from onpro.inputs import (
    are_equal,
    as_array,
    as_device,
    as_labels,
    as_per_channel,
    as_pixels,
    as_settings,
    as_weights,
    as_whole_number,
    can_be_saved,
)
from onpro.memory.memory import MAX_IMAGES, out_of_memory
from onpro.methods import Context, Settings, data_values, method
from onpro.methods.registry import AnyMethod
from onpro.nn import AUTOCAST, check_image_size, float32_by_default, without_weights
from onpro.restoring import UnsoundError, check_file, check_model, require, upgraded
from onpro.training.device import pick_device, pick_precision
from onpro.training.engine import fuses, pick_engine
from onpro.training.statefile import freeze, load_state, save_state
from onpro.training.stepper import equal

VERSION = 2
"""Version of the content of a saved classifier; `upgraded` converts older ones."""
OWN = ("method", "memory", "seed", "device", "precision", "batch_size", "image_size", "mean", "std")
"""Parameters of a classifier, whatever its method."""


@contextmanager
def in_training_mode() -> Iterator[None]:
    """Decorator of what creates or trains tensors, whatever the caller has set in torch.

    Services may wrap all they do in `torch.inference_mode()` or `torch.autocast`, or have another
    default dtype or device.
    """
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(float32_by_default())
        # Only where it is needed: the outermost autocast keeps its cache from step to step.
        for kind in filter(torch.is_autocast_enabled, ("cpu", "cuda")):
            stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_device().type != "cpu":  # a default of torch slows all its calls down
            stack.enter_context(torch.device("cpu"))
        yield


@contextmanager
def _as_value_errors() -> Iterator[None]:
    """Raise mistakes of the user as ValueErrors, which callers of a library expect."""
    try:
        yield
    except UserError as error:
        missing = isinstance(error.__cause__, FileNotFoundError)
        raise (FileNotFoundError if missing else ValueError)(str(error)) from error


class ImageClassifier:
    """The classifier `onpro.OnlineClassifier` without the base classes of scikit-learn.

    These take seconds to import, which a run that only saves its model need not spend.
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
        self._lock = FairLock()
        self._model: FittedModel | None = None
        self._check()

    # Learning

    @in_training_mode()
    @_as_value_errors()
    def partial_fit(self, images: Any, labels: Any) -> Self:
        """Learn from labelled images, in the order given.

        Everything is checked before anything is learned: if the input is refused, nothing changed.

        Args:
            images: uint8 or floats in 0…1, (n, height, width, channels), (n, channels, height,
                width) or grey (n, height, width), NumPy or torch, or a list of single images, also
                of Pillow; see `onpro.inputs.as_pixels`.
            labels: n labels of any hashable kind; equal labels are one class.
        """
        with self._learning:
            model = self._model
            size = self._side() if model is None else model.params["image_size"]
            pixels, values = as_pixels(images, size), as_labels(labels)
            _require_as_many(pixels, values)
            if not values:
                return self
            model = model or self._new_model(shape_of(pixels))
            model.check(pixels)
            codes, unseen = model.encode(values)
            for batch in self._batches(len(codes)):
                with self._lock:
                    model.learn(pixels[batch], codes[batch], unseen)
                    self._model = model
        return self

    @in_training_mode()
    @_as_value_errors()
    def fit(self, images: Any, labels: Any) -> Self:
        """Learn from labelled images from scratch.

        Until that is done, predictions are those of what was learned before.
        """
        pixels, values = as_pixels(images, self._side()), as_labels(labels)
        _require_as_many(pixels, values)
        if not values:
            raise ValueError("there is nothing to learn from: give at least 1 image")
        with self._learning:
            model = self._new_model(shape_of(pixels))
            codes, unseen = model.encode(values)
            for batch in self._batches(len(codes)):
                model.learn(pixels[batch], codes[batch], unseen)
            with self._lock:
                self._model = model
        return self

    @in_training_mode()
    def forget(self, label: Hashable) -> Self:
        """Drop a class: its images are erased from the memory and it is never predicted again.

        Should it arrive again, it is a new class. The encoder is not retrained, so what it learned
        from the class may still influence its features of others.
        """
        with self._learning, self._lock:
            self._fitted().forget(label)
        return self

    # Prediction

    def predict(self, images: Any) -> npt.NDArray[Any]:
        """Return the label of each image, (n,), as it was given in training."""
        classes, scores = self._scores(images)
        labels: npt.NDArray[Any] = as_array(classes)[scores.argmax(dim=1).numpy()]
        return labels

    def predict_proba(self, images: Any) -> npt.NDArray[np.float64]:
        """Return the softmax of the method's scores, (n, classes) in the order of `classes_`.

        The probabilities are not calibrated.
        """
        _, scores = self._scores(images)
        return scores.softmax(dim=1).numpy()

    def score(self, images: Any, labels: Any, sample_weight: Any = None) -> float:
        """Return the share of images whose label is predicted."""
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
        """Number of images learned from."""
        return self._fitted().seen

    @property
    @in_training_mode()
    def memory_(self) -> Remembered:
        """The images that are kept, and their labels."""
        with self._lock:
            return self._fitted().remembered()

    @property
    def settings_(self) -> Settings:
        """All settings of the method, defaults included."""
        settings: Settings = self._fitted().method.settings
        return settings

    # Saving and loading

    def save(self, path: str | Path) -> None:
        """Write the classifier to a file, atomically.

        Any number of threads and processes may save to one path: the last to finish wins. A new
        file is readable by its owner only, since it holds images; an existing one keeps its mode.
        Labels must be strings, numbers, booleans, None, or tuples of those.
        """
        path = Path(path)
        state = self.__getstate__()
        learned = state["learner"]
        for label in learned["labels"] if learned else []:
            if not can_be_saved(label):
                raise ValueError(
                    f"a label of the kind {type(label).__name__} cannot be saved: use strings, "
                    "finite numbers, booleans, None, or tuples of those"
                )
        params = state["params"] if learned else self._params(_pick(self.device))
        params = {name: value for name, value in params.items() if name != "device"}
        content = {"version": VERSION, "params": params, "learner": learned}
        try:
            if path.exists() and not path.is_file():
                raise ValueError(f"{path} is a folder or a device: give the name of a file")
            save_state(path, freeze(content, kind="classifier"), mode=PRIVATE_FILE)
        except OSError as error:
            reason = f"{path} cannot be written: {error.strerror}"
            raise OSError(error.errno, reason) from error  # of the same kind, by its number

    @classmethod
    @in_training_mode()
    def load(
        cls,
        path: str | Path,
        *,
        device: str | torch.device = "auto",
        precision: str | None = None,
    ) -> Self:
        """Load a saved classifier; on the same kind of device it continues exactly.

        Args:
            path: The file, of this or an earlier version of onpro.
            device: As in the constructor.
            precision: As in the constructor; None: as it was saved.
        """
        with suppress(OSError):  # `load_state` says what is wrong with the path
            if (Path(path) / MODEL_FILE).is_file():
                raise ValueError(f"{path} is the folder of a run: use from_run")
        with _as_value_errors():
            state = load_state(Path(path), kind="classifier")
        version = state.get("version")
        if type(version) is int and version > VERSION:
            raise ValueError(f"{path} was saved by a newer version of onpro: install that")
        loaded = cls.__new__(cls)
        try:
            require(type(version) is int and version >= 1, "its version")
            check_file(state)
            with _as_value_errors():
                state = upgraded(state)
            params = state["params"] | ({"precision": precision} if precision else {})
            loaded.__setstate__(state | {"params": params | {"device": device}})
            plain = loaded._params(None)
            kept = {name: plain[name] for name in (*OWN, *params) if name in plain}
            require(equal(params, kept), "its parameters")
        except UnsoundError as error:
            raise ValueError(_unsound(path, error)) from error
        except (ValueError, torch.AcceleratorError):
            raise  # a sentence already, or a device that fails
        except (AttributeError, LookupError, OverflowError, RuntimeError, TypeError) as error:
            if out_of_memory(error):
                raise MemoryError(f"there is not enough memory to load {path}") from error
            raise ValueError(_unsound(path, error)) from error
        return loaded

    @classmethod
    def from_run(
        cls,
        run: str | Path,
        *,
        device: str | torch.device = "auto",
        precision: str | None = None,
    ) -> Self:
        """Load the trained model of a run, with the data set's class names as labels.

        A run keeps its model unless it is trained with `--keep-model no`. The images of the memory
        are part of it only with `--keep-memory`, or if the method predicts from them (iCaRL, SCR,
        MOSE, GDumb, calibrated ones): then `partial_fit` continues exactly. Without them
        `partial_fit` starts with an empty memory, so that what the run has learned is soon
        forgotten.

        A method in a file of one's own must be known first: `onpro.methods.load_file(path)`.

        Args:
            run: The folder of the run.
            device: As in the constructor.
            precision: As in the constructor; None: that of the run, or "auto" if that was usual on
                the run's device.

        Raises:
            FileNotFoundError: if there is no such folder, or no model in it.
        """
        folder = Path(run)
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no folder {folder}")
        if not (folder / MODEL_FILE).exists():
            raise FileNotFoundError(
                f"{folder} has no {MODEL_FILE}: the run is not finished, or was trained without "
                "keeping its model"
            )
        return cls.load(folder / MODEL_FILE, device=device, precision=precision)

    @classmethod
    @in_training_mode()
    def from_state(cls, params: dict[str, Any], learned: dict[str, Any] | None) -> Self:
        """Return a classifier that has learned what the state of a `FittedModel` holds.

        Args:
            params: Arguments of the constructor.
            learned: The state; None: nothing is learned yet.
        """
        classifier = cls(**params)
        if learned is not None:
            check_model(learned, classifier._side())
            with without_weights():
                model = classifier._new_model(learned["image_shape"])
            model.load_state_dict(learned)
            classifier._model = model
        return classifier

    def clone(self) -> Self:
        """Return an independent copy, trained as it is; `sklearn.base.clone` returns a new one."""
        twin = type(self).__new__(type(self))
        twin.__setstate__(self.__getstate__())
        return twin

    @in_training_mode()
    def __getstate__(self) -> dict[str, Any]:
        """Return a copy of everything, taken between two steps."""
        given = self.get_params()
        with self._lock:
            model = self._model
            params, learner = given, model and model.state_dict()
            if model:
                params = model.params | {"batch_size": self._batch_size(), "device": self.device}
        return {"version": VERSION, "params": params, "learner": learner, "given": given}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= vars(self.from_state(state["params"], state["learner"]))
        if "given" in state:  # not in a file, which holds the parameters it learned with
            self._give(state["given"])

    # Scikit-learn's conventions

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments, and the settings of the method that were given."""
        return {name: getattr(self, name) for name in OWN} | self._settings

    def set_params(self, **params: Any) -> Self:
        """Change parameters: the batch size at once, all others from the next `fit` on."""
        given = self.get_params() | params
        type(self)(**given)  # refuses what cannot work
        self._give(given)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return self._model is not None and bool(self._model.labels)

    # Parts

    def _give(self, params: dict[str, Any]) -> None:
        """Set the parameters without checking them."""
        for name in OWN:
            setattr(self, name, params[name])
        self._settings = {name: value for name, value in params.items() if name not in OWN}

    @_as_value_errors()
    def _check(self) -> None:
        """Refuse parameters that cannot work, as far as they alone tell.

        What depends on the network or on the images is refused when learning begins.
        """
        device = as_device(self.device)
        params = self._params(device)
        side = params["image_size"]
        if side is not None and (device is not None or "encoder" in self._settings):
            check_image_size(params["encoder"], (3, side, side))
        if device is not None and device.type == "cpu":
            pick_precision(params["precision"], device)

    @_as_value_errors()
    def _params(self, device: torch.device | None) -> dict[str, Any]:
        """Return the parameters, checked, as plain values, with every setting of the method.

        Args:
            device: What they are for; None: any, with the method's own defaults.
        """
        kind = method(str(self.method))
        given = self._settings
        if "encoder" not in given and device is not None and device.type == "cpu":
            given = {**data_values(kind.about.name, "folder"), **given}
        settings = as_settings(kind.about.name, kind.settings_type(), given, OWN)
        if self.precision not in ("auto", *AUTOCAST):
            raise ValueError(
                f"the precision must be one of auto, {', '.join(AUTOCAST)}, not {self.precision!r}"
            )
        normalise = Normalise(as_per_channel("mean", self.mean), as_per_channel("std", self.std))
        return {
            "method": kind.about.name,
            "memory": as_whole_number("memory", self.memory, 1, MAX_IMAGES),
            "seed": as_whole_number("seed", self.seed, 0),
            "precision": self.precision,
            "batch_size": self._batch_size(),
            "image_size": self._side(),
            "mean": normalise.mean,
            "std": normalise.std,
            **asdict(settings),
        }

    def _batch_size(self) -> int:
        return as_whole_number("batch_size", self.batch_size, 1)

    def _side(self) -> int | None:
        if self.image_size is None:
            return None
        return as_whole_number("image_size", self.image_size, 1, LARGEST_SIDE)

    @_as_value_errors()
    def _new_model(self, image_shape: tuple[int, int, int]) -> FittedModel:
        """Build the method for images of this shape."""
        device = _pick(self.device)
        params = self._params(device)
        engine, precision = pick_engine("auto", device), pick_precision(params["precision"], device)
        kind = method(params["method"])
        context = Context(
            image_shape,
            Normalise(params["mean"], params["std"]),
            memory=params["memory"],
            seed=params["seed"],
            device=device,
            precision=precision,
            fused=fuses(engine, device, precision),
        )
        names = [field.name for field in fields(kind.settings_type)]
        settings = kind.settings_type(**{name: params[name] for name in names})
        return FittedModel(kind(settings, context), params, engine)

    def _batches(self, count: int) -> list[slice]:
        size = self._batch_size()
        return [slice(start, start + size) for start in range(0, count, size)]

    @in_training_mode()
    def _scores(self, images: Any) -> tuple[list[Hashable], Tensor]:
        model = self._fitted()  # a concurrent `fit` may replace it
        pixels = as_pixels(images, model.params["image_size"])
        with self._lock:
            _require_classes(model)
            model.check(pixels)
            return list(model.labels.values()), model.scores(pixels)

    @property
    def method_(self) -> AnyMethod:
        """The trained method, whose network gives features and logits; do not change it."""
        return self._fitted().method

    def _fitted(self) -> FittedModel:
        return _require_classes(self._model)


def _require_classes(model: FittedModel | None) -> FittedModel:
    if model is None or not model.labels:
        from sklearn.exceptions import NotFittedError

        raise NotFittedError("this classifier knows no class yet: call partial_fit first")
    return model


def _unsound(path: str | Path, error: Exception) -> str:
    return f"{path} does not hold a classifier that fits together: {error}"


def _require_as_many(pixels: Tensor, labels: list[Hashable]) -> None:
    if len(pixels) != len(labels):
        images, labelled = counted(len(pixels), "image"), counted(len(labels), "label")
        raise ValueError(f"there must be a label for each image, not {images} and {labelled}")


def _pick(device: Any) -> torch.device:
    """Return the device to learn on."""
    named = as_device(device)
    if named is None:
        return pick_device("auto")
    pick_device("cuda" if named.type == "cuda" else "cpu")  # refuses a GPU that does not work
    return named
