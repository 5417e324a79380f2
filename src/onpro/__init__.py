"""Online class-incremental learning."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from onpro._version import __version__

if TYPE_CHECKING:
    from onpro.classifier import OnlineClassifier
    from onpro.runs.frame import load_runs

__all__ = ["OnlineClassifier", "__version__", "load_runs"]

_MODULES = {"OnlineClassifier": "onpro.classifier", "load_runs": "onpro.runs.frame"}

if not TYPE_CHECKING:  # a checker of types would take every name to exist

    def __getattr__(name: str) -> Any:
        """Import the product API when it is asked for, so that `import onpro` stays light."""
        if name in _MODULES:
            return getattr(import_module(_MODULES[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
