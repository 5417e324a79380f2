"""`onpro run [METHOD]`: train one method, one or several seeds."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

from onpro.cli.options import kept_model
from onpro.cli.outlines import default_settings, outline, outlines, wrapper_outlines
from onpro.cli.parsing import CHECKPOINT_EVERY, parse, require_path
from onpro.cli.signals import importing
from onpro.cli.stream_options import check_stream_options, chosen_kind, command_with, stream_of
from onpro.errors import UserError
from onpro.streams import Disjoint
from onpro.validation import split_method

if TYPE_CHECKING:
    from onpro.methods import Settings
    from onpro.streams import StreamKind

DEFAULT = "onpro"

HELP = {"-h", "--help"}


@dataclass(frozen=True)
class RunOptions:
    """Options of every method."""

    data: str = "digits"
    """Data set: a name that `onpro datasets` lists, or folder:PATH for your own images."""

    memory: int = 100
    """How many past images may be kept."""

    recipe: str | None = None
    """A named variation of the method, such as an ablation of the paper."""

    seed: int = 0
    """Seed of everything random in the run."""

    seeds: int = 1
    """Number of runs, with seeds SEED, SEED+1, ...; on a GPU they run side by side."""

    out: Path = Path("runs")
    """Where run folders are made."""

    json: bool = False
    """Print the result as JSON on the last line of standard output, all else on standard error."""

    stream: str = "disjoint"
    """Kind of stream: a name that `onpro streams` lists. Its settings are further options."""

    tasks: int | None = None
    """Number of tasks the classes arrive in; else the data set's own. A stream without tasks has as
    many evaluations."""

    hide_boundaries: bool = False
    """Do not tell the method when a task begins; it then sees one where a new class arrives."""

    evaluations: int = 0
    """Evaluate at so many equal distances too, beside after each task, for anytime_accuracy."""

    batch_size: int = 10
    """Number of images that arrive together (default from the paper)."""

    class_order: Literal["natural", "random"] = "natural"
    """Order in which classes arrive: as numbered (default from the paper) or drawn by the seed."""

    image_size: int | None = None
    """Side in pixels to which images are resized once; else the data set's own."""

    limit_per_class: int | None = None
    """Use only so many training and test images of each class, for a quick try."""

    data_dir: Path | None = None
    """Where data sets lie or are downloaded to; else $ONPRO_DATA, else the user's cache."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes a GPU where there is one."""

    precision: Literal["auto", "fp32", "tf32", "fp16", "bf16"] = "auto"
    """Precision of the network in training; auto is bf16 on a GPU, fp32 on a CPU. tf32 is fp32
    with rounded convolutions, on GPUs. Losses and evaluation are always fp32."""

    engine: Literal["auto", "eager", "compile", "graph"] = "auto"
    """How steps are computed: operation by operation, with a compiled network, or as one CUDA
    graph; auto is graph on a GPU, eager on a CPU."""

    threads: int | None = None
    """Threads of a run on the CPU; else those it began with, else 1. Large networks gain from more;
    their number changes the last digits of a result."""

    deterministic: bool = False
    """On a GPU, give equal results run after run, which takes longer; on a CPU results are always
    equal."""

    at_once: int = 0
    """How many runs share a GPU at a time, at most 32; 0: as many as its free memory has room for,
    one for each 7 GiB with images of 32×32."""

    checkpoint_every: float = CHECKPOINT_EVERY
    """Seconds between two checkpoints, from which an interrupted run goes on; 0 saves one after
    each task only."""

    model: bool = True
    """Keep the trained model in the run folder, for onpro predict and OnlineClassifier.from_run."""

    keep_memory: bool = False
    """Keep the images of the memory with the model, so that learning can go on exactly."""

    fresh: bool = False
    """Start over even if this very run is already finished or interrupted in OUT."""

    tensorboard: bool = False
    """Log for TensorBoard too, into the run folder."""

    wandb: bool = False
    """Log for Weights & Biases too; offline where nobody is logged in or WANDB_MODE says so."""


def main(arguments: Sequence[str]) -> int:
    """Run what the arguments ask for."""
    if arguments and arguments[0] in HELP:
        arguments = [*arguments[1:], "--help"]  # of the method that follows
    named = bool(arguments) and not arguments[0].startswith("-")
    name = arguments[0] if named else DEFAULT
    rest = list(arguments[1:] if named else arguments)
    if file := split_method(name):
        require_path(file[0])
        with importing():
            from onpro.runs.method_file import resolve
        name = resolve(name)
    elif name in wrapper_outlines():
        if not HELP.isdisjoint(rest) and not any(word.startswith("--base") for word in rest):
            _help_on_wrapper(name)
        name, rest = _with_base(name, rest)
    try:
        options, settings, kind = _parse(name, rest, named=named)
    except UserError as error:
        stray = re.search("Unrecognized options: ([^ ;,]+)", str(error))
        if not named and stray and stray[1] in outlines():
            raise UserError(
                f"the method comes first: onpro run {stray[1]}, then options."
            ) from None
        raise
    with importing():
        from onpro.cli.training import show, train
        from onpro.experiments.experiment import require_seeds
        from onpro.methods import data_values, recipes
        from onpro.runs import RunConfig, require_writable
        from onpro.runs.threads import require_threads
        from onpro.training import pick_device, pick_engine, pick_precision, require_interval

    require_seeds(options.seeds)
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
            stream=kind,
            hide_boundaries=options.hide_boundaries,
            evaluations=options.evaluations,
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
            model=kept_model(options.model, options.keep_memory),
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


