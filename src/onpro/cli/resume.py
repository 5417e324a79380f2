"""`onpro resume RUN…`: go on with runs that were interrupted."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from onpro.cli.parsing import CHECKPOINT_EVERY, parse
from onpro.cli.signals import importing
from onpro.errors import UserError

if TYPE_CHECKING:
    from onpro.runs import RunConfig


@dataclass(frozen=True)
class ResumeOptions:
    """Which runs, and how."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders."""

    data_dir: Path | None = None
    """Where data sets lie now; else where they lay when the run began."""

    checkpoint_every: float = CHECKPOINT_EVERY
    """Seconds between two checkpoints; 0 saves one after each task only."""

    threads: int | None = None
    """Threads of a run on the CPU; else those it began with."""

    fresh: bool = False
    """Start over instead, with the same settings."""

    json: bool = False
    """Print the result as JSON on the last line of standard output, all else on standard error."""


@dataclass(frozen=True)
class Command:
    """Runs to go on with."""

    options: ResumeOptions


def main(arguments: Sequence[str]) -> int:
    """Go on with each run from its last checkpoint; a finished one is shown."""
    about = (
        "Go on with interrupted runs from their last checkpoints. Settings come from the runs' "
        "folders. The result equals that of a run in one go."
    )
    options = parse(Command, arguments, command="onpro resume", about=about).options
    if not options.runs:
        raise UserError("name at least one run folder, such as runs/er-digits-m100-s0-….")
    with importing():
        from onpro.cli.training import show, train
        from onpro.runs.folder import REPETITION
        from onpro.runs.threads import require_threads
        from onpro.training import require_interval

    require_interval(options.checkpoint_every)
    require_threads(options.threads)
    named = {folder.resolve(): folder for folder in options.runs}
    if len(named) > 1:  # such as runs/*
        named = {path: folder for path, folder in named.items() if _is_run(folder)}
    # A begun repetition takes the place of the finished run beside it: they are one run.
    folders = [
        folder
        for path, folder in named.items()
        if path.with_name(path.name + REPETITION) not in named
    ]
    if not folders:
        raise UserError("none of these is the folder of a run.")
    configs = [(folder, _config(folder, options.data_dir)) for folder in folders]
    done = train(
        configs,
        fresh=options.fresh,
        checkpoint_every=options.checkpoint_every,
        threads=options.threads,
    )
    show(done, as_json=options.json)
    return 0


def _config(folder: Path, data_dir: Path | None) -> "RunConfig":
    import torch

    from onpro.runs import read_config

    config = read_config(folder)
    if config.device == "cuda" and not torch.cuda.is_available():
        raise UserError(f"{folder} was begun on a GPU: go on with it where there is one.")
    return replace(config, data_dir=data_dir or config.data_dir)


def _is_run(path: Path) -> bool:
    """Whether it is a run's folder, or not there at all; what else lies there is passed over."""
    if not path.exists() or (path / "config.json").is_file():
        return True
    from onpro.runs.reading import warn

    warn(path, "it is not the folder of a run")
    return False
