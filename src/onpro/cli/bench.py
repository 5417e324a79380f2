"""`onpro bench [METHOD…]`: how fast steps are, and where their time goes."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal, TextIO, get_args

import torch
import tyro

from onpro.cli.parsing import parse
from onpro.cli.printing import print_table
from onpro.data import find
from onpro.errors import UserError, unknown
from onpro.experiments import RunConfig, settings_for
from onpro.experiments.bench import Measure, bench, document, matrix_peak
from onpro.experiments.files import read_json, write_json
from onpro.experiments.threads import THREADS, cpu_threads, require_threads
from onpro.methods import method, methods
from onpro.reports.bench import bench_table, conditions, figures_by_task
from onpro.training import Engine, pick_device, pick_engine, pick_precision

DEFAULT = "onpro"
ALL = "all"


@dataclass(frozen=True)
class BenchOptions:
    """What to measure."""

    methods: tyro.conf.Positional[tuple[str, ...]] = ()
    """Names of methods, or all; onpro if there is none."""

    like: str = "cifar10"
    """Data set whose values of the methods' settings, classes, tasks and image size are taken;
    its images are not."""

    recipe: str | None = None
    """A named variation of the methods."""

    memory: str = "200"
    """How many past images may be kept; several numbers, joined by commas, are measured one after
    the other."""

    classes: str = ""
    """Number of classes, or several joined by commas; else that of the data set."""

    tasks: int | None = None
    """Number of tasks the classes arrive in; else the data set's own."""

    image_size: int | None = None
    """Side of the images in pixels; else the data set's own."""

    batch_size: int = 10
    """Number of images that arrive together."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes a GPU where there is one."""

    precision: Literal["auto", "fp32", "fp16", "bf16"] = "auto"
    """Precision of the network; auto is bf16 on a GPU, fp32 on a CPU."""

    engine: Literal["auto", "eager", "compile", "graph"] = "auto"
    """How steps are computed, as in onpro run."""

    threads: int = THREADS
    """Threads on the CPU, as in onpro run."""

    compare: str = ""
    """Engines to measure in turn, joined by commas, such as eager,graph; their ratios are printed
    too."""

    steps: int = 20
    """Steps in a block, which is timed as a whole."""

    repeats: int = 3
    """Number of blocks; the median counts."""

    json: bool = False
    """Print all figures as JSON on the last line of standard output, all else on standard error."""

    save: Path | None = None
    """File for the figures as JSON, with hardware and versions."""

    show: tuple[Path, ...] = ()
    """Measure nothing: print such files as tables in Markdown."""


@dataclass(frozen=True)
class Command:
    """A measurement."""

    options: BenchOptions


def main(arguments: Sequence[str]) -> int:
    """Measure what the arguments ask for, or show what was measured."""
    about = (
        "Measure how long a training step takes, and where its time goes.\n\n"
        "In the first, second and last task, with a full memory, on random images."
    )
    options = parse(Command, arguments, command="onpro bench", about=about).options
    if "--show" in arguments and not options.show:
        raise UserError("name at least one file that onpro bench --save has written: --show FILE.")
    if options.show:
        print("\n\n".join(_table_of(path) for path in options.show))
        return 0
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler reports its own doings
    configs = list(_configs(options))
    engines = _engines(options)
    if options.save is not None:
        _require_place(options.save)
    device = pick_device(options.device)
    Measure(options.steps, options.repeats)  # refuses bad numbers before anything is measured
    require_threads(options.threads)
    on_cpu = device.type == "cpu"
    with cpu_threads(options.threads) if on_cpu else nullcontext():
        return _measure(options, configs, engines, device)


def _measure(
    options: BenchOptions,
    configs: Sequence[tuple[RunConfig, int]],
    engines: Sequence[Engine],
    device: torch.device,
) -> int:
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
            write_json(options.save, document(results, device, measure))
    if not results:
        raise UserError("nothing could be measured.")
    print(conditions(document(results, device, measure)), file=out)
    if options.save is not None:
        print(f"saved {options.save}", file=out)
    if options.json:
        print(json.dumps(document(results, device, measure)))
    return 0


def _configs(options: BenchOptions) -> Iterator[tuple[RunConfig, int]]:
    """Every combination of methods, numbers of classes and memories."""
    names = options.methods or (DEFAULT,)
    names = tuple(methods()) if ALL in names else tuple(method(n).about.name for n in names)
    for option in ("tasks", "image_size", "batch_size"):
        value = getattr(options, option)
        if value is not None and value < 1:
            name = option.replace("_", "-")
            raise UserError(f"--{name} must be at least 1, not {value}.")
    source = find(options.like)
    device = pick_device(options.device)
    size = options.image_size or source.image_size
    if size is None or not (options.classes or source.classes):
        raise UserError(f"{options.like} has no shape of its own: give --classes and --image-size.")
    classes = _numbers("classes", options.classes or str(source.classes))
    for name, many, memory in product(names, classes, _numbers("memory", options.memory)):
        tasks = source.tasks_for(many) if options.tasks is None else options.tasks
        if not 1 <= tasks <= many:
            raise UserError(f"{many} classes make 1 to {many} tasks, not {tasks}: give --tasks.")
        yield (
            RunConfig(
                method=name,
                settings=settings_for(name, options.like, options.recipe),
                data=options.like,
                memory=memory,
                recipe=options.recipe,
                tasks=tasks,
                batch_size=options.batch_size,
                image_size=size,
                precision=pick_precision(options.precision, device),
                device=options.device,
            ),
            many,
        )


def _engines(options: BenchOptions) -> list[Engine]:
    device = pick_device(options.device)
    if not options.compare:
        return [pick_engine(options.engine, device)]
    names = list(dict.fromkeys(filter(None, map(str.strip, options.compare.split(",")))))
    if not names:
        raise UserError("name engines to compare, joined by commas, such as eager,graph.")
    known: dict[str, Engine] = {engine: engine for engine in get_args(Engine)}
    for name in names:
        if name not in known:
            raise unknown("engine", name, known)
    return [pick_engine(known[name], device) for name in names]


def _require_place(path: Path) -> None:
    """Refuse a file that cannot be written, before anything is measured for it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}.") from None
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise UserError(f"cannot write {path}: give --save a file in a folder of yours.")


def _numbers(option: str, text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UserError(f"--{option} takes numbers of at least 1, joined by commas, not '{text}'.")
    return [int(part) for part in parts]


def _table_of(path: Path) -> str:
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
