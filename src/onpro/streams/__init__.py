"""Streams, which yield batches of images in the order of arrival."""

from onpro.streams.class_incremental import ClassIncremental, ClassOrder
from onpro.streams.progress import Progress
from onpro.streams.stream import Batch, Benchmark, State, Stream

__all__ = ["Batch", "Benchmark", "ClassIncremental", "ClassOrder", "Progress", "State", "Stream"]
