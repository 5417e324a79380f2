"""Shell completion: scripts that ask `onpro --complete WORD…` for the words that fit."""

from collections.abc import Iterable, Sequence
from importlib import import_module
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from onpro.cli.figure import FIGURES
from onpro.cli.outlines import outline, outlines, wrapper_outlines
from onpro.cli.parsing import option_types
from onpro.cli.run import DEFAULT
from onpro.data import sources
from onpro.errors import UserError, unknown
from onpro.experiments.tables import paper_tables
from onpro.streams import stream_kinds

SCRIPTS = {
    "bash": """_onpro() {
    local IFS=$'\\n'
    COMPREPLY=($("$1" --complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _onpro onpro""",
    "zsh": """#compdef onpro
_onpro() {
    local -a found
    found=(${(f)"$("${words[1]}" --complete "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $#found )); then compadd -- $found; else _files; fi
}
compdef _onpro onpro""",
    "fish": """function __onpro_complete
    set -l words (commandline -opc) (commandline -ct)
    onpro --complete $words[2..-1] 2>/dev/null
end
complete -c onpro -a '(__onpro_complete)'""",
}

LISTS = {"--data", "--methods"}
"""Options of `onpro table` that take several values, comma-separated."""


def script(shell: str) -> str:
    """Return the script that makes a shell complete the arguments of `onpro`."""
    if shell not in SCRIPTS:
        raise unknown("completion for the shell", shell, SCRIPTS)
    return SCRIPTS[shell]


def candidates(words: Sequence[str], commands: Iterable[str]) -> list[str]:
    """Return the words that the last one can be completed to.

    Args:
        words: The words after `onpro`; the last one is being typed, and may be empty.
        commands: Names of the subcommands.
    """
    given = [word for word in words if word != "="]  # bash splits --data=x in three
    *before, typed = given or [""]
    if not before:
        return _fitting(typed, [*commands, "--help", "--version", "--completion"])
    if before == ["--completion"]:
        return _fitting(typed, SCRIPTS)
    try:
        return _arguments(before[0], before[1:], typed)
    except (ImportError, UserError):  # no such command or method
        return []


def _arguments(command: str, before: Sequence[str], typed: str) -> list[str]:
    """Return what an argument of a command can be."""
    module = import_module(f"onpro.cli.{command}")
    named = before[0] if before and not before[0].startswith("-") else DEFAULT
    kind = module.command_of(outline(named).settings) if command == "run" else module.Command
    options = option_types(kind)
    previous = before[-1] if before else ""
    if previous in options and options[previous] is not bool:
        values = _values(previous, options[previous], named)
        if command == "table" and previous in LISTS:
            done, comma, typed = typed.rpartition(",")
            return [f"{done}{comma}{value}" for value in _fitting(typed, values)]
        return _fitting(typed, values)
    if typed.startswith("-"):
        return _fitting(typed, [*options, "--help"])
    return _fitting(typed, _names(command) if not before or command == "bench" else [])


def _names(command: str) -> Iterable[str]:
    """Return what the first argument of a command can be; none if that is a file."""
    if command == "figure":
        return FIGURES
    if command == "table":
        return paper_tables()
    if command in ("run", "recipes", "bench"):
        return [*outlines(), *wrapper_outlines()]
    return []


def _values(option: str, kind: Any, method: str) -> Iterable[str]:
    """Return the values of an option, none if they are not known."""
    if option in ("--data", "--like"):
        return [
            source.usage.partition(":")[0] + ":" * (":" in source.usage) for source in sources()
        ]
    if option == "--stream":
        return stream_kinds()
    if option in ("--base", "--methods"):
        return outlines()
    if option == "--recipe":
        return outline(method).recipes
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else [kind]
    choices = [choice for part in parts if get_origin(part) is Literal for choice in get_args(part)]
    return [str(choice) for choice in choices]


def _fitting(typed: str, words: Iterable[str]) -> list[str]:
    return [word for word in dict.fromkeys(words) if word.startswith(typed)]
