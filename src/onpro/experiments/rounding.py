"""Numbers as people read them: one rule of rounding, wherever they are shown."""

import math
import re
from decimal import ROUND_HALF_UP, Context, Decimal

_EXACT = Context(prec=400, rounding=ROUND_HALF_UP)  # digits of the largest float, and some


def written(value: float, spec: str = "") -> str:
    """A number as `format` writes it, but rounded as people do: halves away from zero.

    What is rounded is the decimal number that files show: 64.55 becomes 64.6, though the nearest
    float is a little less. `number` in the page's script does the same. What is rounded to 0 has
    no sign.

    >>> written(4.5, ".0f"), written(64.55, ".1f"), written(25.848, ".1f"), written(-0.04, "+.1f")
    ('5', '64.6', '25.8', '0.0')
    >>> written(2.5, "+.0f"), written(-2.5, ".0f"), written(0.125, ".0%")
    ('+3', '-3', '13%')
    """
    parts = re.fullmatch(r"(\+?)\.(\d+)([f%])", spec)
    if not parts or not math.isfinite(value):
        return format(value, spec)
    sign, digits, kind = parts.groups()
    exact = Decimal(repr(float(value))) * (100 if kind == "%" else 1)
    rounded = exact.quantize(Decimal(1).scaleb(-int(digits)), context=_EXACT)
    sign = sign if rounded else ""
    return f"{rounded if rounded else abs(rounded):{sign}f}{kind.removeprefix('f')}"
