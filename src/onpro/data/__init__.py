"""Data sources, each of which loads an `ImageSet`.

Importing this package imports neither torch nor the packages of a source.
"""

from onpro.data import built_in  # noqa: F401 # registers its sources
from onpro.data.registry import Request, Source, find, load, located, register, sources

__all__ = ["Request", "Source", "find", "load", "located", "register", "sources"]
