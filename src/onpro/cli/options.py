"""Options that several commands have."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from onpro.cli.parsing import whole
from onpro.errors import UserError

if TYPE_CHECKING:
    from onpro.runs.config import KeptModel


def kept_model(model: bool, keep_memory: bool) -> "KeptModel":
    """What `--model` and `--keep-memory` ask to keep of a trained model."""
    if keep_memory and not model:
        raise UserError("--keep-memory keeps images with the model: keep that too, with --model.")
    return "memory" if keep_memory else "network" if model else "none"


@dataclass(frozen=True)
class ManyOptions:
    """Where runs happen and what is printed of them."""

    out: Path = Path("runs")
    """Where run folders are made and looked for."""

    dry_run: bool = False
    """Print what is done and what is left to do, with the time that may take, and run nothing."""

    calibrate: bool = False
    """In a dry run, time a short stream of what has never been run in OUT."""

    format: Literal["text", "markdown", "latex", "csv", "json"] = "text"
    """How the table is printed."""

    measure: (
        Literal["average_accuracy", "average_forgetting", "anytime_accuracy", "last_accuracy"]
        | None
    ) = field(default=None, metadata={"metavar": "MEASURE"})
    """What to print: average_accuracy, average_forgetting, anytime_accuracy or last_accuracy; else
    what the paper's table has, or accuracy and forgetting."""

    compare: bool = False
    """Compare all pairs of experiments: paired t-test on the same stream, else Welch's test, with
    Holm's correction."""

    on: Literal["local", "ray"] = "local"
    """Where to run: processes of this machine, or a Ray cluster."""

    workers: str = "auto"
    """How many runs at once; auto is as many as there are cores for, or as fit on GPUs or Ray."""

    gpus: int | None = None
    """How many GPUs of this machine to use; else all."""

    gpus_per_run: float | None = None
    """Share of a GPU that a run takes: 0.25 puts four on each; else as many as its memory has room
    for, one for each 7 GiB with images of 32×32, on Ray one."""

    cpus_per_run: int | None = None
    """Cores that a run on the CPU or on Ray takes, and so its number of threads; else one."""

    ray_address: str | None = None
    """Ray cluster to use; else one is started on this machine and stopped at the end."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes GPUs where there are any."""

    precision: Literal["auto", "fp32", "tf32", "fp16", "bf16"] = "auto"
    """Precision of the network in training; auto is bf16 on a GPU, fp32 on a CPU."""

    data_dir: Path | None = None
    """Where data sets lie or are downloaded to; else $ONPRO_DATA, else the user's cache."""

    model: bool = False
    """Keep the trained models in the run folders."""

    keep_memory: bool = False
    """Keep the images of the memories with the models, so that learning can go on exactly."""

    def check(self) -> None:
        """Refuse what cannot work."""
        kept_model(self.model, self.keep_memory)
        self.number_of_workers()
        if self.calibrate and not self.dry_run:
            raise UserError("--calibrate is for --dry-run: add that, or leave it out.")
        if self.gpus_per_run is not None and not 0 < self.gpus_per_run <= 1:
            raise UserError(
                f"a run takes more than 0 and at most 1 GPU, not {self.gpus_per_run:g}: give "
                "another --gpus-per-run."
            )
        if self.cpus_per_run is not None and self.cpus_per_run < 1:
            raise UserError(f"a run takes at least 1 core, not {self.cpus_per_run}.")
        for option, given, place in (
            ("--ray-address", self.ray_address, "ray"),
            ("--gpus", self.gpus, "local"),
        ):
            if given is not None and self.on != place:
                raise UserError(f"{option} is for --on {place}: add that, or leave it out.")

    def number_of_workers(self) -> int | None:
        """How many runs at once, None for as many as is sensible."""
        if self.workers == "auto":
            return None
        number = whole(self.workers)
        if not number:
            raise UserError(f"--workers takes auto or a number from 1, not '{self.workers}'.")
        return number
