"""Engines: however a step is computed, the outcome is the same."""

import gc
import weakref
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
import torch

from onpro.augment import Normalise
from onpro.data.tiny import tiny
from onpro.errors import UserError
from onpro.methods import Context, method, methods, settings_for
from onpro.methods.registry import AnyMethod
from onpro.streams import ClassIncremental
from onpro.training import Trainer, pick_engine
from onpro.training.device import deterministic_mode
from onpro.training.engine import Engine, GraphEngine
from onpro.training.graphs import capture, capture_error, capture_stream
from onpro.training.stepper import Stepper, equal
from tests.methods.learners import WRAPPED, in_float64

CPU = torch.device("cpu")
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def trained(name: str, engine: Engine, device: torch.device) -> Trainer:
    trainer = untrained(name, engine, device)
    trainer.run()
    return trainer


def untrained(
    name: str, engine: Engine, device: torch.device, *, fused: bool = False, memory: int = 40
) -> Trainer:
    data = tiny()
    stream = ClassIncremental(data, 3, device=device)
    context = Context(
        data.image_shape,
        Normalise(data.mean, data.std),
        num_classes=stream.num_classes,
        memory=memory,
        device=device,
        fused=fused,
    )
    return Trainer(
        method(name)(settings_for(name, "tiny"), context),
        stream,
        engine=engine,
        deterministic=device.type == "cuda",
    )


def first_losses(name: str, device: torch.device, *, fused: bool) -> list[dict[str, float]]:
    """The loss terms of the first three steps, before roundings have grown into other choices."""
    trainer = untrained(name, "eager", device, fused=fused)
    with deterministic_mode(device):
        terms = [trainer.stepper.step(batch) for batch in islice(trainer.stream, 3)]
    return [{term: float(value) for term, value in step.items()} for step in terms]


def test_a_gpu_gets_graphs_and_a_cpu_does_not() -> None:
    assert pick_engine("auto", torch.device("cuda")) == "graph"
    assert pick_engine("auto", CPU) == "eager"
    assert pick_engine("compile", CPU) == "compile"
    with pytest.raises(UserError, match="needs a GPU"):
        pick_engine("graph", CPU)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["er", "onpro"])
def test_a_compiled_network_learns_the_same(name: str) -> None:
    eager, compiled = trained(name, "eager", CPU), trained(name, "compile", CPU)
    assert compiled.method.progress.images == eager.method.progress.images
    assert torch.equal(compiled.method.memory.labels, eager.method.memory.labels)
    gaps = [abs(a - b) for a, b in zip(compiled.accuracy[-1], eager.accuracy[-1], strict=True)]
    assert max(gaps) < 25


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("name", [*sorted(methods()), *WRAPPED])
def test_a_graph_computes_what_single_operations_do(name: str) -> None:
    device = torch.device("cuda")
    eager, graph = trained(name, "eager", device), trained(name, "graph", device)
    assert vars(graph.method.progress) == vars(eager.method.progress)
    assert graph.accuracy == eager.accuracy
    assert same_state(graph.method, eager.method)


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("name", ["er", "derpp", "mir", "ocm", "onpro", "pcr", "scr", "er-mkd"])
def test_a_graph_replays_steps_while_the_memory_fills(name: str) -> None:
    """The memory is full in the middle of the second of three tasks."""
    device = torch.device("cuda")
    eager, graph = (untrained(name, kind, device, memory=190) for kind in ("eager", "graph"))
    with deterministic_mode(device):
        for batch in eager.stream:
            eager.stepper.step(batch)
        replays = 0
        for batch in graph.stream:
            graph.stepper.step(batch)
            learn = graph.stepper._learn
            assert isinstance(learn, GraphEngine)
            if graph.method.memory.free:
                replays = learn._replays
    assert replays > 3
    assert same_state(graph.method, eager.method)


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("name", [*sorted(methods()), *WRAPPED])
def test_fused_kernels_change_nothing_but_rounding(name: str) -> None:
    plain, fused = (first_losses(name, torch.device("cuda"), fused=f) for f in (False, True))
    for before, after in zip(plain, fused, strict=True):
        assert after == pytest.approx(before, rel=0.02, abs=1e-3)


@pytest.mark.gpu
@on_gpu
def test_a_graph_is_replayed_after_all_that_was_prepared_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin: Any = torch.cuda.CUDAGraph.capture_begin

    def late(graph: torch.cuda.CUDAGraph, *options: object, **named: object) -> None:
        torch.cuda._sleep(10**9)  # seeds are written behind it
        begin(graph, *options, **named)

    monkeypatch.setattr(torch.cuda.CUDAGraph, "capture_begin", late)
    graph, count = torch.cuda.CUDAGraph(), torch.zeros((), device="cuda")
    with capture(graph):
        count += 1
    graph.replay()
    torch.cuda.current_stream().synchronize()
    assert capture_stream().query()
    assert count == 1


