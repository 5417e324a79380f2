"""Options from dataclasses, and mistakes in them as one sentence."""

import ast
import contextlib
import functools
import inspect
import io
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import field, fields, is_dataclass, make_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import tyro

from onpro.errors import UserError, unknown

Options = TypeVar("Options")

MOST_LEVELS = 200
"""Of folders in a path: what goes deeper by recursion goes no further than that."""

LONGEST_SHOWN = 200

CHECKPOINT_EVERY = 30.0
"""Default of an option: `onpro.training.checkpoint` has it too, but imports torch."""


def parse(
    kind: type[Options],
    arguments: Sequence[str],
    *,
    command: str,
    about: str,
    default: Options | None = None,
) -> Options:
    """Parse arguments into a dataclass whose fields are dataclasses of options.

    A mistake becomes a `UserError`; `--help` prints the options and exits.
    """
    _check_names(kind, arguments)
    groups = get_type_hints(kind)
    explained: Any = make_dataclass(
        kind.__name__, [(name, _explained(group)) for name, group in groups.items()]
    )
    defaults = (
        {
            name: _explained(group)(**_values(getattr(default, name)))
            for name, group in groups.items()
        }
        if default is not None
        else {}
    )
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            parsed = tyro.cli(
                explained,
                prog=command,
                description=about,
                args=list(arguments),
                default=explained(**defaults) if defaults else tyro.MISSING_NONPROP,
                config=(tyro.conf.OmitArgPrefixes,),
            )
    except SystemExit as leaving:
        if leaving.code in (None, 0):
            raise
        raise UserError(_sentence(complaint.getvalue(), command)) from None
    values = {name: _values(getattr(parsed, name)) for name in groups}
    for given in values.values():
        _check_paths(given.values())
    return kind(**{name: group(**values[name]) for name, group in groups.items()})


def whole(text: str) -> int | None:
    """A whole number from 0; None where the text is none, or has more digits than any that is.

    >>> whole("20"), whole("-1"), whole("9" * 5000)
    (20, None, None)
    """
    return int(text) if text.isdecimal() and len(text) <= 18 else None


def _check_paths(values: Iterable[Any]) -> None:
    """Refuse paths that no file can have, before anything is done with them."""
    for value in values:
        if isinstance(value, tuple):
            _check_paths(value)
        elif isinstance(value, Path):
            require_path(value)


def require_path(path: Path) -> None:
    """Refuse a path that no file can have, or that may not be looked at."""
    said = str(path) if len(str(path)) <= LONGEST_SHOWN else f"{str(path)[:LONGEST_SHOWN]}…"
    if len(path.parts) > MOST_LEVELS:
        levels = f"{len(path.parts)} levels, of at most {MOST_LEVELS}"
        raise UserError(f"{said} cannot be used: it has {levels}.")
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # ValueError: a name with a null byte
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"{said} cannot be used: {reason.lower()}.") from None


@functools.cache
def _explained(group: type[Any]) -> type[Any]:
    """The same options, each with the text below its field, or in its metadata, as help.

    tyro reads that text too, but breaks its lines where the source does.
    """
    said, hints = _texts(group), get_type_hints(group, include_extras=True)
    options = [
        (
            option.name,
            Annotated[
                hints[option.name],
                tyro.conf.arg(help=option.metadata.get("help") or said.get(option.name)),
            ],
            field(default=option.default, default_factory=option.default_factory),
        )
        for option in fields(group)
    ]
    return make_dataclass(group.__name__, options, namespace={"__doc__": group.__doc__})


def _texts(group: type[Any]) -> dict[str, str]:
    """What is written below each field, the fields of base classes among them, in one line."""
    texts: dict[str, str] = {}
    for part in filter(is_dataclass, reversed(group.__mro__)):
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(part))).body
        except (OSError, TypeError):  # a class of a third party that is not in a file
            continue
        for above, below in pairwise(getattr(tree, "body", [])):
            match above, below:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    texts[name] = " ".join(text.split())
    return texts


def _values(options: Any) -> dict[str, Any]:
    return {option.name: getattr(options, option.name) for option in fields(options)}


def _check_names(kind: type[object], arguments: Sequence[str]) -> None:
    """Refuse an option nobody knows, naming the nearest one."""
    known = {"--help"}
    for group in get_type_hints(kind).values():
        for option, type_ in get_type_hints(group, include_extras=True).items():
            name = option.replace("_", "-")
            if tyro.conf.Positional not in getattr(type_, "__metadata__", ()):
                known |= {f"--{name}", f"--no-{name}"} if type_ is bool else {f"--{name}"}
    for argument in arguments:
        name = argument.partition("=")[0].replace("_", "-")
        if name.startswith("--") and name not in known:
            raise unknown("option", name, known, listed=False)


def _sentence(complaint: str, command: str) -> str:
    """The message below its title, in the frame tyro draws where it can, as one sentence."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", complaint)
    lines = [line.strip(" │") for line in plain.splitlines()[1:]]
    text = " ".join(" ".join(line for line in lines if line.strip("╰╯─-")).split())
    for footer in ("Argument helptext:", "For full helptext", "Perhaps you meant"):
        text = text.partition(footer)[0]
    given = re.match(r"Error parsing --.*?(\[.*?\]|'.*?')", text)
    usage = re.search(r"Argument helptext:\W*(--\S+) (.*)", "\n".join(lines))
    if given and usage:
        text = f"{usage[1]} takes {usage[2].removeprefix('{None}|')}, not {given[1].strip('[]')}"
    text = text.replace("Expected 1 values", "Expected 1 value")
    return f"{text.strip().rstrip('.')}; see {command} --help."
