"""Text that others wrote, such as names in files and of files, made fit to be shown."""

import re
import unicodedata

_JOINERS = "\u200c\u200d"  # scripts and emoji need them, and they move nothing
_WORDS = re.compile(r"[\w .,:;=()/+-]*", re.ASCII)


def visible(text: str) -> str:
    r"""The text in one line of characters that can be seen: no others reach a terminal or a file.

    Control characters could command a terminal, marks of direction make a name look like another,
    and half a surrogate pair cannot be written. They become escapes as in Python.

    >>> visible("a\n b \x1b[31m\u202e")
    'a b \\x1b[31m\\u202e'
    """
    line = " ".join(text.split())
    if _WORDS.fullmatch(line):  # nearly always
        return line
    return "".join(letter if _is_seen(letter) else _escape(letter) for letter in line)


def _is_seen(letter: str) -> bool:
    hidden = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return letter in _JOINERS or unicodedata.category(letter) not in hidden


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
