"""Carry out `onpro bench`."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, TextIO, get_args

import torch

from onpro.bench import Measure, bench, document, matrix_peak, waiting
from onpro.cli.bench import Command
from onpro.cli.parsing import comma_separated, whole_numbers
from onpro.cli.printing import print_table
from onpro.data import find
from onpro.errors import UserError, unknown
from onpro.methods import method, methods, settings_for
from onpro.methods.method_file import resolve
from onpro.reports.bench import bench_table, conditions, figures_by_task
from onpro.runs import RunConfig, SharedImages
from onpro.runs.files import read_json, save
from onpro.runs.threads import THREADS, cpu_threads, require_threads
from onpro.text import visible
from onpro.training import Engine, pick_device, pick_engine, pick_precision
from onpro.training.device import keep_freed_memory

DEFAULT = "onpro"
ALL = "all"


def carry_out(options: Command) -> None:
    """Measure what the options ask for, print it and save it."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler reports its own doings
    configs = list(_configs(options))
    engines = _engines(options)
    if options.save is not None:
        _require_place(options.save)
    device = pick_device(options.device)
    Measure(options.steps, options.repeats)  # refuses bad numbers before anything is measured
    with _as_in_runs(options, device):
        _measure(options, configs, engines, device)


@contextmanager
def _as_in_runs(options: Command, device: torch.device) -> Iterator[None]:
    """Use threads and memory of a CPU as runs do."""
    require_threads(options.threads)
    if device.type != "cpu":
        yield
        return
    keep_freed_memory()
    with cpu_threads(options.threads or THREADS):
        yield


def _measure(
    options: Command,
    configs: Sequence[tuple[RunConfig, int]],
    engines: Sequence[Engine],
    device: torch.device,
) -> None:
    peak = matrix_peak(device, configs[0][0].precision)
    measure = Measure(options.steps, options.repeats, peak)
    out = sys.stderr if options.json else sys.stdout
    results: list[dict[str, Any]] = []
    for config, classes in configs:
        try:
            measured = bench(config, classes, engines, measure)
        except UserError as error:
            if len(configs) == 1:
                raise
            print(f"onpro: {config.method} is left out: {error}", file=sys.stderr)
            continue
        results += measured
        _print(measured, out)
        if options.save is not None:  # after each, so that an interruption takes only the last
            text = json.dumps(document(results, device, measure), indent=1)
            save(options.save, f"{text}\n".encode())
    if not results:
        raise UserError("nothing could be measured.")
    print(conditions(document(results, device, measure)), file=out)
    if options.save is not None:
        print(f"saved {visible(str(options.save))}", file=out)
    if options.json:
        print(json.dumps(document(results, device, measure)))


def measure_waiting(options: Command) -> None:
    """Measure how long steps wait for the images of a data set, and print it."""
    for option in ("classes", "compare", "save"):
        if getattr(options, option):
            raise UserError(f"--{option} does not go with --data: leave one of them out.")
    Measure(options.steps)  # refuses a bad number
    device = pick_device(options.device)
    images = SharedImages()
    results: list[dict[str, Any]] = []
    with _as_in_runs(options, device):
        for name, memory in product(_names(options), whole_numbers("memory", options.memory)):
            config = _config(options, name, options.data, memory)
            config = replace(
                config, data_dir=options.data_dir, engine=pick_engine(options.engine, device)
            )
            results.append(waiting(config, images(config), options.steps))
    print_table(
        ["method", "memory", "ms per step", "without waiting", "waiting", "images/s"],
        [
            [
                result["method"],
                str(result["memory"]),
                f"{result['ms']:.2f}",
                f"{result['ms_without_waiting']:.2f}",
                f"{result['waiting_percent']:.1f} %",
                f"{result['images_per_second']:,.0f}",
            ]
            for result in results
        ],
        sys.stderr if options.json else sys.stdout,
    )
    if options.json:
        print(json.dumps(results))


def _names(options: Command) -> tuple[str, ...]:
    """Return the names of the methods to measure."""
    names = options.methods or (DEFAULT,)
    if ALL in names:
        return tuple(methods())
    return tuple(method(resolve(name)).about.name for name in names)


def _configs(options: Command) -> Iterator[tuple[RunConfig, int]]:
    """Yield every combination of methods, numbers of classes and memories."""
    names = _names(options)
    for option in ("tasks", "image_size", "batch_size"):
        value = getattr(options, option)
        if value is not None and value < 1:
            name = option.replace("_", "-")
            raise UserError(f"--{name} must be at least 1, not {value}.")
    source = find(options.like)
    size = options.image_size or source.image_size
    if size is None or not (options.classes or source.classes):
        raise UserError(f"{options.like} has no shape of its own: give --classes and --image-size.")
    classes = whole_numbers("classes", options.classes or str(source.classes))
    for name, many, memory in product(names, classes, whole_numbers("memory", options.memory)):
        tasks = source.tasks_for(many) if options.tasks is None else options.tasks
        if not 1 <= tasks <= many:
            raise UserError(f"{many} classes make 1 to {many} tasks, not {tasks}: give --tasks.")
        config = _config(options, name, options.like, memory)
        yield replace(config, tasks=tasks, image_size=size), many


def _config(options: Command, name: str, data: str, memory: int) -> RunConfig:
    """Return a run of a method with the options."""
    return RunConfig(
        method=name,
        settings=settings_for(name, data, options.recipe),
        data=data,
        memory=memory,
        recipe=options.recipe,
        tasks=options.tasks,
        batch_size=options.batch_size,
        image_size=options.image_size,
        precision=pick_precision(options.precision, pick_device(options.device)),
        device=options.device,
    )


def _engines(options: Command) -> list[Engine]:
    device = pick_device(options.device)
    if not options.compare:
        return [pick_engine(options.engine, device)]
    names = comma_separated(options.compare)
    if not names:
        raise UserError("name engines to compare, comma-separated, such as eager,graph.")
    known: dict[str, Engine] = {engine: engine for engine in get_args(Engine)}
    for name in names:
        if name not in known:
            raise unknown("engine", name, known)
    return [pick_engine(known[name], device) for name in names]


def _require_place(path: Path) -> None:
    """Raise UserError for a file that cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}.") from None
    if path.is_dir() or path.is_fifo() or not os.access(path.parent, os.W_OK):
        raise UserError(f"cannot write {path}: give --save a file in a folder of yours.")


def table_of(path: Path) -> str:
    """Return a file of `onpro bench --save` as a Markdown table."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is no file: name one that onpro bench --save has written.")
    try:
        return bench_table(read_json(path))
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} is not what onpro bench --save writes ({error!r}): measure it again."
        ) from error


def _print(measured: Sequence[dict[str, Any]], out: TextIO) -> None:
    first = measured[0]
    print(
        f"{first['method']}, memory of {first['memory']} images, {first['classes']} classes in "
        f"{first['tasks']} tasks:",
        file=out,
    )
    print_table(*figures_by_task(measured), out)
