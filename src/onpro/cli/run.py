"""`onpro run [METHOD]`: train one method, one or several seeds."""

import re
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, fields, make_dataclass
from pathlib import Path
from typing import Any, Literal, get_type_hints

from onpro.cli.options import ComputeOptions, ExecutionOptions
from onpro.cli.outlines import default_settings, outline, outlines, wrapper_outlines
from onpro.cli.parsing import parse, usable_path
from onpro.cli.signals import importing
from onpro.cli.stream_options import (
    ShortcutOptions,
    check_stream_options,
    chosen_kind,
    command_with,
    stream_of,
)
from onpro.data.registry import find as find_data
from onpro.errors import UserError
from onpro.streams import Disjoint, StreamKind
from onpro.user_file import split_file

DEFAULT = "onpro"

HELP = {"-h", "--help"}


@dataclass(frozen=True)
class RunOptions:
    """Options of every method."""

    data: str = "digits"
    """Data set: a name that `onpro datasets` lists, or folder:PATH for your own images."""

    memory: int = 100
    """Number of past images that may be stored."""

    recipe: str | None = None
    """A named variation of the method, such as an ablation of the paper."""

    seed: int = 0
    """Seed of everything random in the run."""

    seeds: int = 1
    """Number of runs, with seeds SEED, SEED+1, ...; several run at once."""

    out: Path = Path("runs")
    """Folder in which run folders are created."""

    json: bool = False
    """Print the result as JSON on the last line of standard output, all else on standard error."""

    stream: str = "disjoint"
    """Kind of stream: a name that `onpro streams` lists, or a file of yours, ./my_stream.py. Its
    settings are further options."""

    tasks: int | None = None
    """Number of tasks; for a stream without tasks, of evaluations. (default: that of the data
    set)"""

    hide_boundaries: bool = False
    """Do not announce tasks; for the method, one then begins when a new class arrives."""

    evaluations: int = 0
    """Number of further evaluations, evenly spaced over the stream, for anytime_accuracy."""

    batch_size: int = 10
    """Number of images that arrive together (default from the paper)."""

    class_order: Literal["natural", "random"] = "natural"
    """Order in which classes arrive: as numbered (default from the paper) or drawn by the seed."""

    image_size: int | None = None
    """Side in pixels to which images are resized. (default: that of the data set)"""

    limit_per_class: int | None = None
    """Number of training and test images of each class to use, for a quick try. (default: all)"""

    validation: float = 0.0
    """Share of each class's training images to hold out and evaluate on instead of the test images,
    to choose settings."""

    fresh: bool = False
    """Start over even if this run is already finished or interrupted in OUT."""


GROUPS = {
    "run": RunOptions,
    "shortcut": ShortcutOptions,
    "compute": ComputeOptions,
    "execution": ExecutionOptions,
}
"""Options of every method, in the order of the help."""


