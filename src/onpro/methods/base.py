"""What all methods share: their place in a run, boundaries, one descent, prediction, state."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from onpro import augment
from onpro.errors import UserError
from onpro.losses.precision import at_least_float32
from onpro.memory import Memory, retrieval
from onpro.memory.memory import FieldSpec
from onpro.methods.network import Network
from onpro.methods.settings import Settings
from onpro.nn import AUTOCAST, Precision, convolutions, normalised_apart, use_fused_kernels
from onpro.randomness import Generators
from onpro.streams import Batch

MOST_IMAGES = 2**40
"""In a memory; torch cannot even count the bytes of many more."""


@dataclass(frozen=True)
class Context:
    """Where a method runs: the stream's images and classes, the memory it may use, the device."""

    image_shape: tuple[int, int, int]
    normalise: augment.Normalise
    """Makes network input of stored images."""
    num_classes: int | None = None
    """Number of classes the stream announces; None: heads grow as classes appear."""
    memory: int = 200
    """How many past images may be kept."""
    seed: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    precision: Precision = "fp32"
    """Of the network in training; scores and predictions are always computed in fp32."""
    channels_last: bool = True
    """Memory layout of network and images: faster than channels first, equal but for rounding."""

    fused: bool = False
    """Whether a GPU uses fused kernels in training, for batch norm and augmentation; the results
    are equal but for rounding."""

    @property
    def autocast(self) -> torch.dtype | None:
        """Half precision of the network in training; None: float32."""
        return AUTOCAST[self.precision]

    @property
    def layout(self) -> torch.memory_format:
        """Memory layout of network and images."""
        return torch.channels_last if self.channels_last else torch.contiguous_format


@dataclass(frozen=True)
class About:
    """What a list of methods says about one."""

    name: str
    title: str
    paper: str
    year: int
    memory: str
    """What is kept of past data and how it is chosen."""
    inference: str
    """How a class is predicted: a linear head, nearest class mean, …"""
    images_per_step: str
    """Images through the network in one step, at batches of 10 and 64 replayed images."""


