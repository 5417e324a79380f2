"""Memory of past images: storage, update policies, retrieval policies."""

from onpro.memory import reservoir, retrieval
from onpro.memory.memory import Memory, Replay

__all__ = ["Memory", "Replay", "reservoir", "retrieval"]
