"""Options from dataclasses, and mistakes in them as one sentence."""

import contextlib
import dataclasses
import io
import re
from collections.abc import Sequence
from typing import TypeVar

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
    start = {} if default is None else {"default": default}
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                kind,
                prog=command,
                description=about,
                args=list(arguments),
                config=(tyro.conf.OmitArgPrefixes,),
                **start,
            )
    except SystemExit as leaving:
        if leaving.code in (None, 0):
            raise
        raise UserError(_sentence(complaint.getvalue(), command)) from None


def _check_names(kind: type[object], arguments: Sequence[str]) -> None:
    """Refuse an option nobody knows, naming the nearest one."""
    known = {"--help"}
    for group in dataclasses.fields(kind):  # type: ignore[arg-type] # callers pass dataclasses
        for option in dataclasses.fields(group.type):  # type: ignore[arg-type]
            name = option.name.replace("_", "-")
            known |= {f"--{name}", f"--no-{name}"} if option.type is bool else {f"--{name}"}
    for argument in arguments:
        name = argument.partition("=")[0].replace("_", "-")
        if name.startswith("--") and name not in known:
            raise unknown("option", name, known, listed=False)


def _sentence(complaint: str, command: str) -> str:
    """The message inside the frame tyro draws around it, as one sentence."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", complaint)
    framed = [line.strip(" │") for line in plain.splitlines() if line.startswith("│")]
    text = " ".join(" ".join(line for line in framed if line.strip("─")).split())
    for footer in ("Argument helptext:", "For full helptext", "Perhaps you meant"):
        text = text.partition(footer)[0]
    return f"{text.strip().rstrip('.')}; see {command} --help."
