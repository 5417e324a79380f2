"""Engines that compute a training step: eager, compiled, or as one CUDA graph."""

import logging
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

from onpro.errors import UserError
from onpro.memory import Memory
from onpro.methods.base import Method, Terms
from onpro.methods.registry import AnyMethod
from onpro.nn import AUTOCAST, Precision, fused_kernels_work
from onpro.streams import Batch
from onpro.training.graphs import CapturedStep, GraphPool, Step

LOG = logging.getLogger(__name__)

Engine = Literal["eager", "compile", "graph"]

MAX_GRAPHS = 4
"""Number of graphs an engine keeps."""

RECENT_SIGHTINGS = 8
"""Number of eager steps an engine remembers."""


def pick_engine(name: Literal["auto"] | Engine, device: torch.device) -> Engine:
    """Return the engine of that name; "auto" is graph on a GPU, eager elsewhere."""
    if name == "auto":
        return "graph" if device.type == "cuda" else "eager"
    if name == "graph" and device.type != "cuda":
        raise UserError(
            f"--engine graph needs a GPU, and the run is on the {device.type}: take auto or eager."
        )
    return name


def fuses(engine: Engine, device: torch.device, precision: Precision) -> bool:
    """Return whether training steps use fused kernels."""
    return engine == "graph" and fused_kernels_work(device, AUTOCAST[precision] or torch.float32)


def build_engine(name: Engine, method: AnyMethod, step: Step, *, lenient: bool = False) -> Step:
    """Return a step of a method, `learn` or `rehearse`, computed by the given engine.

    Args:
        name: The engine.
        method: The method.
        step: Its step.
        lenient: Whether steps that cannot be captured are computed eagerly instead of refused.
    """
    if name == "graph" and method.is_capturable:
        return GraphEngine(method, step, lenient=lenient)
    if name == "compile":
        # Forward passes of a step differ in size, and so do steps while the memory fills.
        method.network.encoder.compile(dynamic=True)
    return step


def phase_of(method: AnyMethod) -> Hashable:
    """Return the host-side state a step depends on, apart from how far a memory is filled.

    Steps of equal phases run the same operations. What a subclass adds may depend on more than the
    `course` it inherits says, so only that of the class itself counts.
    """
    own = "course" in vars(type(method))
    return (
        method.course() if own else Method.course(method),
        method.network.classes,
        method.memory.phase,
        tuple(group["lr"] for group in method.optimizer.param_groups),
    )


class Conditions(NamedTuple):
    """When a step runs the same operations as an earlier one."""

    phase: Hashable
    fills: tuple[range, ...]
    """How far each memory may be filled."""

    def hold(self, phase: Hashable, memories: Sequence[Memory]) -> bool:
        """Return whether they are met."""
        return phase == self.phase and all(
            memory.counters[0] in fills for memory, fills in zip(memories, self.fills, strict=True)
        )


class Sighting(NamedTuple):
    """A step that was computed eagerly."""

    conditions: Conditions
    replays: int
    """Number of replays before it."""


@dataclass(frozen=True)
class Replayable:
    """A captured step, and what the host must know of it."""

    conditions: Conditions
    step: CapturedStep
    counted: list[tuple[int, int]]
    """By how much it advances the host's counters of each memory."""


