"""Options that several commands have."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from onpro.cli.parsing import CHECKPOINT_EVERY, whole
from onpro.errors import UserError

if TYPE_CHECKING:
    from onpro.runs.config import KeptModel

Format = Literal["text", "markdown", "latex", "csv", "json"]

MOST_AT_ONCE = 32
"""`onpro.runs.side_by_side` has it too, but imports torch."""


@dataclass(frozen=True)
class ComputeOptions:
    """How runs compute, and what they keep."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto is a GPU if there is one."""

    precision: Literal["auto", "fp32", "tf32", "fp16", "bf16"] = "auto"
    """Precision of the network in training; auto is bf16 on a GPU, fp32 on a CPU. tf32 is fp32
    with rounded convolutions, on GPUs. Losses are always fp32; evaluation is tf32 on GPUs, unless
    the precision is fp32."""

    engine: Literal["auto", "eager", "compile", "graph"] = "auto"
    """How steps are computed: operation by operation, with a compiled network, or as one CUDA
    graph; auto is graph on a GPU, eager on a CPU."""

    deterministic: bool = False
    """On a GPU, give equal results run after run, which takes longer; on a CPU results are always
    equal."""

    data_dir: Path | None = None
    """Folder of data sets, also for downloads. (default: $ONPRO_DATA, else the user's cache)"""

    keep_model: Literal["no", "end", "tasks"] = "end"
    """Keep the trained model in the run folder, for onpro predict, OnlineClassifier.from_run and
    figures: not at all, at the end, or also the network after each task. --model and --no-model
    are short for end and no."""

    keep_memory: bool = False
    """Keep the images of the memory with the model, so that learning can continue exactly."""

    probe: Literal["none", "prototypes"] = "none"
    """What to measure while training, without any effect on it: the similarity of online and global
    prototypes, for onpro figure prototypes."""

    probe_every: int = 10
    """Number of steps between two measurements of the probe."""

    def kept_model(self) -> "KeptModel":
        """Return what to keep of a trained model."""
        if self.keep_memory and self.keep_model == "no":
            raise UserError(
                "--keep-memory keeps images with the model: keep that too, with --keep-model end."
            )
        return "memory" if self.keep_memory else "none" if self.keep_model == "no" else "network"


@dataclass(frozen=True)
class ExecutionOptions:
    """Where runs are trained, how many at once, and what they log."""

    on: Literal["local", "ray", "slurm"] = "local"
    """Where to run: on this machine, on a Ray cluster, or as SLURM jobs."""

    workers: str = "auto"
    """Number of runs at once; auto is one for each core, as many as fit on the GPUs or the Ray
    cluster, or 100 SLURM jobs."""

    at_once: int | None = None
    """Number of runs that share a GPU, at most 32. (default: one for each 7 GiB of its memory with
    images of 32×32 pixels; on Ray one)"""

    threads: int | None = None
    """CPU threads of a run, and its cores on Ray and SLURM. Large networks gain from more, but the
    number changes the last digits of a result. (default: that of an interrupted run, else 1)"""

    gpus: int | None = None
    """Number of GPUs of this machine to use. (default: all)"""

    ray_address: str | None = None
    """Address of a Ray cluster. (default: start one on this machine, and stop it at the end)"""

    partition: str | None = None
    """SLURM partition."""

    time: int | None = None
    """Time limit of a SLURM job in minutes. A run that reaches it is resumed in another job.
    (default: 240)"""

    slurm: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Another parameter of sbatch as KEY=VALUE, such as account=lab or mem=16G; can be repeated."""

    checkpoint_every: float = CHECKPOINT_EVERY
    """Seconds between two checkpoints, from which an interrupted run is resumed; 0 saves one after
    each task instead."""

    tensorboard: bool = False
    """Also log to TensorBoard, in the run folder."""

    wandb: bool = False
    """Also log to Weights & Biases; offline without a login, or if WANDB_MODE says so."""

    def check(self) -> None:
        """Raise UserError for values that cannot work."""
        from onpro.runs.threads import require_threads
        from onpro.training import require_interval

        require_interval(self.checkpoint_every)
        require_threads(self.threads, here=self.on == "local")
        self.number_of_workers()
        self.sbatch()
        if self.at_once is not None and not 1 <= self.at_once <= MOST_AT_ONCE:
            raise UserError(f"--at-once takes 1 to {MOST_AT_ONCE}, not {self.at_once}.")
        if self.time is not None and self.time < 1:
            raise UserError(f"--time takes at least 1 minute, not {self.time}.")
        places = {"gpus": "local", "ray_address": "ray"}
        places |= dict.fromkeys(("partition", "time", "slurm"), "slurm")
        for option, place in places.items():
            if getattr(self, option) not in (None, ()) and self.on != place:
                name = option.replace("_", "-")
                raise UserError(f"--{name} is for --on {place}: add that, or leave it out.")
        if self.at_once is not None and self.on == "slurm":
            raise UserError("--at-once is for --on local or ray: a SLURM job has a GPU of its own.")

    def how(self) -> dict[str, Any]:
        """Return the options that every executor passes on to its runs."""
        names = ("checkpoint_every", "tensorboard", "wandb", "threads")
        return {name: getattr(self, name) for name in names}

    def number_of_workers(self) -> int | None:
        """Return the number of runs at once, None for auto."""
        if self.workers == "auto":
            return None
        number = whole(self.workers)
        if not number:
            raise UserError(f"--workers takes auto or a number from 1, not '{self.workers}'.")
        return number

    def sbatch(self) -> dict[str, str | bool]:
        """Return the parameters of sbatch given as `--slurm KEY=VALUE`; a flag has no value."""
        found: dict[str, str | bool] = {}
        for text in self.slurm:
            key, equals, value = text.removeprefix("--").partition("=")
            if not key or any(letter.isspace() for letter in key):
                raise UserError(f"--slurm takes KEY=VALUE, such as account=lab, not '{text}'.")
            found[key] = value if equals else True
        return found


@dataclass(frozen=True)
class ManyComputeOptions(ComputeOptions):
    """How the runs of a table or sweep compute, and what they keep."""

    keep_model: Literal["no", "end", "tasks"] = "no"


@dataclass(frozen=True)
class ManyOptions:
    """Where the runs of a table or sweep are, and what is printed of them."""

    out: Path = Path("runs")
    """Folder in which run folders are created and looked for."""

    dry_run: bool = False
    """Print what is done, what is left and how long that may take, and run nothing."""

    calibrate: bool = False
    """In a dry run, time a short stream of experiments that have no run in OUT."""

    format: Format = "text"
    """Format of the table; with --dry-run, all but text have a line for each experiment."""

    measures: str = ""
    """Comma-separated measures to tabulate: accuracy, forgetting, incremental, anytime, last,
    seconds, or those of a shortcut, such as reliance and following (default: those of the paper's
    table, or accuracy and forgetting)."""

    compare: bool = False
    """Compare all pairs of experiments: paired t-test on the same stream, else Welch's test, with
    Holm's correction."""
