"""Networks of methods: an encoder with a classifier that can grow, or with prototypes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from onpro.nn import (
    Encoder,
    GrowingLinear,
    Rounding,
    build_encoder,
    convolutions,
    normalised_apart,
    seeded,
    use_fused_kernels,
)
from onpro.nn.counter import count_images
from onpro.nn.heads import GrowingCosine
from onpro.randomness import derive_seed


class Network(nn.Module):
    """Encoder f, linear classifier φ over all known classes, linear projector g.

    `features` and `logits` are for training: the encoder runs in the precision of the run, and its
    images are counted. The heads, and a plain call, compute in the precision of the weights.

    Where images are learned in several rotations, each a class of its own, the classifier has
    several outputs for a class, next to each other; the first is that of images as they are.
    """

    projector: nn.Linear | None
    autocast: torch.dtype | None = None
    """Half precision of the encoder in training; None: that of its weights."""
    rounding: Rounding = "ieee"
    """Of float32 convolutions in predictions."""
    fused = False
    """Whether batch norm runs in fused kernels."""
    _passes: list[tuple[Tensor, Tensor]] | None = None

    def __init__(
        self,
        encoder: str | Encoder,
        image_shape: tuple[int, int, int],
        classes: int,
        *,
        projection: int = 0,
        outputs_per_class: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.outputs_per_class = outputs_per_class
        if isinstance(encoder, str):
            encoder = build_encoder(encoder, image_shape, seed=derive_seed(seed, "encoder"))
        self.encoder = encoder
        width = self.encoder.out_features
        generator = torch.Generator().manual_seed(derive_seed(seed, "classifier"))
        outputs = classes * outputs_per_class
        self.classifier = GrowingLinear(width, outputs, generator=generator)
        with seeded(derive_seed(seed, "projector")):
            self.projector = nn.Linear(width, projection) if projection else None

    def placed(
        self,
        device: torch.device,
        *,
        autocast: torch.dtype | None,
        rounding: Rounding,
        fused: bool,
    ) -> Self:
        """Move the new network to its device, ready for training."""
        self.autocast, self.rounding, self.fused = autocast, rounding, fused
        self.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload] # missing in torch's stubs
        if fused:
            use_fused_kernels(self)
        return self.train()

    @property
    def classes(self) -> int:
        """Number of classes the network has room for."""
        return self.classifier.out_features // self.outputs_per_class

    def forward(self, images: Tensor) -> Tensor:
        """Logits φ(f(x)) of images as they are, (n, classes)."""
        return self.upright(self.outputs(images))

    def outputs(self, images: Tensor) -> Tensor:
        """All logits φ(f(x)), (n, classes · outputs per class)."""
        return self.head(self.encode(images))

    def encode(self, images: Tensor) -> Tensor:
        """H = f(x), (n, features); channels-last images are faster, and equal up to rounding."""
        return self.encoder(images.contiguous(memory_format=torch.channels_last))

    def upright(self, outputs: Tensor) -> Tensor:
        """The logits (n, classes) of images as they are among all outputs."""
        return outputs[:, :: self.outputs_per_class]

    def classify(self, features: Tensor) -> Tensor:
        """Logits φ(h) of features of images as they are, (n, classes)."""
        return self.upright(self.head(features))

    def head(self, features: Tensor) -> Tensor:
        """All logits φ(h) of features, (n, outputs)."""
        outputs: Tensor = self.classifier(features)
        return outputs

    def features(self, images: Tensor) -> Tensor:
        """H = f(x) in training, (n, features), float32 or better."""
        count_images(len(images))
        dtype = self.autocast
        with torch.autocast(images.device.type, dtype=dtype, enabled=dtype is not None):
            features = self.encode(images)
        features = features if features.dtype == torch.float64 else features.float()
        if self._passes is not None:
            self._passes.append((images, features))
        return features

    @contextmanager
    def watched(self) -> Iterator[list[tuple[Tensor, Tensor]]]:
        """Collect the images and features of all passes inside, for losses on top of a method's."""
        outer, self._passes = self._passes, []
        passes = self._passes
        try:
            yield passes
        finally:
            self._passes = outer
            if outer is not None:
                outer += passes

    def features_each(self, *batches: Tensor) -> Sequence[Tensor]:
        """H = f(x) of batches that go through the encoder one after the other.

        Batch norm normalises each by its own statistics, and its running statistics follow each in
        turn. Fused kernels do that in a single pass over all of them.
        """
        if not self.fused:
            return [self.features(images) for images in batches]
        sizes = [len(images) for images in batches]
        with normalised_apart(self.encoder, sizes):
            return torch.split(self.features(torch.cat(batches)), sizes)

    def logits(self, images: Tensor) -> Tensor:
        """φ(f(x)) in training, (n, outputs)."""
        return self.head(self.features(images))

    def logits_each(self, *batches: Tensor) -> list[Tensor]:
        """φ(f(x)) of batches, see `features_each`."""
        return [self.head(features) for features in self.features_each(*batches)]

    def project(self, features: Tensor) -> Tensor:
        """U = g(h), or h itself without a projector."""
        return features if self.projector is None else self.projector(features)

    def embed(self, features: Tensor) -> Tensor:
        """z: projections of features, of length 1."""
        return normalize(self.project(features))

    def classifiers(self) -> tuple[GrowingLinear, ...]:
        """All heads that have outputs for classes; `classifier` is the one that predicts."""
        return (self.classifier,)

    def outputs_of(self, label: int) -> range:
        """A classifier's outputs for a class."""
        return range(label * self.outputs_per_class, (label + 1) * self.outputs_per_class)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Switch to eval mode without gradients, in single precision, as for predictions."""
        training = self.training
        self.eval()
        try:
            with torch.no_grad(), convolutions(self.rounding):
                yield
        finally:
            self.train(training)

    def grow(
        self, classes: int, optimizer: torch.optim.Optimizer, generator: torch.Generator
    ) -> None:
        """Make room for `classes` classes; old outputs and their optimizer state stay."""
        outputs = classes * self.outputs_per_class
        for classifier in self.classifiers():
            classifier.grow(outputs, optimizer=optimizer, generator=generator)


class CosineNetwork(Network):
    """A network whose logits are scaled cosines between features and a weight for each output."""

    def __init__(
        self,
        encoder: str | Encoder,
        image_shape: tuple[int, int, int],
        classes: int,
        *,
        scale: float,
        epsilon: float,
        outputs_per_class: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__(encoder, image_shape, 0, outputs_per_class=outputs_per_class, seed=seed)
        self.classifier = GrowingCosine(
            self.encoder.out_features,
            classes * outputs_per_class,
            scale=scale,
            epsilon=epsilon,
            generator=torch.Generator().manual_seed(derive_seed(seed, "classifier")),
        )


class PrototypeNetwork(Network):
    """Encoder f and linear embedding g; the score of a class is v·p_k, v = g(f(x)) of length 1.

    There is a prototype for every class there is room for, random and of length 1 until the
    method moves it; `known` says which classes have appeared. The classifier has no outputs.
    """

    prototypes: Tensor
    """(classes, dimension)"""
    known: Tensor
    """(classes,) bool"""

    def __init__(
        self,
        encoder: str | Encoder,
        image_shape: tuple[int, int, int],
        classes: int,
        *,
        projection: int,
        seed: int = 0,
    ) -> None:
        super().__init__(encoder, image_shape, 0, projection=projection, seed=seed)
        self.dimension = projection
        generator = torch.Generator().manual_seed(derive_seed(seed, "prototypes"))
        self.register_buffer("prototypes", self._fresh(classes, generator))
        self.register_buffer("known", torch.zeros(classes, dtype=torch.bool))

    @property
    def classes(self) -> int:
        """Number of prototypes."""
        return len(self.prototypes)

    def forward(self, images: Tensor) -> Tensor:
        """Scores v·p_k (n, classes), −∞ for classes that have not appeared."""
        scores = self.embed(self.encode(images)) @ self.prototypes.T
        return scores.masked_fill(~self.known, -torch.inf)

    def grow(
        self, classes: int, optimizer: torch.optim.Optimizer, generator: torch.Generator
    ) -> None:
        """Add prototypes for classes that have not appeared yet; nothing else has to change."""
        added = classes - self.classes
        self.prototypes = torch.cat([self.prototypes, self._fresh(added, generator)])
        self.known = torch.cat([self.known, self.known.new_zeros(added)])

    def forget(self, label: int, generator: torch.Generator) -> None:
        """Drop a class: a new random prototype, and it has not appeared."""
        self.prototypes[label] = self._fresh(1, generator)[0]
        self.known[label] = False

    def _fresh(self, count: int, generator: torch.Generator) -> Tensor:
        """Random directions, each coordinate from U(0, 1) before it is scaled to length 1."""
        shape = (count, self.dimension)
        return normalize(torch.rand(shape, generator=generator, device=generator.device))
