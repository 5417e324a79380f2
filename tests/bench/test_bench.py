"""What `onpro bench` measures is what it says; the training loop costs next to nothing."""

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from onpro.augment import OnPixels
from onpro.bench import Measure, bench
from onpro.bench.breakdown import MARK, PARTS, _marked, attributed, breakdown
from onpro.bench.clock import Timed, alternately
from onpro.bench.forwards import Forward, network_alone, work
from onpro.bench.images import made_up_images
from onpro.bench.learner import Learner
from onpro.methods import settings_for
from onpro.methods.base import Labelled
from onpro.reports.bench import bench_table, figures_by_task
from onpro.runs import RunConfig, prepare
from onpro.runs.events import EventLog

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _quiet_profiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETO_LOG_LEVEL", "99")


def config(method: str, **values: Any) -> RunConfig:
    usual: dict[str, Any] = {"memory": 12, "tasks": 3, "batch_size": 2, "image_size": 8}
    return RunConfig(
        method, settings_for(method, "tiny"), data="tiny", device="cpu", **usual | values
    )


def learner(
    method: str, classes: int = 6, device: Literal["cpu", "cuda"] = "cpu", **values: Any
) -> Learner:
    run = replace(config(method, **values), device=device)
    assert run.tasks is not None
    assert run.image_size is not None
    data = made_up_images(
        classes,
        run.tasks,
        batch_size=run.batch_size,
        image_size=run.image_size,
        device=torch.device(device),
    )
    return Learner(run, data)


def test_a_task_is_entered_with_a_full_memory_of_all_classes_so_far() -> None:
    er = learner("er")
    for task in (0, 2):
        er.enter(task)
        assert er.method.progress.task == task
        assert er.method.progress.seen == set(range(2 * task + 2))
        assert er.method.memory.free == 0
        assert set(er.method.memory.labels.tolist()) <= er.method.progress.seen
    assert er.method.progress.seen_before_task == {0, 1, 2, 3}


def test_large_memories_are_not_filled_step_by_step() -> None:
    er = learner("er", memory=5000)
    er.enter(2)
    assert len(er.method.memory) == 5000
    assert er.method.progress.steps < 20


@pytest.mark.parametrize("method", ["cope", "gdumb"])
def test_memories_of_another_kind_are_filled_too(method: str) -> None:
    other = learner(method)
    other.enter(2)
    memory: Any = other.method.memory
    assert sorted(set(memory.labels.tolist())) == list(range(6))
    assert len(memory.labels) == 12


def test_the_forwards_of_a_step_are_those_the_method_counts() -> None:
    er = learner("er")
    er.enter(1)
    assert er.forwards == [Forward(2, True, True, False), Forward(12, True, True, False)]
    gss = learner("gss")
    gss.enter(1)
    before = gss.method.progress.images
    gss.step()
    assert sum(passed.images for passed in gss.forwards) == gss.method.progress.images - before
    mir = learner("mir")
    mir.enter(1)
    assert [passed.gradient for passed in mir.forwards] == [True, False, False, True]


def test_a_backward_pass_counts_twice_a_forward_pass() -> None:
    passes = [Forward(3, True, True, False), Forward(2, False, True, False)]
    assert work(passes, 10) == 3 * 10 * 3 + 2 * 10


def test_the_network_alone_leaves_the_learner_as_it_is() -> None:
    er = learner("er")
    er.enter(0)
    before = [p.clone() for p in er.method.network.parameters()]
    buffers = [b.clone() for b in er.method.network.buffers()]
    network_alone(er.method, "eager", er.forwards)()
    assert all(map(torch.equal, before, er.method.network.parameters()))
    assert all(map(torch.equal, buffers, er.method.network.buffers()))


def test_the_parts_of_a_step_sum_to_the_whole() -> None:
    er = learner("er")
    er.enter(1)
    batch = next(er._in_turn)
    with (
        _marked(er.method),
        profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler,
        record_function("step"),
    ):
        er._stepper.step(batch)
    events = profiler.events() or ()
    (whole,) = [event.cpu_time_total for event in events if event.name == "step"]
    parts = attributed(events, on_gpu=False)
    assert set(parts) == set(PARTS)
    assert sum(parts.values()) == pytest.approx(whole, rel=0.05)
    assert all(time > 0 for time in parts.values())


