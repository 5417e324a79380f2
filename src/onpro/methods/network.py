"""The network of a method: an encoder, a classifier that can grow, a projector if asked for."""

import torch
from torch import Tensor, nn

from onpro.nn import GrowingLinear, build_encoder, seeded
from onpro.randomness import derive_seed


class Network(nn.Module):
    """Encoder f, linear classifier φ over all known classes, linear projector g."""

    projector: nn.Linear | None

    def __init__(
        self,
        encoder: str,
        image_shape: tuple[int, int, int],
        classes: int,
        *,
        projection: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.encoder = build_encoder(encoder, image_shape, seed=derive_seed(seed, "encoder"))
        width = self.encoder.out_features
        generator = torch.Generator().manual_seed(derive_seed(seed, "classifier"))
        self.classifier = GrowingLinear(width, classes, generator=generator)
        with seeded(derive_seed(seed, "projector")):
            self.projector = nn.Linear(width, projection) if projection else None

    @property
    def classes(self) -> int:
        """Number of outputs of the classifier."""
        return self.classifier.out_features

    def features(self, images: Tensor) -> Tensor:
        """H = f(x), (n, features)."""
        return self.encoder(images)

    def project(self, features: Tensor) -> Tensor:
        """U = g(h), or h itself where there is no projector."""
        return features if self.projector is None else self.projector(features)

    def forward(self, images: Tensor) -> Tensor:
        """Logits φ(f(x)), (n, classes)."""
        logits: Tensor = self.classifier(self.features(images))
        return logits

    def grow(
        self, classes: int, optimizer: torch.optim.Optimizer, generator: torch.Generator
    ) -> None:
        """Widen the classifier to `classes` outputs; old ones and their optimizer state stay."""
        self.classifier.grow(classes, optimizer=optimizer, generator=generator)
