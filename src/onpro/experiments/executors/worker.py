"""Train a requested run, in a process of any executor or in that of the command."""

import io
import signal
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from types import FrameType

import torch

from onpro.data.imageset import ImageSet
from onpro.errors import UserError
from onpro.experiments.executors.base import JobResult, RunRequest
from onpro.runs.config import RunConfig
from onpro.runs.files import Held
from onpro.runs.runner import Interrupted, Running, last, load_images, prepare, running
from onpro.runs.threads import THREADS, cpu_threads, threads_of
from onpro.runs.weights_and_biases import WandbLog, going_on
from onpro.training import Listener, Trainer, pick_device
from onpro.training.device import deterministic_mode, keep_freed_memory

LOG_BEGINS = "What a run of onpro printed before it failed:\n\n"
"""Tells the file with the output of a run from one that the user has put there."""

Stop = Callable[[], int | None]
"""Returns the number of the signal that asks a run to stop, None as long as none has come."""


def train(
    request: RunRequest,
    *,
    stop: Stop,
    images: Callable[[RunConfig], ImageSet] = load_images,
    follow: Callable[[Trainer], Listener] | None = None,
) -> Running:
    """Train a run, or resume it, yielding after each step.

    The number of threads, and that freed memory is kept, are set for the whole process.

    Args:
        request: What to train, and how.
        stop: Asked after each step.
        images: Returns the data of a run.
        follow: Returns a listener that shows the progress of the run.
    """
    folder, config = request.folder, request.config
    if pick_device(config.device).type == "cpu":
        began_with = None if request.fresh else threads_of(folder)
        torch.set_num_threads(request.threads or began_with or THREADS)
        keep_freed_memory()
    if request.wandb:
        log: WandbLog | None = WandbLog(folder, config)
    else:
        log = None if request.fresh else going_on(folder, config)
    trainer = prepare(config, images(config))
    listeners: list[Listener] = [follow(trainer)] if follow else []
    run = running(
        folder,
        config,
        listeners=[*listeners, log] if log else listeners,
        tensorboard=request.tensorboard,
        trainer=trainer,
        fresh=request.fresh,
        checkpoint_every=request.checkpoint_every,
        stop=stop,
    )
    return (yield from log.during(run) if log else run)


def train_alone(request: RunRequest, *, stop: Stop, follow: Callable[[Trainer], Listener]) -> None:
    """Train a run in this process; errors are raised."""
    device = pick_device(request.config.device)
    with (
        deterministic_mode(device, request.config.deterministic),
        cpu_threads(torch.get_num_threads()),
    ):
        last(train(request, stop=stop, follow=follow))


def work(request: RunRequest, *, handled_again: Sequence[int] = ()) -> JobResult:
    """Train a run in a process that does nothing else; signals make it save a checkpoint and end.

    Args:
        request: What to train.
        handled_again: Signals that stop the run too, and are then raised for their usual handlers.
    """
    numbers = [signal.SIGINT, signal.SIGTERM, *handled_again]
    with (
        noted_signals(numbers) as stop,
        deterministic_mode(pick_device(request.config.device), request.config.deterministic),
        cpu_threads(torch.get_num_threads()),
    ):
        result = last(attempt(request, stop=stop))
    if result.kind == "died" and (number := stop()) in handled_again:
        signal.raise_signal(number or 0)
    return result


def attempt(
    request: RunRequest,
    *,
    stop: Stop,
    images: Callable[[RunConfig], ImageSet] = load_images,
) -> Generator[None, int | None, JobResult]:
    """Train a run as `train` does; the result has its errors and what it printed."""
    return (yield from _with_output(_attempt(request, stop, images), request))


def _attempt(
    request: RunRequest, stop: Stop, images: Callable[[RunConfig], ImageSet]
) -> Generator[None, int | None, JobResult]:
    try:
        yield from train(request, stop=stop, images=images)
    except Interrupted as interrupted:
        return JobResult("died", str(interrupted))
    except Held as error:
        return JobResult("busy", str(error))
    except UserError as error:
        return JobResult("failed", str(error))
    except torch.OutOfMemoryError:
        return JobResult("died", "the GPU has not enough free memory for it.")
    except torch.AcceleratorError as error:  # this process computes nothing on it any more
        return JobResult("died", f"the GPU failed ({str(error).splitlines()[0]}).")
    except Exception as error:
        traceback.print_exc()
        return JobResult("defect", f"{type(error).__name__}: {error}")
    return JobResult("finished")


def _with_output(
    run: Generator[None, int | None, JobResult], request: RunRequest
) -> Generator[None, int | None, JobResult]:
    """Run an attempt that may take turns with others, and add what it printed to its result.

    After a defect that is in a file beside the folder of the run, which the result names, unless
    the user has a file of that name.
    """
    printed = io.StringIO()
    runs: int | None = None
    with closing(run):
        while True:
            try:
                with redirect_stdout(printed), redirect_stderr(printed):
                    run.send(runs)
            except StopIteration as end:
                result: JobResult = end.value
                break
            runs = yield
    output = printed.getvalue().strip()
    log = request.final_folder.with_name(f"{request.final_folder.name}.log")
    own = not log.exists() or (log.is_file() and log.read_bytes().startswith(LOG_BEGINS.encode()))
    if own:
        log.unlink(missing_ok=True)
    if result.kind != "defect" or not own:
        return replace(result, output=output)
    log.write_text(f"{LOG_BEGINS}{output}\n", encoding="utf-8")
    return replace(result, reason=f"{result.reason}; see {log}.")


@contextmanager
def noted_signals(
    numbers: Sequence[int] = (signal.SIGINT, signal.SIGTERM),
) -> Iterator[Stop]:
    """Note signals instead of handling them; gives a function that returns the first."""
    arrived: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        arrived.append(number)

    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield lambda: arrived[0] if arrived else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
