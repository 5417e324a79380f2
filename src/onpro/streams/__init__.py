"""In what order images arrive: a stream yields batches, and its position is a small state."""

from onpro.streams.batch import Batch
from onpro.streams.class_incremental import ClassIncremental, ClassOrder
from onpro.streams.progress import Progress
from onpro.streams.stream import Benchmark, State, Stream

__all__ = ["Batch", "Benchmark", "ClassIncremental", "ClassOrder", "Progress", "State", "Stream"]
