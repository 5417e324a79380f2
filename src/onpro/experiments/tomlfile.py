"""Read TOML files; errors name the line."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onpro.errors import UserError
from onpro.files import read_plain

Where = tuple[str, int]
"""Name of a table and its index among the tables of that name."""

HEADER = re.compile(r"\s*(\[\[?)\s*([A-Za-z_][\w-]*)[^\[\]]*\]\]?\s*(#.*)?")


@dataclass(frozen=True)
class TomlFile:
    """The text of a TOML file and its values."""

    path: Path
    text: str
    values: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> "TomlFile":
        """Read a file; raise UserError with the line if it is not TOML."""
        try:
            text = read_plain(path).decode("utf-8-sig")  # editors on Windows begin with a mark
        except FileNotFoundError:
            raise UserError(f"there is no file {path}.") from None
        except UnicodeDecodeError:
            raise UserError(f"{path} is no text in UTF-8; expected TOML.") from None
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}.") from None
        try:
            return cls(path, text, tomllib.loads(text))
        except RecursionError:
            raise UserError(f"{path} is nested too deeply; expected TOML.") from None
        except tomllib.TOMLDecodeError as error:
            said = re.fullmatch(r"(.*) \(at (?:line (\d+), .*|end of document)\)", str(error))
            what = said[1] if said else str(error)
            what = what[:1].lower() + what[1:]
            line = int(said[2]) if said and said[2] else max(1, len(text.splitlines()))
            there = text.splitlines()[line - 1].strip() if text else ""
            hint = ", where text stands in quotes" if what == "invalid value" else ""
            raise UserError(
                f"{path}, line {line}: {what} in '{there}'; expected TOML{hint}."
            ) from None

    def wrong(self, where: Where, key: str, what: str, value: Any = None) -> UserError:
        """Return an error with the line of a key, or of one of its values.

        Args:
            where: the table; a key that is not in it is searched in the whole file.
            key: name of the key; empty for the table itself.
            what: the message.
            value: the wrong one of several values.
        """
        return UserError(f"{self.path}, line {self._line(where, key, value)}: {what}")

    def _line(self, where: Where, key: str, value: Any) -> int:
        lines = self.text.splitlines()
        places = list(_places(lines))
        own = [at for at, place in enumerate(places) if place == where]
        for numbers in (own, range(len(lines))):
            for number in numbers if key else ():
                if _names(lines[number], key):
                    return 1 + _find(lines, number, value)
        return 1 + (own[0] if own else 0)


def _places(lines: list[str]) -> Iterator[Where]:
    """Yield the table of each line; lines of a subtable belong to the table above it."""
    place = ("", 0)
    seen: dict[str, int] = {}
    for line in lines:
        header = HEADER.fullmatch(line)
        if header and (header[1] == "[[" or header[2] != place[0]):
            seen[header[2]] = seen.get(header[2], -1) + 1
            place = (header[2], seen[header[2]])
        yield place


def _names(line: str, key: str) -> bool:
    """Return whether a line sets a key: alone, dotted, in an inline table or as a header."""
    name = rf"[\"']?{re.escape(key)}[\"']?"
    return (
        re.search(rf"^\s*(\w+\.)*{name}\s*[.=]|[{{,]\s*{name}\s*=|^\s*\[+\s*{name}\W", line)
        is not None
    )


def _find(lines: list[str], number: int, value: Any) -> int:
    """Return the line of a value, which may be in a list below its key; else that of the key."""
    shown = value if isinstance(value, str) else repr(value)
    if value is None or shown in lines[number]:
        return number
    for below in range(number + 1, len(lines)):
        if shown in lines[below]:
            return below
        if "=" in lines[below] or "]" in lines[below]:
            break
    return number