@dataclass
class Progress:
    """How far a method has come; all of it on the host, so that asking costs no device sync."""

    steps: int = 0
    task: int = -1
    """Number of the current task, counted by the method; −1 before the first."""
    task_open: bool = False
    announced: int | None = None
    """What the stream calls the current task."""
    steps_in_task: int = 0
    seen: set[int] = field(default_factory=set)
    """Classes met so far, those of the current batch included."""
    classes_before_task: int = 0
    """Number of classes met before the current task began."""
    images: int = 0
    """Images that went through the network in training."""

    def state_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        return vars(self) | {"seen": sorted(self.seen)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a saved state."""
        if state.keys() != vars(self).keys():
            raise ValueError(f"progress has {', '.join(vars(self))}, not {', '.join(state)}")
        vars(self).update(state, seen=set(state["seen"]))


@runtime_checkable
class Stateful(Protocol):
    """Anything that can save itself and go on from what was saved."""

    def state_dict(self) -> Any: ...  # noqa: D102 # the class says it

    def load_state_dict(self, state: Any, /) -> Any: ...  # noqa: D102 # the class says it


Learn = Callable[[Batch], dict[str, Tensor]]
"""One training step: a batch to the terms of its loss."""

S = TypeVar("S", bound=Settings)
N = TypeVar("N", bound=Network)


class Method(ABC, Generic[S]):
    """One way to learn from a stream; subclasses say how in `learn`.

    Every attribute that is a tensor or can save itself is part of the state; plain values are
    rebuilt by the constructor. So a method keeps what changes in tensors, in parts, or in
    `self.progress`.
    """

    about: ClassVar[About]
    settings_type: ClassVar[type[Settings]]

    network: Network
    optimizer: torch.optim.Optimizer
    memory: Memory

    engine: Callable[["Method[Any]", Learn], Learn] = staticmethod(lambda method, step: step)
    """Turns a step of this method into one of the same outcome that is faster when repeated."""

    def __init__(self, settings: S, context: Context) -> None:
        settings.check()
        self.settings = settings
        self.context = context
        self.progress = Progress()
        self.random = Generators(context.seed, context.device)
        self.scaler = torch.amp.GradScaler(
            context.device.type, enabled=context.autocast is torch.float16
        )
        self.augmentation = augment.build(
            settings.augmentation, context.normalise, fused=context.fused
        )

    @property
    def learns_new_by_replay_only(self) -> bool:
        """Whether the classifier of later tasks meets new classes only once they are stored."""
        return False

    # Building blocks of a constructor

    def make_network(
        self,
        *,
        projection: int = 0,
        seed: int | None = None,
        kind: type[N] = Network,  # type: ignore[assignment] # a default of a generic argument
    ) -> N:
        """The network on the run's device, initialised from the run's seed or the one given."""
        network = kind(
            self.settings.encoder,
            self.context.image_shape,
            self.context.num_classes or 0,
            projection=projection,
            seed=self.context.seed if seed is None else seed,
        )
        return self.place(network)

    def place(self, network: N) -> N:
        """A new network, ready for training on the run's device."""
        network.to(self.context.device, memory_format=self.context.layout)  # type: ignore[call-overload] # missing in torch's stubs
        if self.context.fused:
            use_fused_kernels(network)
        return network.train()

    def make_memory(self, extra: Mapping[str, FieldSpec] | None = None) -> Memory:
        """An empty memory of the size the run allows, with further fields where asked for."""
        size = self.context.memory
        with room_for(size, self.context.device):
            return Memory(size, self.context.image_shape, device=self.context.device, extra=extra)

    # One step

    def observe(self, batch: Batch, learn: Learn | None = None) -> dict[str, Tensor]:
        """Learn from one batch; returns the terms of its loss as detached tensors.

        A new task begins where the stream says so or, where it says nothing, with the arrival of
        a class never seen before.

        Args:
            batch: what arrives.
            learn: computes the step in the place of `self.learn`, with the same outcome.
        """
        progress = self.progress
        if not len(batch.labels):
            return {}
        if min(batch.classes, default=-1) < 0:
            raise ValueError("a batch must name the classes of its labels, numbers from 0 on")
        unseen = set(batch.classes) - progress.seen
        announced = bool(unseen) if batch.task is None else batch.task != progress.announced
        begins = announced or not progress.task_open
        if begins:
            self.finish_task()
            progress.task += 1
            progress.announced = batch.task
            progress.task_open = True
            progress.steps_in_task = 0
            progress.classes_before_task = len(progress.seen)
        progress.seen |= unseen
        if max(batch.classes) >= self.network.classes:
            self.grow(max(batch.classes) + 1)
        if begins:
            self.start_task()
        with torch.autocast(self.context.device.type, enabled=False), self.rounding():
            # Around all forwards of a step, so that they share the weights rounded for autocast.
            terms = (learn or self.learn)(batch)
        self.after_step(batch)
        progress.steps += 1
        progress.steps_in_task += 1
        return {name: term.detach() for name, term in terms.items()}

    @abstractmethod
    def learn(self, batch: Batch) -> dict[str, Tensor]:
        """One training step on a batch; returns the terms of its loss.

        Computes on the device alone. What it decides on the host depends on nothing but `phase`,
        so that a device can repeat a step by itself, for another batch, while the phase lasts.
        """

    def after_step(self, batch: Batch) -> None:
        """What the method does with a batch after each step, on the host."""

    def phase(self) -> Hashable:
        """What a step's course depends on: steps of one phase do the same to other numbers."""
        progress = self.progress
        return (
            progress.task,
            progress.steps_in_task > 0,
            len(progress.seen),
            self.network.classes,
            self.memory.phase if hasattr(self, "memory") else None,
            tuple(group["lr"] for group in self.optimizer.param_groups),
        )

    def start_task(self) -> None:
        """What the method does before the first batch of a task."""

    def end_task(self) -> None:
        """What the method does when a task is over."""

    def finish_task(self) -> None:
        """Close the current task, once; the training loop calls this where boundaries are known."""
        if self.progress.task_open:
            self.progress.task_open = False
            with self.rounding():
                self.end_task()

    def grow(self, classes: int) -> None:
        """Make room for classes nobody announced."""
        self.network.grow(classes, self.optimizer, self.random["growth"])

    def forget(self, label: int) -> None:
        """Give a class up, between two steps: its images leave the memory, its output starts anew.

        Its number is not given away, so that other classes keep theirs; whoever predicts must leave
        it out. A method that keeps more of a class extends this. Where nothing is left in the
        memory, the next batch begins a first task again: later tasks need something to replay.
        """
        memory: Memory | None = getattr(self, "memory", None)  # not every method keeps images
        if memory is not None:
            memory.remove(label)
        for output in self.outputs_of(label):
            self.network.classifier.renew(
                output, generator=self.random["growth"], optimizer=self.optimizer
            )
        if memory is not None and not len(memory.labels):
            self.progress.task, self.progress.task_open = -1, False

    def outputs_of(self, label: int) -> Sequence[int]:
        """The classifier's outputs that stand for a class."""
        return (label,)

    def settle(self) -> None:
        """What a prediction outside of announced tasks has to wait for; mostly nothing."""

    def prepare(self, images: Tensor) -> Tensor:
        """Stored images (n, 3, height, width) as normalised network input."""
        return self.context.normalise(images)

    def vary(self, images: Tensor) -> Tensor:
        """T(x): a fresh random augmentation of every image."""
        return self.augmentation(images, self.random["augmentation"])

    def draw(self, count: int) -> tuple[Tensor, Tensor]:
        """Up to `count` random images of the memory as network input, and their labels."""
        replay = self.memory.take(retrieval.uniform(self.memory, count, self.random["memory"]))
        return self.prepare(replay.images), replay.labels

    def autocast(self) -> AbstractContextManager[None]:
        """The precision of the network's training pass."""
        dtype = self.context.autocast
        return torch.autocast(self.context.device.type, dtype=dtype, enabled=dtype is not None)

    def rounding(self) -> AbstractContextManager[None]:
        """How float32 convolutions are computed in training, backward passes included."""
        return convolutions("tf32" if self.context.precision == "tf32" else "ieee")

    def encode(self, images: Tensor) -> Tensor:
        """H = f(x) in training, float32 or better."""
        self.progress.images += len(images)
        with self.autocast():
            features = self.network.features(images.contiguous(memory_format=self.context.layout))
        return at_least_float32(features)

    def encode_each(self, *batches: Tensor) -> Sequence[Tensor]:
        """H = f(x) of batches that go through the network one after the other.

        Each is normalised by its own statistics, and the running statistics follow each in turn.
        Fused kernels see to that, so that one pass through the network does for all of them.
        """
        if not self.context.fused:
            return [self.encode(images) for images in batches]
        sizes = [len(images) for images in batches]
        with normalised_apart(self.network.encoder, sizes):
            return torch.split(self.encode(torch.cat(batches)), sizes)

    @torch.no_grad()
    @convolutions("ieee")
    def inspect(self, images: Tensor) -> Tensor:
        """H = f(x) as in prediction: eval mode, no autocast, no gradient, no trace."""
        self.progress.images += len(images)
        self.network.eval()
        try:
            return self.network.features(images.contiguous(memory_format=self.context.layout))
        finally:
            self.network.train()

    def classify(self, images: Tensor) -> Tensor:
        """φ(f(x)) in training: logits (n, classes)."""
        logits: Tensor = self.network.classifier(self.encode(images))
        return logits

    def descend(self, loss: Tensor) -> None:
        """One optimizer step down the gradient of the loss."""
        self.optimizer.zero_grad(set_to_none=True)
        self.backward(loss)
        self.step()

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of the loss, times `loss_scale`, to the gradients."""
        self.scaler.scale(loss).backward()

    def step(self) -> None:
        """One optimizer step down the gradients; with a loss scale, only if they are finite."""
        self.scaler.step(self.optimizer)
        self.scaler.update()

    @property
    def loss_scale(self) -> Tensor:
        """What `backward` multiplies losses by, so that half-precision gradients do not vanish."""
        return self.scaler.scale(torch.ones((), device=self.context.device))

    # Prediction

    @torch.no_grad()
    @convolutions("ieee")
    def scores(self, images: Tensor) -> Tensor:
        """Scores (n, classes) of images as stored; the highest is the prediction."""
        self.network.eval()
        try:
            return self.rate(self.prepare(images))
        finally:
            self.network.train()

    def rate(self, images: Tensor) -> Tensor:
        """Scores of network input, in eval mode: the logits of the classifier."""
        logits: Tensor = self.network(images.contiguous(memory_format=self.context.layout))
        return logits

    def predict(self, images: Tensor) -> Tensor:
        """The class of each image, (n,)."""
        return self.scores(images).argmax(dim=1)

    # State

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes while the method learns."""
        state: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                state[name] = value.clone()
            elif isinstance(value, Stateful):
                state[name] = value.state_dict()
        return state

    def classes_in(self, state: Mapping[str, Any]) -> int:
        """Number of classes a saved state has room for."""
        return len(state["network"]["classifier.bias"])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state, exactly as the method that saved it would have."""
        classes = self.classes_in(state)
        if classes > self.network.classes:
            self.grow(classes)
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                if (state[name].shape, state[name].dtype) != (value.shape, value.dtype):
                    raise ValueError(f"{name} of the state is not of the shape or type it must be")
                setattr(self, name, state[name].to(self.context.device))
            elif isinstance(value, Stateful):
                value.load_state_dict(state[name])
            if isinstance(value, torch.optim.Optimizer):
                _lay_out_like_parameters(value)


def _lay_out_like_parameters(optimizer: torch.optim.Optimizer) -> None:
    """Give an optimizer's averages the memory layout of their parameters.

    A file keeps no layout, and a fused step pairs values by their place in memory.
    """
    for parameter, averages in optimizer.state.items():
        for name, value in averages.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                averages[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


@contextmanager
def room_for(images: int, device: torch.device) -> Iterator[None]:
    """Say in a sentence that a memory made inside does not fit."""
    too_large = f"a memory of {images} images does not fit on {device}: give a smaller one."
    if images > MOST_IMAGES:
        raise UserError(too_large)
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        raise UserError(too_large) from error


def out_of_memory(error: Exception) -> bool:
    """Whether that is what an error says; on a CPU, torch has no kind of error of its own."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or (
        isinstance(error, RuntimeError)
        and any(sign in str(error) for sign in ("DefaultCPUAllocator", "Storage size calculation"))
    )


def total(terms: Mapping[str, Tensor]) -> Tensor:
    """The sum of a loss's terms."""
    return torch.stack(list(terms.values())).sum()
