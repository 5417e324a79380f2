"""Parse options into dataclasses; mistakes are one sentence."""

import ast
import contextlib
import inspect
import io
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, field, fields, is_dataclass, make_dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO, TypeVar, get_args, get_origin, get_type_hints

import tyro

from onpro.errors import UserError, counted, unknown
from onpro.files import expand_home

Options = TypeVar("Options")

MOST_LEVELS = 200
"""Most levels of a path; code that walks it by recursion goes no deeper."""

LONGEST_SHOWN = 200

ALONE = "options"
"""Name of the only group of options."""

SHORT_FORMS = {"--model": ("--keep-model", "end"), "--no-model": ("--keep-model", "no")}
"""Short forms of an option's values."""

CHECKPOINT_EVERY = 30.0
"""Default of an option: `onpro.training.checkpoint` has it too, but imports torch."""


def parse(
    kind: type[Options],
    arguments: Sequence[str],
    *,
    command: str,
    about: str,
    usage: str = "",
    default: Options | None = None,
    given_by: str = "",
) -> Options:
    """Parse arguments into a dataclass of options, or of groups of options.

    A mistake becomes a `UserError`; `--help` prints the options and exits.

    Args:
        kind: The dataclass; groups of options in the fields `method` and `stream_kind` have a panel
            of their own.
        arguments: Arguments of the command.
        command: The command, for messages.
        about: Description of the command, in paragraphs.
        usage: The command as the first line of the help has it, if that differs.
        default: Defaults, instead of those of the dataclasses.
        given_by: What gives those of `default` that differ from the dataclasses' own.
    """
    if "--keep-model" in option_types(kind):
        arguments = [word for given in arguments for word in SHORT_FORMS.get(given, (given,))]
    _check_names(kind, arguments, command)
    groups = _groups(kind)
    values = {name: _values(getattr(default, name)) if default else {} for name in groups}
    explained = {name: _explained(group, values[name], given_by) for name, group in groups.items()}
    panels = dict.fromkeys(groups, "") | {"method": command.split()[-1]}
    if "stream_kind" in groups:
        panels["stream_kind"] = f"stream {groups['stream_kind'].name}"
    parsed_as: Any = make_dataclass(
        kind.__name__,
        [
            (name, Annotated[group, tyro.conf.arg(name=panels[name])])
            for name, group in explained.items()
        ],
    )
    defaults = {name: group(**values[name]) for name, group in explained.items() if default}
    complaint, text = io.StringIO(), _Captured(sys.stdout)
    try:
        with contextlib.redirect_stderr(complaint), contextlib.redirect_stdout(text):
            parsed = tyro.cli(
                parsed_as,
                prog=command,
                description="",
                args=list(arguments),
                default=parsed_as(**defaults) if defaults else tyro.MISSING_NONPROP,
                config=(tyro.conf.OmitArgPrefixes,),
            )
    except SystemExit as leaving:
        if leaving.code in (None, 0):
            print(_help(text.getvalue(), usage or command, about, explained.values()), end="")
            raise
        raise UserError(_sentence(complaint.getvalue(), command)) from None
    read = {
        name: {key: _located(value) for key, value in _values(getattr(parsed, name)).items()}
        for name in groups
    }
    if kind in groups.values():
        return kind(**read[ALONE])
    return kind(**{name: group(**read[name]) for name, group in groups.items()})


