"""`onpro run [METHOD]`: train one method, one or several seeds."""

import json
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any, Literal

from onpro.cli.parsing import parse
from onpro.cli.progress import Progress
from onpro.cli.signals import stop_requests
from onpro.cli.summary import print_runs
from onpro.errors import UserError
from onpro.experiments import (
    Finished,
    RunConfig,
    data_values,
    finished_in,
    prepare,
    recipes,
    require_writable,
    run_in,
    settings_for,
)
from onpro.methods import Settings, method, methods
from onpro.training import pick_device, pick_precision, require_interval
from onpro.training.checkpoint import CHECKPOINT_EVERY

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
    """Number of runs, with seeds SEED, SEED+1, ..."""

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

    checkpoint_every: float = CHECKPOINT_EVERY
    """Seconds between two checkpoints, from which an interrupted run goes on; 0 saves one after
    each task only."""

    fresh: bool = False
    """Start over even if this very run is already finished or interrupted in OUT."""

    tensorboard: bool = False
    """Log for TensorBoard too, into the run folder."""

    json: bool = False
    """Print the result as JSON on the last line of standard output, all else on standard error."""


def main(arguments: Sequence[str]) -> int:
    """Run what the arguments ask for."""
    named = bool(arguments) and not arguments[0].startswith("-")
    name = arguments[0] if named else DEFAULT
    options, settings = _parse(name, arguments[1:] if named else arguments)
    if options.seeds < 1:
        raise UserError(f"the number of seeds must be at least 1, not {options.seeds}.")
    require_interval(options.checkpoint_every)
    require_writable(options.out)
    say = sys.stderr if options.json else sys.stdout
    values = data_values(name, options.data).items()
    listed = ", ".join(f"{f}={value}" for f, value in values if getattr(settings, f) == value)
    if listed:
        print(f"{name} on {options.data}: {listed} (the data set's values)", file=say)
    if options.recipe:
        print(f"recipe {options.recipe}: {recipes(name)[options.recipe].about}", file=say)
    device = pick_device(options.device)
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
            data_dir=options.data_dir,
            device=options.device,
        )
        for seed in range(options.seed, options.seed + options.seeds)
    ]
    done = [
        train(
            options.out / config.folder,
            config,
            fresh=options.fresh,
            checkpoint_every=options.checkpoint_every,
            tensorboard=options.tensorboard,
        )
        for config in configs
    ]
    show(done, as_json=options.json)
    return 0


def train(
    folder: Path,
    config: RunConfig,
    *,
    fresh: bool,
    checkpoint_every: float,
    tensorboard: bool = False,
) -> Finished:
    """Run what the folder is for, from its last checkpoint on, unless it is finished."""
    done = None if fresh else finished_in(folder)
    if done:
        print(f"already finished: {done.folder} (--fresh runs it again)", file=sys.stderr)
        return done
    trainer = prepare(config)
    label = f"{config.method} on {config.data}, seed {config.seed}"
    with stop_requests() as stop, Progress(trainer, label=label) as bar:
        return run_in(
            folder,
            config,
            listeners=[bar],
            tensorboard=tensorboard,
            trainer=trainer,
            fresh=fresh,
            checkpoint_every=checkpoint_every,
            stop=stop,
        )


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
