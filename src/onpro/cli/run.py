"""`onpro run [METHOD]`: train one method, one or several seeds."""

import json
import re
import shlex
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, make_dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from onpro.cli.parsing import parse
from onpro.cli.progress import Bars
from onpro.cli.signals import GOES_ON, stop_requests
from onpro.cli.summary import print_runs
from onpro.data import find
from onpro.errors import UserError
from onpro.experiments import (
    Finished,
    RunConfig,
    SharedImages,
    data_values,
    finished_in,
    prepare,
    recipes,
    require_writable,
    room_for_runs,
    running,
    settings_for,
    side_by_side,
)
from onpro.experiments.run import REPETITION, Interrupted, Running
from onpro.experiments.side_by_side import MOST_AT_ONCE
from onpro.experiments.threads import THREADS, cpu_threads, require_threads, threads_of
from onpro.experiments.weights_and_biases import WandbLog, going_on
from onpro.methods import Settings, method, methods
from onpro.training import pick_device, pick_engine, pick_precision, require_interval
from onpro.training.checkpoint import CHECKPOINT_EVERY, Checkpoints

DEFAULT = "onpro"


@dataclass(frozen=True)
class RunOptions:
    """Options of every method."""

    data: str = "digits"
    """Data set: a name that `onpro datasets` lists, or folder:PATH for your own images."""

    data_dir: Path | None = None
    """Where data sets lie or are downloaded to; else $ONPRO_DATA, else the user's cache."""

    memory: int = 100
    """How many past images may be kept."""

    seed: int = 0
    """Seed of everything random in the run."""

    seeds: int = 1
    """Number of runs, with seeds SEED, SEED+1, ...; on a GPU they run side by side."""

    at_once: int = 0
    """How many runs share a GPU at a time, at most 32; 0: as many as its free memory has room for,
    one for each 7 GiB with images of 32×32."""

    recipe: str | None = None
    """A named variation of the method, such as an ablation of the paper."""

    tasks: int | None = None
    """Number of tasks the classes arrive in; else the data set's own."""

    batch_size: int = 10
    """Number of images that arrive together (default from the paper)."""

    class_order: Literal["natural", "random"] = "natural"
    """Order in which classes arrive: as numbered (default from the paper) or drawn by the seed."""

    image_size: int | None = None
    """Side in pixels to which images are resized once; else the data set's own."""

    limit_per_class: int | None = None
    """Use only so many training and test images of each class, for a quick try."""

    out: Path = Path("runs")
    """Where run folders are made."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes a GPU where there is one."""

    precision: Literal["auto", "fp32", "fp16", "bf16"] = "auto"
    """Precision of the network in training; auto is bf16 on a GPU, fp32 on a CPU. Losses are
    always float32."""

    threads: int | None = None
    """Threads of a run on the CPU; else those it began with, else 1. Their number changes the last
    digits of a result."""

    engine: Literal["auto", "eager", "compile", "graph"] = "auto"
    """How steps are computed: operation by operation, with a compiled network, or as one CUDA
    graph; auto is graph on a GPU, eager on a CPU."""

    deterministic: bool = False
    """On a GPU, give equal results run after run, which takes longer; on a CPU results are always
    equal."""

    checkpoint_every: float = CHECKPOINT_EVERY
    """Seconds between two checkpoints, from which an interrupted run goes on; 0 saves one after
    each task only."""

    fresh: bool = False
    """Start over even if this very run is already finished or interrupted in OUT."""

    tensorboard: bool = False
    """Log for TensorBoard too, into the run folder."""

    wandb: bool = False
    """Log for Weights & Biases too; offline where nobody is logged in or WANDB_MODE says so."""

    json: bool = False
    """Print the result as JSON on the last line of standard output, all else on standard error."""


def main(arguments: Sequence[str]) -> int:
    """Run what the arguments ask for."""
    if arguments and arguments[0] in ("-h", "--help"):
        arguments = [*arguments[1:], "--help"]  # of the method that follows
    named = bool(arguments) and not arguments[0].startswith("-")
    name = arguments[0] if named else DEFAULT
    try:
        options, settings = _parse(name, arguments[1:] if named else arguments)
    except UserError as error:
        stray = re.search("Unrecognized options: ([^ ;,]+)", str(error))
        if not named and stray and stray[1] in methods():
            raise UserError(
                f"the method comes first: onpro run {stray[1]}, then options."
            ) from None
        raise
    if options.seeds < 1:
        raise UserError(f"the number of seeds must be at least 1, not {options.seeds}.")
    require_interval(options.checkpoint_every)
    require_threads(options.threads)
    require_writable(options.out)
    say = sys.stderr if options.json else sys.stdout
    values = data_values(name, options.data).items()
    listed = ", ".join(f"{f}={value}" for f, value in values if getattr(settings, f) == value)
    if listed:
        print(f"{name} on {options.data}: {listed} (the data set's values)", file=say)
    if options.recipe:
        print(f"recipe {options.recipe}: {recipes(name)[options.recipe].about}", file=say)
    device = pick_device(options.device)
    pick_engine(options.engine, device)
    configs = [
        RunConfig(
            method=name,
            settings=settings,
            data=options.data,
            memory=options.memory,
            seed=seed,
            recipe=options.recipe,
            tasks=options.tasks,
            batch_size=options.batch_size,
            class_order=options.class_order,
            image_size=options.image_size,
            limit_per_class=options.limit_per_class,
            precision=pick_precision(options.precision, device),
            deterministic=options.deterministic and device.type == "cuda",
            data_dir=options.data_dir,
            device=options.device,
            engine=options.engine,
        )
        for seed in range(options.seed, options.seed + options.seeds)
    ]
    done = train(
        [(options.out / config.folder, config) for config in configs],
        fresh=options.fresh,
        checkpoint_every=options.checkpoint_every,
        tensorboard=options.tensorboard,
        wandb=options.wandb,
        at_once=options.at_once,
        threads=options.threads,
    )
    show(done, as_json=options.json)
    return 0


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
    done = {folder: None if fresh else finished_in(folder) for folder, _ in runs}
    for run in filter(None, done.values()):
        print(f"already finished: {run.folder} (--fresh runs it again)", file=sys.stderr)
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
                trained = side_by_side(
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


def _parse(name: str, arguments: Sequence[str]) -> tuple[RunOptions, Settings]:
    """Parse twice: the first time to learn data set and recipe, whose values are then defaults."""
    cls = method(name)
    command: Any = make_dataclass("Command", [("run", RunOptions), ("method", cls.settings_type)])
    paragraphs = [
        f"Train {cls.about.title} ({cls.about.paper}, {cls.about.year}).",
        f"METHOD is one of {', '.join(methods())}; without one it is {DEFAULT}.",
        f"Recipes of {name}: {', '.join(recipes(name)) or 'none'}.",
    ]
    say = {
        "command": f"onpro run {name}",
        "about": "\n\n".join(map(_fold, paragraphs)),
    }
    first: RunOptions = parse(command, arguments, **say).run
    values = settings_for(name, first.data, first.recipe)
    parsed = parse(command, arguments, default=command(RunOptions(), values), **say)
    return parsed.run, parsed.method


def _fold(paragraph: str) -> str:
    """Lines of a terminal's width; tyro joins them again unless they are indented."""
    return textwrap.fill(paragraph, 79, subsequent_indent="  ", break_on_hyphens=False)