class _Captured(io.StringIO):
    """Captured text, drawn as the given stream can show it."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override] # of a StringIO it is None
        return self._stream.encoding

    def isatty(self) -> bool:
        return self._stream.isatty()


def _help(text: str, usage: str, about: str, groups: Iterable[type[Any]]) -> str:
    """Return the help of tyro with our first line and description, without empty lines."""
    hints = [
        hint for group in groups for hint in get_type_hints(group, include_extras=True).values()
    ]
    positions = [hint.__metadata__[-1].metavar for hint in hints if _is_position(hint)]
    head = [" ".join(["usage:", usage, *positions, "[OPTIONS]"]), *map(_fold, about.split("\n\n"))]
    panels = text.partition("\n\n")[2].splitlines(keepends=True)
    return "\n\n".join([*head, "".join(line for line in panels if _plain(line).strip(" │|\n"))])


def _fold(paragraph: str) -> str:
    width = min(80, shutil.get_terminal_size().columns)
    return textwrap.fill(paragraph, max(20, width), break_on_hyphens=False)


def whole(text: str) -> int | None:
    """Return a text as a whole number from 0; None if it is none, or has too many digits.

    >>> whole("20"), whole("-1"), whole("9" * 5000)
    (20, None, None)
    """
    return int(text) if text.isdecimal() and len(text) <= 18 else None


def comma_separated(text: str) -> list[str]:
    """Split a text at its commas, each part once."""
    return list(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))


def whole_numbers(option: str, text: str) -> list[int]:
    """Return comma-separated whole numbers from 1."""
    numbers = [whole(part) for part in comma_separated(text)]
    if not numbers or not all(numbers):
        raise UserError(f"--{option} takes comma-separated whole numbers from 1, not '{text}'.")
    return [number for number in numbers if number]


def _located(value: Any) -> Any:
    """Return the value of an option, its paths with `~` expanded."""
    if isinstance(value, tuple):
        return tuple(map(_located, value))
    return usable_path(value) if isinstance(value, Path) else value


def usable_path(path: str | Path) -> Path:
    """Return a path with `~` expanded; raise UserError if no file can have it, or none may read it.

    A shell expands `~` in `--out ~/runs`, but not in `--out=~/runs`.
    """
    path = expand_home(path)
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
    return path


def _explained(group: type[Any], values: Mapping[str, Any], given_by: str) -> type[Any]:
    """Return the options, each with the text below its field, or in its metadata, as help.

    tyro reads that text too, but breaks its lines where the source does.
    """
    said, hints = _texts(group), get_type_hints(group, include_extras=True)
    options = []
    for option in fields(group):
        hint = hints[option.name]
        text = option.metadata.get("help") or said.get(option.name) or ""
        source = re.search(r" \(default (ours|from [^():]*)\)(?=\.$)", text)
        differs = values.get(option.name, option.default) != option.default is not MISSING
        explained = tyro.conf.arg(
            help=text.replace(source[0], "") if source else text,
            metavar=option.metadata.get("metavar") or _metavar(option, hint),
            help_behavior_hint=partial(
                _default,
                source=source[1] if source else "",
                given_by=given_by if differs else "",
                usual=option.default,
            ),
        )
        default = field(default=option.default, default_factory=option.default_factory)
        options.append((option.name, Annotated[hint, explained], default))
    return make_dataclass(group.__name__, options, namespace={"__doc__": group.__doc__})


def _default(default: str, *, source: str, given_by: str, usual: Any) -> str:
    """Return what the help says of a default; nothing of an empty one, which the text explains.

    >>> _default("64", source="from the paper", given_by="", usual=64)
    '(default: 64, from the paper)'
    >>> _default("slim", source="from the paper", given_by="digits", usual="resnet18")
    '(default on digits: slim; else resnet18, from the paper)'
    """
    if default in ("", "''", "None"):
        return ""
    said = f" on {given_by}: {default}; else {usual}" if given_by else f": {default}"
    return f"(default{said}{source and f', {source}'})"


def _metavar(option: Field[Any], hint: Any) -> str | None:
    """Return the name of a value: that of its field for a position, else that of its type."""
    parts = get_args(hint)
    if _is_position(hint):
        name = option.name.upper()
        name = f"{name.removesuffix('S')}..." if get_origin(parts[0]) is tuple else name
        return name if option.default is option.default_factory is MISSING else f"[{name}]"
    if len(parts) == 2 and parts[1] is type(None):
        if get_origin(parts[0]) is Literal:
            return f"{{{','.join(map(str, get_args(parts[0])))}}}"
        if isinstance(parts[0], type):
            return parts[0].__name__.upper()
    return None


def _is_position(hint: Any) -> bool:
    return tyro.conf.Positional in getattr(hint, "__metadata__", ())


def _texts(group: type[Any]) -> dict[str, str]:
    """Return the docstring below each field, base classes included, in one line."""
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


def _groups(kind: type[Any]) -> dict[str, type[Any]]:
    """Return the groups of options of a dataclass; one without groups is a group itself."""
    hints = get_type_hints(kind)
    return hints if all(map(is_dataclass, hints.values())) else {ALONE: kind}


def option_types(kind: type[object]) -> dict[str, Any]:
    """Return the options of a dataclass of groups with their types; a bool has `--no-` too."""
    types: dict[str, Any] = {}
    for group in _groups(kind).values():
        for field_name, type_ in get_type_hints(group, include_extras=True).items():
            name = field_name.replace("_", "-")
            if not _is_position(type_):
                types |= {
                    f"{dashes}{name}": type_ for dashes in ("--", "--no-")[: 1 + (type_ is bool)]
                }
    return types


def _check_names(kind: type[object], arguments: Sequence[str], command: str) -> None:
    """Raise UserError for an unknown option, naming the nearest one."""
    known = {"--help", *option_types(kind)}
    for argument in arguments:
        name = argument.partition("=")[0].replace("_", "-")
        if name.startswith("--") and name not in known:
            raise unknown("option", name, known, listed=False, see=f"{command} --help")


def _sentence(complaint: str, command: str) -> str:
    """Return what tyro prints about a mistake as one sentence."""
    lines = [line.strip(" │") for line in _plain(complaint).splitlines()[1:]]
    text = " ".join(" ".join(line for line in lines if line.strip("╰╯─-")).split())
    for footer in ("Argument helptext:", "For full helptext", "Perhaps you meant"):
        text = text.partition(footer)[0]
    given = re.match(r"Error parsing --.*?(\[.*?\]|'.*?')", text)
    usage = re.search(r"Argument helptext:\W*(--\S+) (.*)", "\n".join(lines))
    choice = re.match(
        r"invalid choice ('.*?') for argument '(--\S+)'\. Expected one of \((.*)\)", text
    )
    if stray := re.match(r"Unrecognized options: (\S+)", text):
        text = f"unexpected argument '{stray[1].rstrip(',')}'"
    elif missing := re.match(r"Missing from .*?: (\S+)", text):
        text = f"{missing[1]} is missing"
    elif few := re.match(r"Missing value for argument '(--\S+)'\. Expected (\d+)", text):
        text = f"{few[1]} takes {counted(int(few[2]), 'value')}"
    elif choice:
        names = [name.strip(" '") for name in choice[3].rstrip(", ").split(",")]
        if "None" in names:  # of an option without a default, whose choices tyro has as a set
            names = sorted({*names} - {"None"})
        *first, last = names
        text = f"{choice[2]} takes {', '.join(first)} or {last}, not {choice[1]}"
    elif given and usage:
        text = f"{usage[1]} takes {usage[2]}, not {given[1].strip('[]')}"
    return f"{text.strip().rstrip('.')}; see {command} --help."


def _plain(text: str) -> str:
    """Return a text without the colours of a terminal."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)
