"""Training runs in this process, and what is shown of them."""

import json
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from onpro.cli.progress import Bars
from onpro.cli.signals import GOES_ON, stop_requests
from onpro.cli.summary import print_runs
from onpro.data import find
from onpro.errors import UserError
from onpro.runs import (
    Finished,
    RunConfig,
    SharedImages,
    finished_in,
    prepare,
    room_for_runs,
    running,
    train_side_by_side,
)
from onpro.runs.folder import REPETITION
from onpro.runs.runner import Interrupted, Running, remove_leftovers
from onpro.runs.side_by_side import MOST_AT_ONCE
from onpro.runs.threads import THREADS, cpu_threads, threads_of
from onpro.runs.weights_and_biases import WandbLog, going_on
from onpro.text import visible
from onpro.training import pick_device
from onpro.training.checkpoint import Checkpoints


def train(
    runs: Sequence[tuple[Path, RunConfig]],
    *,
    fresh: bool,
    checkpoint_every: float,
    tensorboard: bool = False,
    wandb: bool = False,
    at_once: int = 0,
    threads: int | None = None,
) -> list[Finished]:
    """Run what each folder is for, from its last checkpoint on, unless it is finished.

    On a GPU several go side by side.
    """
    if not 0 <= at_once <= MOST_AT_ONCE:
        raise UserError(
            f"--at-once takes 1 to {MOST_AT_ONCE}, or 0 for as many as fit, not {at_once}."
        )
    done = {folder: None if fresh else finished_in(folder, config) for folder, config in runs}
    for run in filter(None, done.values()):
        print(
            f"already finished: {visible(str(run.folder))} (--fresh runs it again)", file=sys.stderr
        )
        remove_leftovers(run.folder)
    open_runs = [(folder, config) for folder, config in runs if not done[folder]]
    if open_runs:
        first = open_runs[0][1]
        device = pick_device(first.device)
        as_before = cpu_threads(torch.get_num_threads())
        with stop_requests() as stop, Bars() as bars, as_before:

            def start(folder: Path, config: RunConfig) -> Running:
                if device.type == "cpu":
                    began_with = None if fresh else threads_of(folder)
                    torch.set_num_threads(threads or began_with or THREADS)
                trainer = prepare(config, images(config))
                name = f"seed {config.seed}"
                label = f"{config.method} on {config.data}, {name}"
                bar = bars.follow(trainer, label=label, name=name if len(open_runs) > 1 else "")
                log = None if fresh else going_on(folder, config)
                log = WandbLog(folder, config) if wandb else log
                going = running(
                    folder,
                    config,
                    listeners=[bar, log] if log else [bar],
                    tensorboard=tensorboard,
                    trainer=trainer,
                    fresh=fresh,
                    checkpoint_every=checkpoint_every,
                    stop=stop,
                )
                return log.during(going) if log else going

            images = SharedImages()
            try:
                trained = train_side_by_side(
                    [partial(start, folder, config) for folder, config in open_runs],
                    device,
                    at_once=at_once or _room(device, first),
                    deterministic=any(config.deterministic for _, config in open_runs),
                )
            except Interrupted as interrupted:
                if len(open_runs) == 1:
                    raise
                folders = [folder for folder, _ in open_runs]
                hint = _repetitions_begun(folders) if fresh else GOES_ON
                raise Interrupted(hint, interrupted.signal) from None
        done |= dict(zip([folder for folder, _ in open_runs], trained, strict=True))
    return [finished for folder, _ in runs if (finished := done[folder])]


def _repetitions_begun(folders: Sequence[Path]) -> str:
    """How to go on with runs that started over, and would do so again by the same command."""
    places = [p for folder in folders for p in (folder, folder.with_name(folder.name + REPETITION))]
    begun = [str(p) for p in places if Checkpoints(p / "checkpoint").files()]
    if not begun:
        return "interrupted; the unfinished run was not kept."
    return f"interrupted; go on with what was begun: onpro resume {shlex.join(begun)}"


def _room(device: torch.device, config: RunConfig) -> int:
    """How many runs such as this one a device trains at once: a CPU is filled by one."""
    if device.type != "cuda":
        return 1
    free, _ = torch.cuda.mem_get_info(device)
    return room_for_runs(free, config.image_size or find(config.data).image_size or 0)


def show(runs: Sequence[Finished], *, as_json: bool) -> None:
    """Print finished runs; as JSON on standard output, one run as an object, several as a list."""
    print_runs(runs, sys.stderr if as_json else sys.stdout)
    if as_json:
        results: list[dict[str, Any]] = [{"run": str(r.folder), **r.result} for r in runs]
        print(json.dumps(results[0] if len(results) == 1 else results))
