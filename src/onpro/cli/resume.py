"""`onpro resume RUN…`: resume interrupted runs."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from onpro.cli.options import ExecutionOptions
from onpro.cli.parsing import parse
from onpro.cli.signals import importing
from onpro.errors import UserError

if TYPE_CHECKING:
    from onpro.runs import RunConfig
    from onpro.training.device import DeviceName


@dataclass(frozen=True)
class ResumeOptions:
    """Which runs, and how."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders."""

    data_dir: Path | None = None
    """Folder of data sets. (default: that with which the run began)"""

    fresh: bool = False
    """Start over instead, with the same settings."""

    json: bool = False
    """Print the result as JSON on the last line of standard output, all else on standard error."""


@dataclass(frozen=True)
class Command:
    """Runs to resume."""

    resume: ResumeOptions
    execution: ExecutionOptions


def main(arguments: Sequence[str]) -> int:
    """Resume each run from its last checkpoint; a finished one is shown."""
    about = (
        "Resume interrupted runs from their last checkpoints, with the settings in their folders. "
        "The result equals that of an uninterrupted run."
    )
    command = parse(Command, arguments, command="onpro resume", about=about)
    options, execution = command.resume, command.execution
    if not options.runs:
        raise UserError("name at least one run folder, such as runs/er-digits-m100-s0-….")
    with importing():
        from onpro.cli.training import image_side, make_executor, train_and_show
        from onpro.experiments.executors import RunRequest
        from onpro.runs.folder import repetition_of

    execution.check()
    named = {folder.resolve(): folder for folder in options.runs}
    if len(named) > 1:  # such as runs/*
        named = {path: folder for path, folder in named.items() if _is_run(folder)}
    # A begun repetition takes the place of the finished run beside it: they are one run.
    folders = [folder for path, folder in named.items() if repetition_of(path) not in named]
    if not folders:
        raise UserError("none of these is the folder of a run.")
    configs = {folder: _config(folder, options.data_dir) for folder in folders}
    devices = {folder: _device(folder, config, execution.on) for folder, config in configs.items()}
    device: DeviceName = "cuda" if "cuda" in devices.values() else "cpu"
    side = max(image_side(config.data, config.image_size) for config in configs.values())
    with closing(make_executor(execution, device, side)) as executor:
        requests = [
            RunRequest(*run, fresh=options.fresh, **execution.how()) for run in configs.items()
        ]
        return train_and_show(requests, executor, execution.on, as_json=options.json)


def _config(folder: Path, data_dir: Path | None) -> "RunConfig":
    from onpro.runs import read_config

    config = read_config(folder)
    return replace(config, data_dir=data_dir or config.data_dir)


def _device(folder: Path, config: "RunConfig", on: str) -> str:
    """Return the kind of device of a run; raise UserError if there is none here."""
    from onpro.training import pick_device

    if on == "local" and config.device == "cuda" and pick_device("auto").type != "cuda":
        raise UserError(f"{folder} was begun on a GPU: resume it where there is one.")
    return pick_device("auto").type if config.device == "auto" else config.device


def _is_run(path: Path) -> bool:
    """Return whether a path is a run folder, or missing; report anything else as skipped."""
    if not path.exists() or (path / "config.json").is_file():
        return True
    from onpro.runs.reading import warn

    warn(path, "it is not the folder of a run")
    return False
