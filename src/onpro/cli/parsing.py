"""Options from dataclasses, and mistakes in them as one sentence."""

import contextlib
import io
import re
from collections.abc import Sequence
from typing import TypeVar, get_type_hints

import tyro

from onpro.errors import UserError, unknown

Options = TypeVar("Options")


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
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                kind,
                prog=command,
                description=about,
                args=list(arguments),
                default=tyro.MISSING_NONPROP if default is None else default,
                config=(tyro.conf.OmitArgPrefixes,),
            )
    except SystemExit as leaving:
        if leaving.code in (None, 0):
            raise
        raise UserError(_sentence(complaint.getvalue(), command)) from None


def _check_names(kind: type[object], arguments: Sequence[str]) -> None:
    """Refuse an option nobody knows, naming the nearest one."""
    known = {"--help"}
    for group in get_type_hints(kind).values():
        for option, type_ in get_type_hints(group).items():
            name = option.replace("_", "-")
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
        text = f"{usage[1]} takes {usage[2]}, not {given[1]}"
    return f"{text.strip().rstrip('.')}; see {command} --help."