@pytest.mark.gpu
@on_gpu
def test_a_graph_is_not_freed_while_it_is_replayed() -> None:
    er = untrained("er", "graph", torch.device("cuda")).stepper
    learn = er._learn
    assert isinstance(learn, GraphEngine)
    batches = list(islice(ClassIncremental(tiny(), 3, device="cuda"), 10))
    for batch in batches[:8]:  # the memory is full
        er.step(batch)
    graph = learn._graphs[-1].step
    idle: list[bool] = []
    weakref.finalize(graph, lambda: idle.append(torch.cuda.current_stream().query()))
    del graph
    torch.cuda._sleep(10**8)
    er.step(batches[8])
    learn._release()
    assert idle == [True]


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("name", ["cope", "er", "onpro"])
def test_steps_of_another_kind_may_come_between(name: str) -> None:
    device = torch.device("cuda")
    alone, mixed = untrained(name, "eager", device), untrained(name, "graph", device)
    with deterministic_mode(device):
        for batch in alone.stream:
            alone.stepper.step(batch)
        for position, batch in enumerate(mixed.stream):
            if position % 7 == 0:
                mixed.stepper.use("eager")
            elif position % 7 == 1:
                mixed.stepper.use("graph")
            mixed.stepper.step(batch)
    assert same_state(mixed.method, alone.method)


@pytest.mark.gpu
@on_gpu
def test_garbage_does_not_spoil_a_capture() -> None:
    """A graph that nobody needs any more, in a cycle, when Python collects all the time."""
    device = torch.device("cuda")
    cycle: list[object] = [trained("er", "graph", device)]
    cycle.append(cycle)
    thresholds = gc.get_threshold()
    gc.disable()
    del cycle
    gc.set_threshold(1, 1, 1)
    gc.enable()
    try:
        trained("gss", "graph", device)
    finally:
        gc.set_threshold(*thresholds)


@pytest.mark.gpu
@on_gpu
def test_most_steps_are_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cuda")
    learned = counting(monkeypatch)
    trainer = trained("er", "graph", device)
    assert isinstance(trainer.stepper._learn, GraphEngine)
    assert len(learned) < len(trainer.stream) / 2


def counting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts how often a step of ER is computed on the host."""
    cls = method("er")
    calls: list[int] = []
    learn: Callable[..., dict[str, torch.Tensor]] = cls.learn

    def counted(self: AnyMethod, batch: object) -> dict[str, torch.Tensor]:
        calls.append(1)
        return learn(self, batch)

    monkeypatch.setattr(cls, "learn", counted)
    return calls


def same_state(a: AnyMethod, b: AnyMethod) -> bool:
    with deterministic_mode(CPU):
        return equal(a.state_dict(), b.state_dict())


@pytest.mark.parametrize("name", ["er", "gss", "derpp", "scr", "ocm", "onpro", "pass"])
def test_one_pass_for_all_forwards_of_a_step_changes_nothing_but_rounding(name: str) -> None:
    """Forwards share a pass where kernels are fused; a CPU does it with plain operations."""
    data = tiny()
    learners = []
    for fused in (False, True):
        context = Context(
            data.image_shape, Normalise(data.mean, data.std), 6, memory=20, fused=fused
        )
        learner = in_float64(method(name)(settings_for(name, "tiny"), context))
        learner.augmentation = in_float32(learner.augmentation)
        stepper = Stepper(learner)
        for batch in list(ClassIncremental(data, 3))[:6]:
            stepper.step(batch)
        learners.append(learner)
    one, other = learners
    assert one.progress.images == other.progress.images
    expected, found = one.network.state_dict(), other.network.state_dict()
    for part, value in expected.items():
        torch.testing.assert_close(found[part], value, rtol=1e-6, atol=1e-9)


def in_float32(augmentation: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return lambda images, generator: augmentation(images.float(), generator).double()


def raised_inside(first: Exception, then: RuntimeError) -> RuntimeError:
    """The second error, raised while the first was handled."""
    then.__context__ = first
    return then


def test_only_a_capture_that_fails_is_blamed_on_capturing() -> None:
    forbidden = RuntimeError("CUDA error: operation not permitted when stream is capturing\nmore")
    refusal = capture_error(forbidden, "er")
    assert isinstance(refusal, UserError)
    assert "not permitted when stream is capturing): use --engine eager" in str(refusal)
    slip = RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    assert capture_error(slip, "er") is slip
    assert capture_error(torch.OutOfMemoryError("CUDA out of memory"), "er").args == (
        "CUDA out of memory",
    )


def test_the_first_error_in_a_capture_counts() -> None:
    after = RuntimeError("operation failed due to a previous error during capture")
    slip = KeyError("a slip")
    assert capture_error(raised_inside(slip, after), "er") is slip
