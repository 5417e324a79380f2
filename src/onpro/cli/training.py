"""Train runs for `onpro run`, `resume`, `table` and `sweep`."""

import json
import os
import shlex
import signal
import sys
import threading
from collections.abc import Container, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from onpro.cli.live import Bar, Live
from onpro.cli.options import ComputeOptions, ExecutionOptions
from onpro.cli.signals import handled_signals, stop_requests
from onpro.cli.summary import print_runs
from onpro.data import find, load
from onpro.errors import UserError, counted
from onpro.experiments.executors import Executor, JobResult, Local, RunRequest, execute
from onpro.experiments.executors.worker import train_alone
from onpro.experiments.plan import Place
from onpro.nn import Precision
from onpro.runs import Finished, Interrupted, RunConfig, finished, finished_in, room_for_runs
from onpro.runs.folder import RunFolder, repetition_of
from onpro.runs.runner import remove_leftovers
from onpro.text import visible
from onpro.training import pick_device, pick_engine, pick_precision
from onpro.training.device import DeviceName

GOES_ON = "interrupted; what is done so far is kept, and the same command resumes it."
"""Said where several runs were interrupted."""


def make_executor(
    options: ExecutionOptions, device: DeviceName, side: int, *, dry_run: bool = False
) -> Executor:
    """Return the executor that the options ask for.

    Args:
        options: Options of the command.
        device: Where to compute.
        side: Side of the largest images, in pixels.
        dry_run: Whether it only plans, so that a cluster is neither started nor asked, and need not
            be reachable from here.
    """
    workers, threads = options.number_of_workers(), options.threads
    if dry_run and options.on != "local":
        return _in_place_of_cluster(options, device)
    if options.on == "ray":
        from onpro.experiments.executors.ray import Ray

        return Ray(
            options.ray_address,
            cpus=threads or 1,
            at_once=options.at_once or 1,
            workers=workers,
            device=device,
        )
    if options.on == "slurm":
        from onpro.experiments.executors.slurm import Slurm

        return Slurm(
            cpus=threads or 1,
            gpu=device == "cuda",
            workers=workers,
            partition=options.partition,
            minutes=options.time,
            parameters=options.sbatch(),
        )
    if pick_device(device).type == "cpu":
        if options.gpus or options.at_once:
            raise UserError("runs have no GPU here: leave --gpus and --at-once out.")
        return Local(workers, threads=threads)
    gpus = _gpus(options.gpus)
    at_once = options.at_once or room_for_runs(_smallest_gpu(), side)
    return Local(workers or len(gpus) * at_once, gpus=gpus)


def _in_place_of_cluster(options: ExecutionOptions, device: DeviceName) -> Executor:
    """Return an executor with the device and the room that a plan assumes for a cluster."""
    from onpro.experiments.executors.slurm import MOST_JOBS

    workers, on_gpu = options.number_of_workers(), device == "cuda"
    if options.on == "slurm":
        workers = workers or MOST_JOBS
    elif on_gpu or (device == "auto" and torch.cuda.is_available()):
        workers, on_gpu = workers or options.at_once or 1, True
    return Local(workers, threads=options.threads, gpus=["of the cluster"] if on_gpu else ())


