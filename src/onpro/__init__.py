"""Online class-incremental learning."""

from typing import TYPE_CHECKING, Any

from onpro._version import __version__

if TYPE_CHECKING:
    from onpro.classifier import OnlineClassifier

__all__ = ["OnlineClassifier", "__version__"]

if not TYPE_CHECKING:  # a checker of types would take every name to exist

    def __getattr__(name: str) -> Any:
        """Import the product API when it is asked for, so that `import onpro` stays light."""
        if name in __all__:
            from onpro import classifier

            return getattr(classifier, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
