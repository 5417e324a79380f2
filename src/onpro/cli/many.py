"""What `onpro table` and `onpro sweep` have in common: many runs, none lost, none repeated."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from types import FrameType

import torch

from onpro.cli.live import Live
from onpro.cli.options import ManyOptions, kept_model
from onpro.cli.signals import GOES_ON, heard
from onpro.data import find, load
from onpro.errors import UserError, counted
from onpro.experiments.comparison import compare, planned_samples
from onpro.experiments.estimate import Estimates
from onpro.experiments.executors import Crews, Executor, Local, execute
from onpro.experiments.experiment import Cell, Experiment, experiments_of
from onpro.experiments.plan import Place, Plan, plan
from onpro.nn import Precision
from onpro.reports.cells import (
    CELLS,
    COMPARISONS,
    PLAN,
    cell_records,
    comparison_records,
    duration,
    plan_records,
    total_seconds,
)
from onpro.reports.formats import render, render_together
from onpro.runs import Interrupted, RunConfig, require_writable, room_for_runs
from onpro.runs.threads import THREADS, cpu_threads, unequal_threads
from onpro.text import visible
from onpro.training import pick_device, pick_precision

STATES = ("done", "unfinished", "running", "missing", "damaged")


def carry_out(cells: Sequence[Cell], options: ManyOptions, *, what: str) -> int:
    """Run what is missing, go on with what was interrupted, print the table.

    The exit status is 1 where runs have failed.
    """
    options.check()
    if options.measure:
        cells = [Cell(experiment, options.measure) for experiment in experiments_of(cells)]
    if not options.dry_run:
        require_writable(options.out)
    try:
        with closing(_executor(cells, options)) as executor, _interruptible():
            place = _place(executor, options)
            planned = _possible(plan(cells, options.out, place), what)
            if options.dry_run:
                _print_plan(planned, options)
                return 0
            if options.on == "local":
                planned = _possible(_with_data(planned, place), what)
            _say_problems(planned)
            failures = _execute(planned, executor)
    except KeyboardInterrupt as interrupted:
        number = getattr(interrupted, "signal", signal.SIGINT)
        raise Interrupted("" if options.dry_run else GOES_ON, number) from None
    done = plan(cells, options.out, place)
    _print_results(cells, done, options)
    _say_unequal_threads(done)
    if failures:
        print(f"{counted(len(failures), 'run')} failed, as told above.", file=sys.stderr)
    return 1 if failures else 0


def _executor(cells: Sequence[Cell], options: ManyOptions) -> Executor:
    """Where runs happen."""
    if options.on == "ray" and not options.dry_run:
        from onpro.experiments.executors.ray import Ray

        return Ray(
            options.ray_address,
            cpus=options.cpus_per_run or 1,
            gpus=options.gpus_per_run or 1.0,
            workers=options.number_of_workers(),
            device=options.device,
        )
    if pick_device(options.device).type == "cpu":
        if options.on == "local" and (options.gpus or options.gpus_per_run):
            raise UserError("runs have no GPU here: leave --gpus and --gpus-per-run out.")
        return Local(options.number_of_workers(), threads=options.cpus_per_run)
    if options.on == "local" and options.cpus_per_run:
        raise UserError("--cpus-per-run is for --device cpu or --on ray: leave it out.")
    gpus = _gpus(options.gpus)
    return Crews(gpus, options.number_of_workers() or len(gpus) * _runs_per_gpu(cells, options))


def _runs_per_gpu(cells: Sequence[Cell], options: ManyOptions) -> int:
    if options.gpus_per_run is not None:
        return int(1 / options.gpus_per_run)
    gpus = range(torch.cuda.device_count())
    smallest = min(torch.cuda.get_device_properties(gpu).total_memory for gpu in gpus)
    return room_for_runs(smallest, max(map(_image_size, experiments_of(cells))))


def _image_size(experiment: Experiment) -> int:
    given: int | None = dict(experiment.stream).get("image_size")
    try:
        return given or find(experiment.data).image_size or 0
    except UserError:  # which is told when it comes to the plan
        return 0


def _place(executor: Executor, options: ManyOptions) -> Place:
    """How runs compute there."""
    device = executor.device()
    if options.on == "ray" and options.precision == "auto":
        precision: Precision = "bf16" if device == "cuda" else "fp32"
    else:
        precision = pick_precision(options.precision, torch.device(device))
    data_dir = options.data_dir and options.data_dir.expanduser().absolute()
    model = kept_model(options.model, options.keep_memory)
    return Place(device, precision, data_dir, model)


def _gpus(wanted: int | None) -> list[str]:
    """The GPUs of this machine that are to be used."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(i) for i in range(torch.cuda.device_count())]
    if wanted is not None and not 1 <= wanted <= len(names):
        raise UserError(f"--gpus takes 1 to {len(names)} here, not {wanted}; see --device cpu.")
    return names[:wanted]