def test_taking_a_step_apart_leaves_the_method_as_it_was() -> None:
    gss = learner("gss")
    gss.enter(0)
    before = set(vars(gss.method)), set(vars(gss.method.memory))
    breakdown(gss._stepper, [next(gss._in_turn)], 1)
    assert (set(vars(gss.method)), set(vars(gss.method.memory))) == before


class Marks:
    """Stands in for the profiler's ranges: those open now, and all there were."""

    open: ClassVar[list[str]] = []
    all: ClassVar[list[str]] = []

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> "Marks":
        self.open.append(self.name)
        self.all.append(self.name)
        return self

    def __exit__(self, *error: object) -> None:
        self.open.remove(self.name)


@pytest.mark.parametrize(
    ("name", "holder", "call"),
    [
        ("relay", Labelled, "rotated"),
        ("er-rot", Labelled, "rotated"),
        ("er-chain", OnPixels, "__call__"),
        ("er-mkd", OnPixels, "__call__"),
    ],
)
def test_views_are_part_of_augmentation(
    name: str, holder: type, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner, seen = getattr(holder, call), []

    def noted(*arguments: Any, **named: Any) -> Any:
        seen.append(MARK + "augment" in Marks.open)
        return inner(*arguments, **named)

    monkeypatch.setattr(holder, call, noted)
    monkeypatch.setattr("onpro.bench.breakdown.record_function", Marks)
    measured = learner(name)
    measured.enter(1)
    seen.clear()
    with _marked(measured.method):
        measured._stepper.step(next(measured._in_turn))
    assert seen
    assert all(seen)


def test_the_work_of_peers_is_attributed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onpro.bench.breakdown.record_function", Marks)
    measured = learner("er-ccldc")
    measured.enter(1)
    Marks.all.clear()
    with _marked(measured.method):
        measured._stepper.step(next(measured._in_turn))
    assert Marks.all.count(MARK + "optimizer") == Marks.all.count(MARK + "backward") == 2


def event(name: str, parent: Any = None, kernels: dict[str, float] | None = None) -> Any:
    return SimpleNamespace(
        name=name,
        cpu_parent=parent,
        device_type=SimpleNamespace(name="CPU"),
        kernels=[SimpleNamespace(name=n, duration=d) for n, d in (kernels or {}).items()],
    )


def test_kernels_of_a_gpu_belong_to_the_outermost_part() -> None:
    step = event("step", kernels={"step": 100.0})  # its own extent, not a kernel
    draw = event(MARK + "memory", step, {MARK + "memory": 50.0})
    scaling = event(MARK + "augment", draw)
    elsewhere = event("autograd::engine::evaluate_function: MmBackward0")  # another thread's
    events = [
        step,
        draw,
        scaling,
        elsewhere,
        event("aten::div", scaling, {"divide": 2.0}),
        event("aten::mm", elsewhere, {"gemm": 7.0}),
        event("aten::exp", step, {"exp": 1.0}),
    ]
    spent = attributed(events, on_gpu=True)
    assert {part: t for part, t in spent.items() if t} == {
        "memory": 2.0,
        "backward": 7.0,
        "losses": 1.0,
    }


def test_blocks_are_timed_in_turn() -> None:
    order = ""

    def step(name: str) -> Timed:
        def note() -> None:
            nonlocal order
            order += name

        return Timed(note, lambda: torch.cuda.stream(None))

    spreads = alternately([step("a"), step("b")], steps=2, repeats=3, device=CPU)
    assert order == "aabb" * 3
    assert all(spread.low <= spread.median <= spread.high for spread in spreads)


def test_several_engines_are_measured_in_one_go() -> None:
    results = bench(config("gdumb", tasks=1), 2, ["eager", "eager"], Measure(steps=1, repeats=1))
    assert [each["engine"] for each in results] == ["eager", "eager"]
    assert [[phase["task"] for phase in each["phases"]] for each in results] == [[1], [1]]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_graphs_are_measured_beside_single_operations() -> None:
    run = replace(config("er", image_size=32, batch_size=10, memory=100), device="cuda")
    eager, graph = bench(run, 6, ["eager", "graph"], Measure(steps=5, peak_tflops=100.0))
    for ours, theirs in zip(graph["phases"], eager["phases"], strict=True):
        assert 0 < ours["ms"] < theirs["ms"]
        assert ours["network_ms"] > 0
        assert ours["memory_allocated"] > 0
        assert ours["memory_reserved"] is None  # the process is not its alone
        assert all(ours["breakdown"][part] > 0 for part in PARTS)
    torch.empty(2**30, dtype=torch.uint8, device="cuda")  # somebody else's, and left behind
    (alone,) = bench(run, 6, ["graph"], Measure(steps=5))
    assert all(p["memory_reserved"] >= p["memory_allocated"] > 0 for p in alone["phases"])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_network_alone_writes_into_nothing_but_its_own_memory() -> None:
    er = learner("er", device="cuda", image_size=32, batch_size=10, memory=100)
    er.enter(0)
    alone = er.network_alone()
    with er.here():
        others = [torch.zeros(size, device="cuda") for size in (1, 20, 64, 512) for _ in range(50)]
        for _ in range(3):
            alone.step()
        assert not any(other.any() for other in others)


def result(engine: str, ms: float) -> dict[str, Any]:
    phase = {
        "task": 1, "ms": ms, "ms_low": ms - 0.1, "ms_high": ms + 0.1, "images": 5,
        "images_per_second": 5000 / ms, "tflops": 1.5, "share_of_peak": 0.5, "network_ms": 1.0,
        "outside_network": 0.25, "memory_allocated": 2**30, "memory_reserved": None,
        "breakdown": dict.fromkeys(PARTS, 1.0),
    }  # fmt: skip
    shape = {"tasks": 1, "image_size": 8, "batch_size": 2, "precision": "bf16"}
    what = {"method": "er", "recipe": None, "memory": 20, "classes": 2}
    return {**what, **shape, "engine": engine, "phases": [phase]}


def test_ratios_are_shown_where_engines_are_compared() -> None:
    results = [result("eager", 8.0), result("graph", 2.0)]
    header, rows = figures_by_task(results)
    assert header == ["", "eager, task 1", "graph, task 1"]
    assert rows[0] == ["ms per step", "8.00 ± 0.10", "2.00 ± 0.10"]
    assert rows[-1] == ["eager / this, times", "", "4.00"]
    assert "reserved, GiB" not in [row[0] for row in rows]
    shown = bench_table(
        {
            "hardware": {"gpu": "a GPU", "threads": 1},
            "versions": {"torch": "2", "python": "3"},
            "peak_tflops": 3.0,
            "steps": 1,
            "repeats": 1,
            "results": results,
        }
    )
    assert "| er | 20 | 2 | eager / graph | 4.00 |" in shown
    assert "| er | 20 | 2 | graph | 17% |" in shown


def cpu_seconds(act: Callable[[], None]) -> float:
    began = time.process_time()
    act()
    return time.process_time() - began


@pytest.mark.usefixtures("one_thread")
def test_the_training_loop_adds_little_to_the_steps_themselves(tmp_path: Path) -> None:
    """Stream, log and looking for the end of a task, against bare steps on ready batches.

    At most a tenth is what is wanted, and 2 to 3 % what is measured. CPU time is compared, of which
    other processes take nothing, though they empty its caches.
    """
    block, blocks = 50, 5
    run = config("er", batch_size=10, memory=50, tasks=1)
    data = made_up_images(2, 1, batch_size=10 * block, image_size=8, device=CPU)
    trainer, bare = prepare(run, data), prepare(run, data)
    batches, steps = list(islice(bare.stream, block)), trainer.steps()
    assert len(trainer.stream) > block * (blocks + 1)  # no examination comes in between

    def by_the_loop() -> None:
        for _ in islice(steps, block):
            pass

    def by_hand() -> None:
        for batch in batches:
            bare.stepper.step(batch)

    ratios = []
    with closing(EventLog(tmp_path / "events.jsonl")) as log:
        trainer.listeners = [log]
        for _ in range(1 + blocks):
            times = [cpu_seconds(train) for train in (by_the_loop, by_hand)]
            ratios.append(times[0] / times[1])
    assert median(ratios[1:]) < 1.25, ratios
