"""Base class of methods: context, building blocks of a step, prediction, state."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from onpro import augment
from onpro.errors import UserError
from onpro.memory import Memory, Replay, retrieval
from onpro.memory.memory import FieldSpec, room_for
from onpro.memory.reservoir import reservoir_batch
from onpro.methods.settings import Settings
from onpro.methods.state import Derived, Stateful
from onpro.nn import AUTOCAST, Precision, PretrainedEncoder, Rounding, is_pretrained
from onpro.nn.counter import count_images
from onpro.nn.network import Network
from onpro.nn.optimizers import lay_out_like_parameters
from onpro.nn.pretrained import pretrained_part
from onpro.randomness import Generators
from onpro.streams import Batch, Progress

EVAL_BATCH = 256
"""Images that go through the network at a time where no gradient is needed."""

Terms = dict[str, Tensor]
"""The terms of a loss by name, each a tensor of one number."""

S = TypeVar("S", bound=Settings)
N = TypeVar("N", bound=Network)


class Labelled(NamedTuple):
    """Images as network input (n, 3, height, width), and their labels (n,)."""

    images: Tensor
    labels: Tensor

    def then(self, others: "Labelled") -> "Labelled":
        """These images, followed by others."""
        return Labelled(
            torch.cat([self.images, others.images]), torch.cat([self.labels, others.labels])
        )

    def rotated(self, blocks: int) -> "Labelled":
        """These images in 1, 4 or 16 rotations, block after block, each rotation a class.

        Class y in rotation q has the label blocks·y + q, which does not depend on the number of
        classes. A label below 0 stands for none and stays as it is.
        """
        labels = blocks * self.labels + torch.arange(blocks, device=self.labels.device)[:, None]
        labels = torch.where(self.labels < 0, self.labels, labels).flatten()
        return Labelled(augment.rotations(self.images, blocks), labels)


@dataclass(frozen=True)
class Context:
    """Where a method runs: the stream's images and classes, the memory it may use, the device."""

    image_shape: tuple[int, int, int]
    normalise: augment.Normalise
    """Converts stored images to network input."""
    num_classes: int | None = None
    """Number of classes the stream announces; None: heads grow as classes appear."""
    memory: int = 200
    """How many past images may be kept."""
    seed: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    precision: Precision = "fp32"
    """Of the network in training; predictions are computed in tf32 unless it is fp32."""
    fused: bool = False
    """Whether a GPU uses fused kernels for batch norm and augmentation in training; the results are
    equal up to rounding."""

    @property
    def autocast(self) -> torch.dtype | None:
        """Half precision of the network in training; None: float32."""
        return AUTOCAST[self.precision]

    @property
    def rounding(self) -> Rounding:
        """Of convolutions in single precision: TF32 is finer than half precision."""
        return "ieee" if self.precision == "fp32" else "tf32"


@dataclass(frozen=True)
class About:
    """Metadata shown by `onpro methods`."""

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