def _possible(planned: Plan, what: str) -> Plan:
    """Refuse a plan that leaves everything out."""
    if not planned.runs():
        reasons = " ".join(planned.problems())
        raise UserError(f"nothing of {what} can be run: {reasons}")
    return planned


def _with_data(planned: Plan, place: Place) -> Plan:
    """Fetch what has to be downloaded before the runs all do it; leave out what cannot be."""
    for data in dict.fromkeys(config.data for config in planned.left()):
        if find(data).download:
            try:
                load(data, data_dir=place.data_dir)
            except UserError as error:
                planned = planned.without(data, str(error))
    return planned


def _execute(planned: Plan, executor: Executor) -> dict[str, str]:
    """Run what is left; gives the folders of runs that have failed, and why."""
    runs, left = planned.runs(), planned.left()
    failures = {run.config.folder: run.problem for run in runs if run.problem}
    print(_counts(planned), file=sys.stderr)
    if left:
        with (
            closing(execute(left, planned.out, executor)) as events,
            Live(left, planned.out) as live,
        ):
            for event in events:
                live.show(event)
                if event.kind == "failed" and event.config:
                    failures[event.config.folder] = event.reason
    return failures


def _print_plan(planned: Plan, options: ManyOptions) -> None:
    estimates = Estimates(planned.out)
    left = planned.left()
    if options.calibrate:
        with cpu_threads(options.cpus_per_run or THREADS):
            estimates.calibrate(left)

    def seconds(config: RunConfig) -> float | None:
        return estimates.seconds(config, planned.out)

    print(render(plan_records(planned, seconds), PLAN, options.format))
    if options.format == "text":
        print(f"\n{_counts(planned)}")
        if left:
            total = total_seconds(left, seconds)
            hint = "" if options.calibrate or total is not None else " (--calibrate estimates it)"
            print(f"left to compute, run after run: {duration(total)}{hint}")
    _say_problems(planned)


def _counts(planned: Plan) -> str:
    states = [run.state for run in planned.runs()]
    counts = ", ".join(f"{states.count(s)} {s}" for s in STATES if s in states)
    return f"{counted(len(states), 'run')}: {counts}"


def _say_problems(planned: Plan) -> None:
    for problem in planned.problems():
        print(f"left out: {visible(problem)}", file=sys.stderr)


def _say_unequal_threads(done: Plan) -> None:
    for planned in done.experiments:
        if unequal := unequal_threads(run.result for run in planned.runs if run.result):
            print(f"{planned.experiment}: its runs computed {unequal}.", file=sys.stderr)


def _print_results(cells: Sequence[Cell], done: Plan, options: ManyOptions) -> None:
    results = cell_records(cells, done)
    if not options.compare:
        print(render(results, CELLS, options.format))
        return
    compared = comparison_records(compare(planned_samples(cells, done)))
    tables = {"results": (results, CELLS), "comparisons": (compared, COMPARISONS)}
    print(render_together(tables, options.format))
    if not compared:
        print(
            "nothing to compare: no two experiments have two finished runs each.", file=sys.stderr
        )
    elif options.format == "csv":
        print("not in csv: the comparison of methods; --format json has it.", file=sys.stderr)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Make a signal interrupt the command, which may then take a while, and say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        with suppress(OSError):  # nobody reads it any more
            os.write(2, b"\nonpro: stopping; runs under way save their state first.\n")
        raise Interrupted("", number)

    before = {number: signal.signal(number, interrupt) for number in heard()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
