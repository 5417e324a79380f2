"""Sanitise untrusted text, such as names of files, for display."""

import re
import unicodedata

_JOINERS = "\u200c\u200d"  # needed by scripts and emoji, and harmless
_WORDS = re.compile(r"[\w .,:;=()/+-]*", re.ASCII)


def visible(text: str) -> str:
    r"""Return the text as one line of visible characters, with others escaped as in Python.

    Control characters can manipulate a terminal, bidirectional marks disguise a name, and lone
    surrogates cannot be encoded.

    >>> visible("a\n b \x1b[31m\u202e")
    'a b \\x1b[31m\\u202e'
    """
    line = " ".join(text.split())
    if _WORDS.fullmatch(line):  # fast path
        return line
    return "".join(letter if _is_seen(letter) else _escape(letter) for letter in line)


def _is_seen(letter: str) -> bool:
    hidden = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return letter in _JOINERS or unicodedata.category(letter) not in hidden


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