def _gpus(wanted: int | None) -> list[str]:
    """Return the names of the GPUs of this machine to use."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = given.split(",") if given else [str(i) for i in range(torch.cuda.device_count())]
    if wanted is not None and not 1 <= wanted <= len(names):
        raise UserError(f"--gpus takes 1 to {len(names)} here, not {wanted}; see --device cpu.")
    return names[:wanted]


def _smallest_gpu() -> int:
    gpus = range(torch.cuda.device_count())
    return min(torch.cuda.get_device_properties(gpu).total_memory for gpu in gpus)


def place_of(executor: Executor, options: ComputeOptions, on: str) -> Place:
    """Return how runs compute on an executor."""
    device = executor.device()
    pick_engine(options.engine, torch.device(device))
    if on != "local" and options.precision == "auto":  # this machine may have another GPU, or none
        precision: Precision = "bf16" if device == "cuda" else "fp32"
    else:
        precision = pick_precision(options.precision, torch.device(device))
    return Place(
        device=device,
        precision=precision,
        data_dir=options.data_dir and options.data_dir.absolute(),
        model=options.kept_model(),
        task_networks=options.keep_model == "tasks",
        probe=options.probe,
        probe_every=options.probe_every,
        engine=options.engine,
        deterministic=options.deterministic and device == "cuda",
    )


def image_side(data: str, given: int | None) -> int:
    """Return the side of the images of a data set in pixels, 0 if unknown."""
    try:
        return given or find(data).image_size or 0
    except UserError:  # reported when the data are loaded
        return 0


def download(data: str, data_dir: Path | None, limit_per_class: int | None) -> None:
    """Load a data set once before several runs do, which downloads or decodes what is missing."""
    source = find(data)
    if source.files:  # a user's own folder is only looked at
        limit = limit_per_class if source.download else 1
        load(data, data_dir=data_dir, limit_per_class=limit)


def train_many(runs: Sequence[RunRequest], executor: Executor) -> dict[Path, JobResult]:
    """Train runs and show their progress; return the results of those that failed, by folder."""
    failures: dict[Path, JobResult] = {}
    try:
        with (
            _interruptible(),
            closing(execute(runs, executor)) as events,
            Live(runs) as live,
        ):
            for event in events:
                live.show(event)
                if event.kind == "failed" and event.request:
                    failures[event.request.final_folder] = event.result
    except KeyboardInterrupt as interrupted:
        fresh = [run.final_folder for run in runs if run.fresh]
        hint = _repetitions_begun(fresh) if fresh else GOES_ON
        raise Interrupted(hint, getattr(interrupted, "signal", signal.SIGINT)) from None
    return failures


def say_failures(failures: dict[Path, JobResult]) -> int:
    """Print how many runs failed, and return the exit status."""
    if failures:
        print(f"{counted(len(failures), 'run')} failed, see above.", file=sys.stderr)
    return 1 if failures else 0


def train_and_show(
    runs: Sequence[RunRequest], executor: Executor, on: str, *, as_json: bool
) -> int:
    """Train those runs that are not finished, print all, and return the exit status.

    One run is trained in this process, several by an executor.
    """
    left = [run for run in runs if run.fresh or not _say_finished(run)]
    failures: dict[Path, JobResult] = {}
    if len(left) == 1 and on == "local":
        name = f"{left[0].config.method} on {left[0].config.data}, seed {left[0].config.seed}"
        with stop_requests() as stop, Bar(name) as bar:
            train_alone(left[0], stop=stop, follow=bar.follow)
    elif left:
        if on == "local":
            configs = [run.config for run in left]
            for wanted in {(c.data, c.data_dir, c.limit_per_class) for c in configs}:
                download(*wanted)
        failures = train_many(left, executor)
    mistakes = [result.reason for result in failures.values() if result.kind == "failed"]
    if len(mistakes) == len(runs) and len(set(mistakes)) == 1:
        raise UserError(mistakes[0])
    show(runs, failures, as_json=as_json)
    return say_failures(failures)


def _say_finished(run: RunRequest) -> bool:
    """Return whether a run is finished, and say so."""
    done = _finished(run.folder, run.config)
    if not done:
        return False
    folder = visible(str(done.folder))
    print(f"already finished: {folder} (--fresh runs it again)", file=sys.stderr)
    remove_leftovers(done.folder)
    return True


def _finished(folder: Path, config: RunConfig) -> Finished | None:
    """Return the run of a folder if it is finished, also if the folder has been renamed."""
    if folder.exists() or folder.name != config.folder:
        return finished_in(folder, config)
    return finished(config, folder.parent)


def show(runs: Sequence[RunRequest], failures: Container[Path], *, as_json: bool) -> None:
    """Print the runs that have not failed.

    As JSON on standard output, one requested run is an object, several are a list.
    """
    there = [run for run in runs if run.final_folder not in failures]
    done = list(filter(None, (_finished(run.final_folder, run.config) for run in there)))
    print_runs(done, sys.stderr if as_json else sys.stdout)
    if as_json:
        results: list[dict[str, Any]] = [{"run": str(r.folder), **r.result} for r in done]
        print(json.dumps(results[0] if results and len(runs) == 1 else results))


def _repetitions_begun(folders: Sequence[Path]) -> str:
    """Return how to resume runs that started over, which the same command would do again."""
    places = [place for folder in folders for place in (folder, repetition_of(folder))]
    begun = [str(place) for place in places if RunFolder(place).checkpoints.files()]
    if not begun:
        return "interrupted; the unfinished runs were not kept."
    return f"interrupted; resume what was begun with: onpro resume {shlex.join(begun)}"


@contextmanager
def _interruptible() -> Iterator[None]:
    """Make a signal interrupt the command, which may then take a while, and say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        with suppress(OSError):  # nobody reads it any more
            os.write(2, b"\nonpro: stopping; runs under way save a checkpoint first.\n")
        raise Interrupted("", number)

    before = {number: signal.signal(number, interrupt) for number in handled_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