class GraphEngine:
    """Captures steps as CUDA graphs and replays them.

    A step of hundreds of small kernels is limited by the host, which launches them one by one; a
    graph is one launch. The first step of a kind is computed eagerly, the second is captured, and
    from then on the graph is replayed with new images. Steps are of one kind if the host decides
    the same in all of them, see `Conditions`.

    When one kind follows another, the memory of its graph is freed. Kinds that take turns, such as
    the first step of each task and the others, keep their graphs, which share their memory.

    Random numbers and results equal those of eager steps.

    Args:
        method: The method.
        step: Its step.
        lenient: Whether all steps are computed eagerly once one cannot be captured; otherwise that
            is an error.
    """

    def __init__(self, method: AnyMethod, step: Step, *, lenient: bool = False) -> None:
        self.method = method
        self._step = step
        self._lenient, self._captures = lenient, True
        self._memories = [part for part in vars(method).values() if isinstance(part, Memory)]
        self._graphs: list[Replayable] = []
        """The least recently replayed first."""
        self._pool: GraphPool | None = None
        self._sightings: deque[Sighting] = deque(maxlen=RECENT_SIGHTINGS)
        self._replays = 0

    def __call__(self, batch: Batch) -> Terms:
        """One training step."""
        if not self._captures:
            return self._step(batch)
        phase = phase_of(self.method), batch.images.shape
        graph = self._graph_for(phase)
        if graph is None:
            earlier = next((s for s in self._sightings if self._met(s.conditions, phase)), None)
            if earlier is None:
                return self._eager(batch, phase)
            graph = self._capture(batch, phase, earlier)
            if graph is None:
                return self._step(batch)
        self._replays += 1
        terms = graph.step.replay(batch)
        for memory, counted in zip(self._memories, graph.counted, strict=True):
            fill, arrived = memory.counters
            memory.counters = fill + counted[0], arrived + counted[1]
        return terms

    def _met(self, conditions: Conditions, phase: Hashable) -> bool:
        return conditions.hold(phase, self._memories)

    def _graph_for(self, phase: Hashable) -> Replayable | None:
        for graph in self._graphs:
            if self._met(graph.conditions, phase):
                self._graphs.remove(graph)
                if not graph.step.restore_state():
                    return None
                self._graphs.append(graph)
                return graph
        return None

    def _eager(self, batch: Batch, phase: Hashable) -> Terms:
        """Compute a step eagerly, and note under which conditions another would be of its kind."""
        if self._pool is not None and not self._pool.has_room_beside():
            self._release()
        self._watch()
        terms = self._step(batch)
        self._sightings.append(Sighting(self._conditions(phase), self._replays))
        if self._pool is not None:
            self._pool.free_others()
        return terms

    def _capture(self, batch: Batch, phase: Hashable, earlier: Sighting) -> Replayable | None:
        """Capture a step; None: it cannot be captured, and nothing has changed."""
        self._sightings.remove(earlier)
        if self._replays == earlier.replays:  # no other kind came between
            self._release()
        del self._graphs[: max(0, len(self._graphs) - MAX_GRAPHS + 1)]
        if self._pool is None:
            self._pool = GraphPool(self.method.context.device)
        before = [memory.counters for memory in self._memories]
        random = [learner.random.state_dict() for learner in self.method.learners]
        self._watch()
        try:
            with self._pool.growing():
                step = CapturedStep(self.method, self._step, batch, self._pool)
            counted = [
                (memory.counters[0] - fill, memory.counters[1] - arrived)
                for memory, (fill, arrived) in zip(self._memories, before, strict=True)
            ]
        except UserError as error:
            if not self._lenient:
                raise
            LOG.info("%s: training is slower.", error)
            self._captures = False
            self._release()
            torch.clear_autocast_cache()  # it holds weights that were cast, but not computed
            for learner, state in zip(self.method.learners, random, strict=True):
                learner.random.load_state_dict(state)
                learner.optimizer.zero_grad(set_to_none=True)
                # No gradient has been unscaled; the scale itself stays.
                learner.scaler.update(float(learner.loss_scale))
            return None
        finally:  # nothing has been computed yet
            for memory, counters in zip(self._memories, before, strict=True):
                memory.counters = counters
        graph = Replayable(self._conditions(phase), step, counted)
        self._graphs.append(graph)
        return graph

    def _watch(self) -> None:
        for memory in self._memories:
            memory.watch()

    def _conditions(self, phase: Hashable) -> Conditions:
        return Conditions(phase, tuple(memory.replayable_fills for memory in self._memories))

    def _release(self) -> None:
        """Free the memory of all graphs, as much as that of an eager step."""
        if self._pool is not None:
            self._pool.wait()
            self._graphs.clear()
            self._pool.free_others()
            self._pool = None
