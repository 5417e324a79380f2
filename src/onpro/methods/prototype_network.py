"""A network that classifies by prototypes instead of outputs."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from onpro.methods.network import Network
from onpro.randomness import derive_seed


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
        encoder: str,
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
        scores = self.embed(self.features(images)) @ self.prototypes.T
        return scores.masked_fill(~self.known, -torch.inf)

    def embed(self, features: Tensor) -> Tensor:
        """V: embeddings of length 1 of features (n, features)."""
        return normalize(self.project(features))

    def grow(
        self, classes: int, optimizer: torch.optim.Optimizer, generator: torch.Generator
    ) -> None:
        """Add prototypes for classes that have not appeared yet; nothing else has to change."""
        added = classes - self.classes
        self.prototypes = torch.cat([self.prototypes, self._fresh(added, generator)])
        self.known = torch.cat([self.known, self.known.new_zeros(added)])

    def forget(self, label: int, generator: torch.Generator) -> None:
        """Give a class up: a new random prototype, and it has not appeared."""
        self.prototypes[label] = self._fresh(1, generator)[0]
        self.known[label] = False

    def _fresh(self, count: int, generator: torch.Generator) -> Tensor:
        """Random directions, each coordinate from U(0, 1) before it is scaled to length 1."""
        shape = (count, self.dimension)
        return normalize(torch.rand(shape, generator=generator, device=generator.device))
