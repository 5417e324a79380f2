"""Methods, streams and data sets of other packages, which entry points announce."""

import warnings
from functools import cache
from importlib.metadata import entry_points


@cache
def load_plugins(group: str) -> None:
    """Import what the entry points of a group name; warn of what cannot be imported."""
    for entry in entry_points(group=group):
        try:
            entry.load()
        except Exception as error:  # a broken package must not take the others with it
            kind = group.removeprefix("onpro.")
            warnings.warn(f"{kind} of {entry.value} left out: {error!r}", stacklevel=2)
