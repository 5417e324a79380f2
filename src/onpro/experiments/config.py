"""Everything needed to repeat a run."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from onpro.errors import UserError
from onpro.methods import Settings
from onpro.training.device import DeviceName, Precision


@dataclass(frozen=True)
class RunConfig:
    """One run: a method with its settings on a stream, and where it is computed."""

    method: str
    settings: Settings
    data: str = "digits"
    memory: int = 100
    seed: int = 0
    recipe: str | None = None
    """Name of the variation the settings come from, if any."""
    tasks: int | None = None
    batch_size: int = 10
    class_order: Literal["natural", "random"] = "natural"
    image_size: int | None = None
    limit_per_class: int | None = None
    precision: Precision = "fp32"
    data_dir: Path | None = None
    device: DeviceName = "auto"

    def __post_init__(self) -> None:
        if self.memory < 1:
            raise UserError(f"the memory must hold at least 1 image, not {self.memory}.")
        if self.memory < self.batch_size:
            raise UserError(
                f"a memory of {self.memory} images is smaller than a batch of {self.batch_size}: "
                "give more --memory or a smaller --batch-size."
            )
        if not 0 <= self.seed < 2**63:
            raise UserError(f"the seed must be at least 0 and below 2^63, not {self.seed}.")

    def what(self) -> dict[str, Any]:
        """What is computed, as plain values; not where."""
        return {
            "method": self.method,
            "data": self.data,
            "memory": self.memory,
            "seed": self.seed,
            "recipe": self.recipe,
            "tasks": self.tasks,
            "batch_size": self.batch_size,
            "class_order": self.class_order,
            "image_size": self.image_size,
            "limit_per_class": self.limit_per_class,
            "precision": self.precision,
            "settings": asdict(self.settings),
        }

    @property
    def hash(self) -> str:
        """Eight digits that tell these settings from others, whatever the seed."""
        names = {"seed", "recipe"}  # a recipe is only a name for settings
        what = {name: value for name, value in self.what().items() if name not in names}
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:8]

    @property
    def folder(self) -> str:
        """Name of the run's folder."""
        data = re.sub(r"[^A-Za-z0-9.]+", "_", self.data)[:80].strip("_")
        return f"{self.method}-{data}-m{self.memory}-s{self.seed}-{self.hash}"