class Method(ABC, Generic[S]):
    """One way to learn from a stream; subclasses implement `learn`.

    Every attribute that is a tensor or has a `state_dict` is saved with the method; everything else
    is rebuilt by the constructor and must not change. So a counter is a tensor.
    """

    about: ClassVar[About]
    settings_type: ClassVar[type[Settings]]

    keeps_images: ClassVar[bool] = True
    """Whether it stores past images; otherwise it learns the same whatever the size of memory."""
    predicts_from_memory: ClassVar[bool] = False
    """Whether predictions need the stored images, as the nearest class mean does."""
    is_capturable: bool = True
    """Whether a step can be captured as a CUDA graph; it must not wait for the device then."""
    learns_new_by_replay_only: bool = False
    """Whether the classifier meets new classes of later tasks only in replayed images."""
    takes_added_terms: ClassVar[bool] = False
    """Whether `learn` minimises `added_terms` too, so that a wrapper can add to its loss."""
    has_plain_loss: ClassVar[bool] = False
    """Whether `terms(new, old)` is nothing but the cross-entropy of each over all classes."""
    memory_of: Callable[..., Memory] = Memory
    """Makes the memory of `make_memory`, so that a wrapper can change how images are stored."""
    has_plain_memory: ClassVar[bool] = True
    """Whether its memory is that of `make_memory`."""
    memory_policy: Callable[..., Tensor] = staticmethod(reservoir_batch)
    """Decides which images `remember` keeps, see `onpro.memory.reservoir`."""
    remembers: ClassVar[bool] = False
    """Whether `learn` keeps images with `remember`, so that a wrapper can change the policy."""
    replays_later: ClassVar[bool] = False
    """Whether the classifier is trained on replayed images from the second task on only."""

    network: Network
    optimizer: torch.optim.Optimizer
    memory: Memory

    def __init__(self, settings: S, context: Context) -> None:
        settings.check()
        self.settings = settings
        self.context = context
        self.progress = Progress()
        self.memory = Memory(0, context.image_shape, device=context.device)
        """Keeps nothing unless the constructor makes another."""
        self.random = Generators(context.seed, context.device)
        self.scaler = torch.amp.GradScaler(
            context.device.type, enabled=context.autocast is torch.float16
        )
        """Scales the loss in half precision."""
        self.augmentation = augment.build(
            settings.augmentation, context.normalise, fused=context.fused
        )

    # Parts, for constructors

    def make_network(
        self,
        *,
        classes: int | None = None,
        seed: int | None = None,
        kind: type[N] = Network,  # type: ignore[assignment] # a default of a generic argument
        **heads: Any,
    ) -> N:
        """A network on the run's device, initialised from the run's seed or the one given.

        It starts with all announced classes, or with as many as given; `heads` are further
        arguments of the network.
        """
        context = self.context
        network = kind(
            self._pretrained_encoder() or self.settings.encoder,
            context.image_shape,
            (context.num_classes or 0) if classes is None else classes,
            seed=context.seed if seed is None else seed,
            **heads,
        )
        return network.placed(
            context.device,
            autocast=context.autocast,
            rounding=context.rounding,
            fused=context.fused,
        )

    def _pretrained_encoder(self) -> PretrainedEncoder | None:
        """The pretrained encoder of a new network, if it has one.

        A frozen one never changes, so that it is shared with the network there is.
        """
        if not is_pretrained(self.settings.encoder):
            return None
        found = pretrained_part(self.network) if hasattr(self, "network") else None
        if found is not None and found.is_frozen:
            return found
        normalise = self.context.normalise
        return self.settings.pretrained.build(normalise.mean, normalise.std)

    def make_memory(self, **fields: FieldSpec) -> Memory:
        """An empty memory of the size the run allows; `fields` are stored with each image."""
        size, shape, device = self.context.memory, self.context.image_shape, self.context.device
        with room_for(size, device):
            return self.memory_of(size, shape, device=device, extra=fields)

    # What a method does

    @abstractmethod
    def learn(self, batch: Batch) -> Terms:
        """Take one training step on a batch and update the memory; return the terms of the loss.

        Everything is computed on the device, without host–device sync. What is decided on the host
        depends on settings, `progress`, the network's classes, the memory's fill and the learning
        rate alone, but not on `progress.steps`: then a GPU can capture a step and replay it.
        """

    def added_terms(self, new: Labelled, old: Labelled | None = None, *mixed: Any) -> Terms:
        """The terms that wrappers add to the loss of a step; none without a wrapper.

        Args:
            new: the batch, as network input.
            old: the replay batch; None: a random one is sampled for these terms.
            *mixed: what the method mixed from the replay batch, if it did, a `Mixture`.
        """
        return {}

    def course(self) -> Hashable:
        """Host-side state that decides what a step runs, memory, classes and learning rate aside.

        Steps for which it is equal run the same operations, so that a GPU can replay one of them
        for all. By default it changes with every task. A method whose steps depend on less can say
        so; a subclass has to say it again.
        """
        progress = self.progress
        return progress.task, progress.steps_in_task > 0, len(progress.seen)

    def after_step(self, batch: Batch) -> None:
        """Handle a batch on the host after each step."""

    def start_task(self) -> None:
        """Prepare for the first batch of a task; the network already has room for it."""

    def end_task(self) -> None:
        """Finish a task."""

    def rehearsal(self) -> Iterable[Batch]:
        """Batches of stored images to train on when a task has ended, each with `rehearse`."""
        return ()

    def rehearse(self, stored: Batch) -> Terms:
        """Take one training step on stored images; the rules of `learn` hold."""
        raise NotImplementedError(f"{type(self).__name__} yields a rehearsal: define rehearse too")

    @property
    def learners(self) -> "Sequence[Method[Any]]":
        """This method, and others that learn in its steps."""
        return (self,)

    @property
    def is_current(self) -> bool:
        """Whether predictions reflect all that was stored; else a rehearsal is due before them."""
        return True

    @property
    def has_past(self) -> bool:
        """Whether there is anything to replay; waits for the device."""
        return bool(len(self.memory.labels))

    @property
    def moment(self) -> Hashable:
        """Key of what is `Derived`: it changes with all that is learned, stored or dropped."""
        progress = self.progress
        counts = len(progress.seen), self.network.classes, len(self.memory)
        return progress.steps, progress.task_open, *counts

    def grow(self, classes: int) -> None:
        """Make room for classes that were not announced."""
        self.network.grow(classes, self.optimizer, self.random["growth"])

    def forget(self, label: int) -> None:
        """Drop a class between two steps: its images are removed, its outputs reinitialised.

        Its number is not used again, so that other classes keep theirs. A method that keeps more
        of a class extends this.
        """
        self.memory.remove(label)
        for output in self.network.outputs_of(label):
            self.network.classifier.renew(
                output, generator=self.random["growth"], optimizer=self.optimizer
            )

    # Building blocks of a step

    def normalise(self, images: Tensor) -> Tensor:
        """Convert stored images (n, 3, height, width) to network input."""
        return self.context.normalise(images)

    def augment(self, images: Tensor) -> Tensor:
        """T(x): a fresh random augmentation of every image."""
        return self.augmentation(images, self.random["augmentation"])

    def sample_replay(self, count: int) -> Labelled:
        """Up to `count` random images of the memory as network input, and their labels."""
        replay = self.sample_stored(count)
        return Labelled(self.normalise(replay.images), replay.labels)

    def sample_stored(self, count: int) -> Replay:
        """Up to `count` random images of the memory as they are stored, with all their fields."""
        if not count or self.memory.is_empty:
            slots = torch.empty(0, dtype=torch.int64, device=self.context.device)
        else:
            slots = retrieval.uniform(self.memory, count, self.random["memory"])
        return self.memory.take(slots)

    def remember(self, batch: Batch, **fields: Tensor) -> None:
        """Offer the images of a batch to the memory, each with its further fields."""
        self.memory_policy(self.memory, batch.images, batch.labels, self.random["memory"], **fields)

    def eval_features(self, images: Tensor) -> Tensor:
        """H = f(x) of network input as in prediction: eval mode, float32, no gradient."""
        count_images(len(images))
        with self.network.evaluating():
            return self.network.encode(images)

    def descend(self, loss: Callable[[], Terms]) -> Terms:
        """Compute a loss and take one optimizer step down its gradient; return its terms."""
        terms = loss()
        self.minimise(terms)
        return terms

    def minimise(self, terms: Terms) -> None:
        """One optimizer step down the gradient of the sum of the terms, if there are any."""
        if not terms:
            return
        self.optimizer.zero_grad(set_to_none=True)
        self.backward(terms)
        self.step()

    def backward(self, terms: Terms) -> None:
        """Add the gradient of the sum of the terms, times `loss_scale`, to the gradients."""
        loss = total(terms)
        if not loss.requires_grad:
            raise UserError(
                "there is nothing to train: with a frozen encoder this method needs a projection, "
                "or set the encoder's learning rate."
            )
        self.scaler.scale(loss).backward()

    def step(self) -> None:
        """One optimizer step down the gradients; with a loss scale, only if they are finite."""
        self.scaler.step(self.optimizer)
        self.scaler.update()
        torch.clear_autocast_cache()  # it holds the weights as they were before

    @property
    def loss_scale(self) -> Tensor:
        """What `backward` multiplies losses by, so that half-precision gradients do not vanish."""
        return self.scaler.scale(torch.ones((), device=self.context.device))

    # Prediction

    def scores(self, images: Tensor) -> Tensor:
        """Scores (n, classes) of stored images; the highest is the prediction."""
        with self.predictor.evaluating():
            return self.eval_scores(self.normalise(images))

    def eval_scores(self, images: Tensor) -> Tensor:
        """Scores (n, classes) of network input in eval mode: the logits of the classifier."""
        logits: Tensor = self.predictor(images)
        return logits

    @property
    def predictor(self) -> Network:
        """The network that predicts."""
        return self.network

    @property
    def predicting_parts(self) -> tuple[str, ...]:
        """Names of the parts of the state that predictions need."""
        return ("network", "progress", *(("memory",) if self.predicts_from_memory else ()))

    def predict(self, images: Tensor) -> Tensor:
        """The class of each stored image, (n,)."""
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
        return len(state["network"]["classifier.weight"]) // self.network.outputs_per_class

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state."""
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
            elif isinstance(value, Derived):
                value.moment = None
            if isinstance(value, torch.optim.Optimizer):
                lay_out_like_parameters(value)


def total(terms: Terms) -> Tensor:
    """The sum of the terms of a loss."""
    return torch.stack(list(terms.values())).sum()