def main(arguments: Sequence[str]) -> int:
    """Run what the arguments ask for."""
    if arguments and arguments[0] in HELP:
        arguments = [*arguments[1:], "--help"]  # of the method that follows
    named = bool(arguments) and not arguments[0].startswith("-")
    name = arguments[0] if named else DEFAULT
    rest = list(arguments[1:] if named else arguments)
    if file := split_file(name):
        usable_path(file[0])
        with importing():
            from onpro.methods.method_file import resolve
        name = resolve(name)
    elif name in wrapper_outlines():
        if not HELP.isdisjoint(rest) and not any(word.startswith("--base") for word in rest):
            _help_on_wrapper(name)
        name, rest = _with_base(name, rest)
    try:
        command, kind = _parse(name, rest, named=named)
    except UserError as error:
        stray = re.match("unexpected argument '(.+)'", str(error))
        if not named and stray and stray[1] in outlines():
            raise UserError(
                f"the method comes first: onpro run {stray[1]}, then options."
            ) from None
        raise
    options, execution = command.run, command.execution
    with importing():
        from onpro.cli.training import image_side, make_executor, place_of, train_and_show
        from onpro.experiments.executors import requests
        from onpro.experiments.experiment import require_seeds
        from onpro.methods import data_values, recipes
        from onpro.runs import RunConfig, require_writable

    command.shortcut.check()
    require_seeds(options.seeds)
    execution.check()
    require_writable(options.out)
    say = sys.stderr if options.json else sys.stdout
    values = data_values(name, options.data).items()
    listed = ", ".join(f"{f}={value}" for f, value in values if getattr(command.method, f) == value)
    if listed:
        print(f"{name} on {options.data}: {listed} (the data set's values)", file=say)
    if options.recipe:
        print(f"recipe {options.recipe}: {recipes(name)[options.recipe].about}", file=say)
    side = image_side(options.data, options.image_size)
    with closing(make_executor(execution, command.compute.device, side)) as executor:
        place = place_of(executor, command.compute, execution.on)
        configs = [
            RunConfig(
                method=name,
                settings=command.method,
                data=options.data,
                memory=options.memory,
                seed=seed,
                recipe=options.recipe,
                stream=stream_of(command, kind),
                hide_boundaries=options.hide_boundaries,
                evaluations=options.evaluations,
                **vars(command.shortcut),
                tasks=options.tasks,
                batch_size=options.batch_size,
                class_order=options.class_order,
                image_size=options.image_size,
                limit_per_class=options.limit_per_class,
                validation=options.validation,
                **vars(place),
            )
            for seed in range(options.seed, options.seed + options.seeds)
        ]
        runs = requests(configs, options.out, fresh=options.fresh, **execution.how())
        return train_and_show(runs, executor, execution.on, as_json=options.json)


def _parse(name: str, arguments: Sequence[str], *, named: bool) -> tuple[Any, type[StreamKind]]:
    """Parse the options; data set and recipe are parsed first, since their values are defaults.

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
    command = command_of(known.settings, kind)
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
        defaults = _defaults(command, values)
        parse(command, ["--help"], default=defaults, given_by=given_by, usage=usage, **say)
    _check_wrapped_options(name, known.settings, arguments)
    check_stream_options(kind, command, arguments)
    first = parse(command, arguments, **say).run
    find_data(first.data)
    _check_data(first.data)
    if first.recipe and first.recipe not in known.recipes:
        for wrapper, added in wrapper_outlines().items():
            if first.recipe.startswith(wrapper) or added.about["title"].startswith(first.recipe):
                _suggest_wrapped(name, wrapper, f"recipe '{first.recipe}'")
    with importing():
        from onpro.methods import settings_for

    values = settings_for(name, first.data, first.recipe)
    command = command_of(type(values), kind)
    return parse(command, arguments, default=_defaults(command, values), **say), kind


def _with_base(wrapper: str, arguments: list[str]) -> tuple[str, list[str]]:
    """Return the name of a wrapped method, and the arguments without `--base`.

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
    """Raise UserError for an option that only the wrapped method has, naming that."""
    kinds = [*GROUPS.values(), settings]
    known = {option.name for kind in kinds for option in fields(kind)}
    given = [word.partition("=")[0] for word in arguments if word.startswith("--")]
    for wrapper, added in wrapper_outlines().items():
        own = {option.name for option in fields(added.settings)} - known
        for option in given:
            if option[2:].replace("-", "_") in own:
                _suggest_wrapped(name, wrapper, f"option '{option}'")


def _suggest_wrapped(name: str, wrapper: str, missing: str) -> None:
    """Raise UserError for what a method lacks if a wrapped one has it, naming that."""
    wrapped = f"{name}-{wrapper}"
    try:
        title = outline(wrapped).about["title"].rpartition(", ")[2]
    except UserError:
        return
    raise UserError(f"{name} has no {missing}; for {title} use onpro run {wrapped}.")


def _check_data(data: str) -> None:
    """Raise UserError for a data set whose name has a path that no folder can have."""
    argument = data.partition(":")[2]
    if argument:
        usable_path(argument)


def command_of(settings: type[Any], kind: type[StreamKind] = Disjoint) -> Any:
    """Return the dataclass of all options of a method on a kind of stream."""
    return command_with(kind, **GROUPS, method=settings)


def _defaults(command: Any, settings: Any) -> Any:
    groups = get_type_hints(command)
    return command(**{name: group() for name, group in groups.items()} | {"method": settings})