def _parse(
    name: str, arguments: Sequence[str], *, named: bool
) -> "tuple[RunOptions, Settings, StreamKind]":
    """Parse twice: the first time to learn data set and recipe, whose values are then defaults.

    Help and mistakes end the first time, before anything heavy is imported.
    """
    known = outline(name)
    paragraphs = [
        f"Train {known.about['title']} ({known.about['paper']}, {known.about['year']}).",
        f"METHOD is one of {', '.join(outlines())}, or a file of yours, ./my_method.py; without "
        f"one it is {DEFAULT}. "
        f"Wrapped methods are {', '.join(f'METHOD-{wrapper}' for wrapper in wrapper_outlines())}, "
        "as in er-rot; see onpro methods.",
        f"Recipes of {name}: {', '.join(known.recipes) or 'none'}; see onpro recipes {name}.",
    ]
    say = {"command": f"onpro run {name}", "about": "\n\n".join(paragraphs)}
    try:
        kind = chosen_kind(arguments)
    except UserError:  # help is on the way
        if HELP.isdisjoint(arguments):
            raise
        kind = Disjoint
    command = command_with(kind, run=RunOptions, method=known.settings)
    if not HELP.isdisjoint(arguments):
        try:
            first = parse(command, [word for word in arguments if word not in HELP], **say).run
            values = default_settings(name, first.data, first.recipe)
        except UserError:  # help is on the way
            first = RunOptions()
            values = default_settings(name, first.data)
        data = first.data.partition(":")[0]
        given_by = f"{data} with recipe {first.recipe}" if first.recipe else data
        usage = f"onpro run {name if named else '[METHOD]'}"
        defaults = command(**_defaults(command, method=values))
        parse(command, ["--help"], default=defaults, given_by=given_by, usage=usage, **say)
    _check_wrapped_options(name, known.settings, arguments)
    check_stream_options(kind, command, arguments)
    first = parse(command, arguments, **say).run
    _check_data(first.data)
    if first.recipe and first.recipe not in known.recipes:
        for wrapper, added in wrapper_outlines().items():
            if first.recipe.startswith(wrapper) or first.recipe in added.about["title"].split():
                _suggest_wrapped(name, wrapper, f"recipe '{first.recipe}'")
    with importing():
        from onpro.methods import settings_for

    values = settings_for(name, first.data, first.recipe)
    command = command_with(kind, run=RunOptions, method=type(values))
    defaults = command(**_defaults(command, method=values))
    parsed = parse(command, arguments, default=defaults, **say)
    return parsed.run, parsed.method, stream_of(parsed, kind)


def _with_base(wrapper: str, arguments: list[str]) -> tuple[str, list[str]]:
    """The name of a wrapped method, and the arguments without `--base`.

    >>> _with_base("rot", ["--base", "er", "--memory", "10"])
    ('er-rot', ['--memory', '10'])
    """
    for at, argument in enumerate(arguments):
        word, _, base = argument.partition("=")
        if word == "--base":
            after = at + 1 if base else at + 2
            base = base or "".join(arguments[at + 1 : after])
            if base:
                return f"{base}-{wrapper}", arguments[:at] + arguments[after:]
    raise UserError(
        f"{wrapper} wraps a method; name it: onpro run er-{wrapper}, or onpro run {wrapper} "
        "--base er."
    )


def _help_on_wrapper(name: str) -> None:
    """Print how to use a wrapper, and its settings, and exit."""
    about = wrapper_outlines()[name].about
    paragraphs = [
        f"Train a method with {about['title']} ({about['paper']}, {about['year']}).",
        f"{name} is a wrapper: METHOD-{name} is METHOD wrapped in {name}, as in onpro run "
        f"er-{name}, or onpro run {name} --base er. It has the options of both; see onpro run "
        f"er-{name} --help.",
    ]
    kind = make_dataclass("Command", [("method", wrapper_outlines()[name].settings)])
    say = {"command": f"onpro run {name}", "usage": f"onpro run METHOD-{name}"}
    parse(kind, ["--help"], about="\n\n".join(paragraphs), **say)


def _check_wrapped_options(name: str, settings: type[Any], arguments: Sequence[str]) -> None:
    """Refuse an option that the method has only if it is wrapped, naming the wrapped method."""
    known = {option.name for kind in (RunOptions, settings) for option in fields(kind)}
    given = [word.partition("=")[0] for word in arguments if word.startswith("--")]
    for wrapper, added in wrapper_outlines().items():
        own = {option.name for option in fields(added.settings)} - known
        for option in given:
            if option[2:].replace("-", "_") in own:
                _suggest_wrapped(name, wrapper, f"option '{option}'")


def _suggest_wrapped(name: str, wrapper: str, missing: str) -> None:
    """Refuse what a method lacks, naming the wrapped method; nothing if it cannot be wrapped."""
    wrapped = f"{name}-{wrapper}"
    try:
        title = outline(wrapped).about["title"].rpartition(", ")[2]
    except UserError:
        return
    raise UserError(f"{name} has no {missing}; for {title} use onpro run {wrapped}.")


def _check_data(data: str) -> None:
    """Refuse a path in the name of a data set that no folder can have."""
    argument = data.partition(":")[2]
    if argument:
        require_path(Path(argument).expanduser())


def _defaults(command: Any, method: Any) -> dict[str, Any]:
    """Return the defaults of each group of options, with the settings of a method as given."""
    return {name: group() for name, group in get_type_hints(command).items()} | {"method": method}
