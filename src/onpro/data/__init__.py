"""Where images come from: every source gives an `ImageSet`.

Listing the sources stays instant: nothing here imports torch or a source's own packages.
"""

from onpro.data.registry import Request, Source, find, load, located, register, sources

__all__ = ["Request", "Source", "find", "load", "located", "register", "sources"]
