"""Text for people: names made safe to display, numbers rounded in one way."""

import math
import re
import unicodedata
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal

_JOINERS = "\u200c\u200d"  # needed by scripts and emoji, and harmless
_WORDS = re.compile(r"[\w .,:;=()/+-]*", re.ASCII)
_NOISE = 6  # digits after the last one shown that tell a half from what is a little less
_EXACT = Context(prec=400, rounding=ROUND_HALF_UP)  # digits of the largest float, and some


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


def written(value: float, spec: str = "") -> str:
    """A number as `format` writes it, but rounded as people do: halves away from zero.

    What is rounded is the decimal number that is meant, without the rounding errors of floats:
    64.55 becomes 64.6, though the nearest float is a little less, and so does a mean that was
    computed as 64.54999999999998. `number` in the page's script does the same. What is rounded to
    0 has no sign.

    >>> written(4.5, ".0f"), written(64.55, ".1f"), written(25.848, ".1f"), written(-0.04, "+.1f")
    ('5', '64.6', '25.8', '0.0')
    >>> 1.15 * 3 - 0.1, written(1.15 * 3 - 0.1, ".1f")
    (3.3499999999999996, '3.4')
    >>> written(2.5, "+.0f"), written(-2.5, ".0f"), written(0.125, ".0%")
    ('+3', '-3', '13%')
    """
    parts = re.fullmatch(r"(\+?)\.(\d+)([f%])", spec)
    if not parts or not math.isfinite(value):
        return format(value, spec)
    sign, digits, kind = parts.groups()
    scale = 2 if kind == "%" else 0
    meant = round(float(value), int(digits) + scale + _NOISE)
    exact = Decimal(repr(meant)).scaleb(scale)
    rounded = exact.quantize(Decimal(1).scaleb(-int(digits)), context=_EXACT)
    sign = sign if rounded else ""
    return f"{rounded if rounded else abs(rounded):{sign}f}{kind.removeprefix('f')}"


def fit(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Narrow the widest columns until all fit, none below its least width unless all are there.

    >>> fit([5, 30, 20], [5, 10, 8], 40), fit([5, 30, 20], [5, 22, 8], 40), fit([9, 9], [9, 6], 10)
    ([5, 17, 18], [5, 22, 13], [5, 5])
    """
    fitted = list(widths)
    while sum(fitted) > max(room, len(fitted)):
        wider = [k for k, width in enumerate(fitted) if width > least[k]]
        widest = max(wider or range(len(fitted)), key=fitted.__getitem__)
        fitted[widest] -= 1
    return fitted
