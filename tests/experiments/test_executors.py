"""Many runs at once: none is lost, none repeated, one that fails does not stop the others."""

import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import count, zip_longest
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from filelock import lock_descriptor, unlock_descriptor

from onpro.experiments.executors import (
    Executor,
    Job,
    JobResult,
    Local,
    RunEvent,
    RunRequest,
    execute,
    local,
    requests,
)
from onpro.experiments.executors.worker import LOG_BEGINS, attempt
from onpro.methods import settings_for
from onpro.runs import Interrupted, RunConfig, finished, run
from onpro.runs.files import locked
from onpro.runs.runner import last
from onpro.training.checkpoint import Checkpoints
from tests.tiny_runs import ER as CONFIG
from tests.tiny_runs import lasting, sealed

pytestmark = pytest.mark.usefixtures("one_thread")

SLOW = replace(CONFIG, limit_per_class=None, batch_size=2)
"""Some seconds long, so that it can be disturbed."""
FINISHED = JobResult("finished")
DIED = JobResult("died", "its process was killed by SIGKILL.")


class Scripted:
    """An executor whose attempts end as a script says; a finished one leaves a real result."""

    def __init__(self, results: Path, script: dict[int, list[JobResult]], slots: int = 2) -> None:
        self.results = results
        self.script = script
        self.room = slots
        self.started: list[int] = []
        self.alone: list[bool] = []
        self.under_way: list[ScriptedJob] = []
        self.most = 0

    def device(self) -> Literal["cpu", "cuda"]:
        return "cpu"

    def slots(self) -> int:
        return self.room

    def start(self, request: RunRequest, *, alone: bool) -> Job:
        config = request.config
        self.started.append(config.seed)
        self.alone.append(alone)
        outcomes = self.script.get(config.seed)
        job = ScriptedJob(self, request, outcomes.pop(0) if outcomes else FINISHED)
        self.under_way.append(job)
        self.most = max(self.most, len(self.under_way))
        return job

    def close(self) -> None:
        pass


class ScriptedJob:
    """Ends at the second look, or when it is told to."""

    def __init__(self, owner: Scripted, request: RunRequest, end: JobResult) -> None:
        self.owner, self.request, self.end = owner, request, end
        self.looks = 0
        self.told: list[str] = []

    def result(self) -> JobResult | None:
        self.looks += 1
        if self.looks < 2:
            return None
        if self in self.owner.under_way:
            self.owner.under_way.remove(self)
            if self.end == FINISHED:
                folder = self.request.folder
                folder.mkdir(parents=True, exist_ok=True)
                result = json.loads(self.owner.results.read_text())
                text = sealed(result, identity=self.request.config.identity)
                (folder / "result.json").write_text(text)
        return self.end

    def stop(self) -> None:
        self.told.append("stop")

    def kill(self) -> None:
        self.told.append("kill")


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(CONFIG, tmp_path_factory.mktemp("runs")).folder / "result.json"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOK_EVERY", "LOOK_AGAIN"):
        monkeypatch.setitem(execute.__globals__, name, 0.01)


def seeds(number: int) -> list[RunConfig]:
    return [replace(CONFIG, seed=seed) for seed in range(number)]


def told(events: list[RunEvent]) -> list[tuple[str, int]]:
    return [(e.kind, e.request.config.seed) for e in events if e.request]


def test_every_run_is_started_once_and_not_more_at_once_than_fit(
    tmp_path: Path, result: Path
) -> None:
    executor = Scripted(result, {}, slots=3)
    events = list(execute(requests(seeds(8), tmp_path), executor))
    assert executor.started == list(range(8))
    assert executor.most == 3
    assert sorted(told(events)) == sorted(
        (kind, seed) for seed in range(8) for kind in ("started", "finished")
    )
    assert any(event.kind == "waiting" for event in events), "somebody may want to look meanwhile"


def test_what_is_finished_is_not_started(tmp_path: Path, result: Path) -> None:
    list(execute(requests(seeds(2), tmp_path), Scripted(result, {})))
    executor = Scripted(result, {})
    events = list(execute(requests(seeds(4), tmp_path), executor))
    assert executor.started == [2, 3]
    assert told(events).count(("finished", 0)) == 1


def test_a_run_that_fails_does_not_stop_the_others(tmp_path: Path, result: Path) -> None:
    executor = Scripted(result, {1: [JobResult("failed", "it diverged.")]})
    events = list(execute(requests(seeds(4), tmp_path), executor))
    assert executor.started == [0, 1, 2, 3], "a sentence is not tried again"
    (failed,) = [event for event in events if event.kind == "failed"]
    assert failed.request is not None
    assert (failed.request.config.seed, failed.reason) == (1, "it diverged.")
    assert [kind for kind, _ in told(events)].count("finished") == 3


def test_a_run_whose_worker_dies_is_started_again(tmp_path: Path, result: Path) -> None:
    executor = Scripted(result, {1: [DIED, DIED]})
    events = list(execute(requests(seeds(3), tmp_path), executor))
    assert executor.started.count(1) == 3
    assert told(events).count(("again", 1)) == 2
    assert ("finished", 1) in told(events)
    alone = [alone for seed, alone in zip(executor.started, executor.alone, strict=True) if seed]
    assert sorted(alone) == [False, False, True, True], "what has died disturbs nobody"


def test_it_is_not_started_again_for_ever(tmp_path: Path, result: Path) -> None:
    executor = Scripted(result, {1: [DIED] * 9})
    events = list(execute(requests(seeds(3), tmp_path), executor))
    assert executor.started.count(1) == 3
    (failed,) = [event for event in events if event.kind == "failed"]
    assert failed.reason == "its process was killed by SIGKILL. (3 attempts)"


def test_a_run_in_other_hands_is_waited_for(tmp_path: Path, result: Path) -> None:
    first = tmp_path / CONFIG.folder
    first.mkdir()
    executor = Scripted(result, {})
    looks = 0
    with locked(first):
        for event in (events := execute(requests(seeds(2), tmp_path), executor)):
            looks += event.kind == "waiting"
            if looks == 20:
                break
        assert executor.started == [1]
        (first / "result.json").write_bytes(result.read_bytes())
    assert told(list(events)) == [("finished", 0)]
    assert executor.started == [1], "the other process has finished it"


def test_a_run_that_others_took_first_is_tried_later(tmp_path: Path, result: Path) -> None:
    executor = Scripted(result, {0: [JobResult("busy", "another process is working on it.")]})
    events = list(execute(requests(seeds(1), tmp_path), executor))
    assert executor.started == [0, 0]
    assert told(events) == [("started", 0), ("started", 0), ("finished", 0)]


def test_who_only_looks_whether_a_run_is_held_makes_no_attempt_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / f".{CONFIG.folder}.lock").open("wb") as looked_at:
        assert lock_descriptor(looked_at.fileno(), blocking=False)
        waited: list[float] = []

        def looked_enough(seconds: float) -> None:
            unlock_descriptor(looked_at.fileno())
            waited.append(seconds)

        monkeypatch.setattr(time, "sleep", looked_enough)
        assert last(attempt(*requests([CONFIG], tmp_path), stop=lambda: None)).kind == "finished"
        assert waited


def test_a_result_that_cannot_be_seen_here_is_a_failure(tmp_path: Path, result: Path) -> None:
    executor = Scripted(result, {0: [JobResult("finished", output="hello")]})
    (failed,) = [e for e in execute(requests(seeds(1), tmp_path), executor) if e.kind == "failed"]
    assert "must be on a file system that all machines share" in failed.reason


def test_a_damaged_result_is_a_failure(tmp_path: Path, result: Path) -> None:
    (tmp_path / CONFIG.folder).mkdir()
    (tmp_path / CONFIG.folder / "result.json").write_text("{}")
    executor = Scripted(result, {})
    events = [event for event in execute(requests(seeds(2), tmp_path), executor) if event.request]
    assert executor.started == [1]
    assert told(events)[0] == ("failed", 0)
    assert "lacks" in events[0].reason


def test_closing_stops_what_is_under_way(tmp_path: Path, result: Path) -> None:
    executor = Scripted(result, {seed: [DIED] for seed in range(4)})
    with closing(execute(requests(seeds(4), tmp_path), executor)) as events:
        while next(events).kind != "started":
            pass
        jobs = list(executor.under_way)
    assert [job.told for job in jobs] == [["stop"]]


def test_who_does_not_stop_is_killed(
    tmp_path: Path, result: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(execute.__globals__, "PATIENCE", 0.05)
    monkeypatch.setattr(ScriptedJob, "result", lambda self: None)
    executor = Scripted(result, {})
    with closing(execute(requests(seeds(1), tmp_path), executor)) as events:
        next(events)
    assert [job.told for job in executor.under_way] == [["stop", "kill"]]


def test_a_repetition_whose_worker_dies_is_resumed_and_not_begun_again(
    tmp_path: Path, result: Path
) -> None:
    finished_run = run(CONFIG, tmp_path).folder
    repetition = finished_run.with_name(finished_run.name + ".new")
    asked: list[RunRequest] = []

    class Repeating(Scripted):
        def start(self, request: RunRequest, *, alone: bool) -> Job:
            asked.append(request)
            if len(asked) == 2:
                repetition.mkdir()
            return super().start(request, alone=alone)

    events = execute(
        [RunRequest(finished_run, CONFIG, fresh=True)], Repeating(result, {0: [DIED] * 3})
    )
    assert [kind for kind, _ in told(list(events))].count("again") == 2
    assert [(r.folder, r.fresh) for r in asked] == [
        (finished_run, True),
        (finished_run, True),
        (repetition, False),
    ]


def workers() -> list[int]:
    return [child.pid for child in multiprocessing.active_children() if child.pid]


def until_nobody_works() -> None:
    for child in multiprocessing.active_children():
        child.join()
    assert not workers()


Make = Callable[[int], Executor]


def crew(workers: int) -> Executor:
    """Runs that take turns in one process, as they do on a GPU."""
    return Local(workers, side_by_side=True)


def steps(config: RunConfig, out: Path) -> list[int]:
    lines = (out / config.folder / "events.jsonl").read_text().splitlines()
    return [json.loads(line)["step"] for line in lines]


def plain(config: RunConfig, out: Path) -> dict[str, Any]:
    done = finished(config, out)
    assert done is not None
    return lasting(done.result)


def has_checkpoint(config: RunConfig, out: Path) -> bool:
    return bool(Checkpoints(out / config.folder / "checkpoint").files())


def once(act: Callable[[], None], when: Callable[[], bool]) -> Callable[[], None]:
    """Something to be done the first time that something else holds."""
    done: list[bool] = []

    def look() -> None:
        if not done and when():
            done.append(True)
            act()

    return look


@pytest.mark.parametrize("make", [Local, crew])
def test_runs_in_processes_equal_runs_in_this_one(tmp_path: Path, make: Make) -> None:
    with closing(make(2)) as executor:
        events = list(execute(requests(seeds(3), tmp_path / "a"), executor))
    until_nobody_works()
    assert [kind for kind, _ in told(events)].count("finished") == 3
    for config in seeds(3):
        run(config, tmp_path / "b")
        assert plain(config, tmp_path / "a") == plain(config, tmp_path / "b")
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == sorted(
        config.folder for config in seeds(3)
    ), "neither logs nor locks are left"


def test_what_a_run_says_is_told_as_its_own(tmp_path: Path) -> None:
    """Also where the other run of the process is over first."""
    runs = [SLOW, CONFIG]
    for config in runs:
        steps = count()
        with pytest.raises(Interrupted):
            run(
                config, tmp_path, stop=partial(lambda s: signal.SIGTERM if next(s) else None, steps)
            )
    with closing(crew(2)) as executor:
        events = [e for e in execute(requests(runs, tmp_path), executor) if e.kind == "finished"]
    assert [event.request and event.request.config for event in events] == [CONFIG, SLOW]
    for event in events:
        assert event.request is not None
        (line,) = event.result.output.splitlines()
        assert line.startswith(f"{tmp_path / event.request.config.folder} resumes from step 2 of ")


@pytest.mark.thorough
def test_a_killed_crew_goes_on_from_its_checkpoints(tmp_path: Path) -> None:
    """Each of its runs by itself, in case one of them was to blame."""
    runs = [SLOW, replace(SLOW, seed=1)]

    def kill() -> None:
        (pid,) = workers()
        os.kill(pid, signal.SIGKILL)

    look = once(kill, lambda: all(has_checkpoint(config, tmp_path / "a") for config in runs))
    events, most = [], 0
    with closing(crew(2)) as executor:
        for event in execute(requests(runs, tmp_path / "a", checkpoint_every=0), executor):
            look()
            most = max(most, len(workers()))
            events.append(event)
    until_nobody_works()
    kinds = [event.kind for event in events if event.request]
    assert sorted(kinds) == ["again"] * 2 + ["finished"] * 2 + ["started"] * 4
    assert {e.reason for e in events if e.kind == "again"} == {"its process was killed by SIGKILL."}
    assert most == 2
    for config in runs:
        run(config, tmp_path / "b")
        assert plain(config, tmp_path / "a") == plain(config, tmp_path / "b")


def test_a_killed_worker_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    def kill() -> None:
        (pid,) = workers()
        os.kill(pid, signal.SIGKILL)

    look = once(kill, lambda: has_checkpoint(SLOW, tmp_path / "a"))
    events = []
    for event in execute(requests([SLOW], tmp_path / "a", checkpoint_every=0), Local(1)):
        look()
        events.append(event)
    kinds = [event.kind for event in events if event.request]
    assert kinds == ["started", "again", "started", "finished"]
    assert [e.reason for e in events if e.kind == "again"] == ["its process was killed by SIGKILL."]
    assert "resumes from step" in next(e.result.output for e in events if e.kind == "finished")
    list(execute(requests([SLOW], tmp_path / "b"), Local(1)))
    assert plain(SLOW, tmp_path / "a") == plain(SLOW, tmp_path / "b")
    assert steps(SLOW, tmp_path / "a") == steps(SLOW, tmp_path / "b"), "nothing is logged twice"


@pytest.mark.thorough
def test_a_fork_server_killed_while_a_worker_starts_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = forkserver.connect_to_new_process

    def kill_meanwhile(fds: list[int]) -> tuple[int, int]:
        monkeypatch.setattr(forkserver, "connect_to_new_process", connect)  # only once
        forkserver.ensure_running()
        server: int = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined] # private
        os.kill(server, signal.SIGSTOP)  # so that it does not fork
        try:
            return connect(fds)
        finally:
            os.kill(server, signal.SIGKILL)

    monkeypatch.setattr(forkserver, "connect_to_new_process", kill_meanwhile)
    events = [event for event in execute(requests([CONFIG], tmp_path), Local(1)) if event.request]
    assert [event.kind for event in events] == ["started", "again", "started", "finished"]
    assert events[1].reason == "its process could not be started (unexpected EOF)."


@pytest.mark.parametrize("gpu", [False, True])
def test_a_process_that_still_imports_does_not_see_ctrl_c(gpu: bool) -> None:
    script = (
        "import multiprocessing, os, signal\n"
        "from multiprocessing import forkserver\n"
        "from onpro.experiments.executors import local\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background\n"
        "local._serve = print\n"
        f"if {gpu}:\n"
        "    worker = local.WorkerProcess('', False, threads=1)\n"
        "    os.kill(worker._process.pid, signal.SIGINT)\n"
        "else:\n"
        "    local.fork_server()\n"
        "    forkserver.ensure_running()\n"
        "    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGINT)\n"
        "    worker = local.WorkerProcess(None, False, threads=1)\n"
        "worker.close()\n"
        "worker.join()\n"
        "print(worker.ending())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert not done.stderr
    assert done.stdout.splitlines()[-1] == "its process ended with status 0."


def test_processes_of_others_hear_ctrl_c() -> None:
    """A program has one fork server, also for processes that are not ours."""
    process = (
        "import signal, sys\n"
        "hears = signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
        "blocked = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())\n"
        "sys.exit(f'{hears=} {blocked=}')\n"
    )
    script = (
        "import multiprocessing, os, signal\n"
        "from multiprocessing import forkserver\n"
        "from onpro.experiments.executors import local\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background\n"
        "context = local.fork_server()\n"
        "os.kill(forkserver._forkserver._forkserver_pid, signal.SIGINT)\n"
        f"theirs = context.Process(target=exec, args=({process!r}, {{}}))\n"
        "theirs.start()\n"
        "theirs.join()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr.splitlines() == ["hears=True blocked=False"]


def test_two_commands_can_share_a_folder(tmp_path: Path) -> None:
    commands = [execute(requests(seeds(4), tmp_path), Local(1)) for _ in range(2)]
    events: list[list[RunEvent]] = [[], []]
    for pair in zip_longest(*commands):
        for seen, event in zip(events, pair, strict=True):
            seen += [event] if event else []
    for seen in events:
        assert sorted(t for t in told(seen) if t[0] != "started") == [
            ("finished", seed) for seed in range(4)
        ]
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {config.folder for config in seeds(4)}


def test_a_run_that_another_process_finished_meanwhile_is_not_repeated(tmp_path: Path) -> None:
    done = run(CONFIG, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in done.folder.iterdir()}
    job = Local(1).start(*requests([CONFIG], tmp_path))
    while (outcome := job.result()) is None:
        time.sleep(0.01)
    assert outcome.kind == "finished"
    assert {path: path.stat().st_mtime_ns for path in done.folder.iterdir()} == before


@pytest.mark.parametrize("make", [Local, crew])
def test_a_worker_whose_command_is_gone_ends_in_silence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], make: Make
) -> None:
    job = make(1).start(*requests([SLOW], tmp_path), alone=False)
    assert isinstance(job, local.LocalJob)
    while not (tmp_path / SLOW.folder / "events.jsonl").exists():
        time.sleep(0.01)
    job.process._pipe.close()
    job.process._process.join()
    assert job.process._process.exitcode == 0
    assert "Traceback" not in capfd.readouterr().err
    assert finished(SLOW, tmp_path) is not None


def much_to_say(
    gpu: str | None, deterministic: bool, threads: int, pipe: multiprocessing.connection.Connection
) -> None:
    """A worker process that prints more than a pipe holds."""
    number, _ = pipe.recv()
    pipe.send((number, JobResult("finished", output="line\n" * 2**20)))


def test_a_worker_that_has_much_to_say_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork = multiprocessing.get_context("fork")
    monkeypatch.setattr(local, "fork_server", lambda: fork)
    monkeypatch.setattr(local, "_serve", much_to_say)
    job = Local(1).start(*requests([CONFIG], tmp_path))
    while (result := job.result()) is None:
        time.sleep(0.01)
    assert result.output == "line\n" * 2**20
    until_nobody_works()
    assert job.result() == result


@pytest.mark.parametrize("make", [Local, crew])
def test_stopping_saves_what_was_trained(tmp_path: Path, make: Make) -> None:
    log = tmp_path / SLOW.folder / "events.jsonl"
    with (
        closing(make(1)) as executor,
        closing(execute(requests([SLOW], tmp_path), executor)) as events,
    ):
        for _ in events:
            if log.exists():
                break
    until_nobody_works()
    assert finished(SLOW, tmp_path) is None
    assert has_checkpoint(SLOW, tmp_path)


@pytest.mark.parametrize("make", [Local, crew])
def test_a_mistake_and_a_defect_are_told_in_a_sentence(tmp_path: Path, make: Make) -> None:
    broken = replace(CONFIG, settings=replace(CONFIG.settings, encoder="resnet18-imagenet"))
    defect = replace(CONFIG, precision="fp8")  # type: ignore[arg-type] # on purpose
    with closing(make(3)) as executor:
        events = list(execute(requests([broken, defect, CONFIG], tmp_path), executor))
    reasons = {e.request.config.hash: e.reason for e in events if e.kind == "failed" and e.request}
    assert "are too small for the encoder" in reasons[broken.hash]
    log = tmp_path / f"{defect.folder}.log"
    assert "KeyError: 'fp8'" in reasons[defect.hash]
    assert reasons[defect.hash].endswith(f"see {log}.")
    assert "Traceback" in log.read_text()
    assert finished(CONFIG, tmp_path) is not None


def test_the_log_of_a_defect_is_removed_but_no_file_of_the_user(tmp_path: Path) -> None:
    defect = replace(CONFIG, precision="fp8")  # type: ignore[arg-type] # on purpose
    other = replace(CONFIG, seed=1)
    mine = [tmp_path / f"{config.folder}.log" for config in (CONFIG, defect)]
    stale = tmp_path / f"{other.folder}.log"
    for path in mine:
        path.write_text("my notes")
    stale.write_text(f"{LOG_BEGINS}Traceback")
    with closing(Local(1)) as executor:
        events = list(execute(requests([CONFIG, defect, other], tmp_path), executor))
    assert [path.read_text() for path in mine] == ["my notes"] * 2
    assert not stale.exists()
    (failed,) = [event for event in events if event.kind == "failed"]
    assert "Traceback" in failed.result.output


@pytest.mark.parametrize(("threads", "slots"), [(None, 8), (1, 8), (3, 2), (8, 1), (32, 1)])
def test_there_are_as_many_workers_as_cores_for_them(
    monkeypatch: pytest.MonkeyPatch, threads: int | None, slots: int
) -> None:
    monkeypatch.setattr("onpro.experiments.executors.local.cores", lambda: 8)
    assert Local(threads=threads).slots() == slots
    assert Local(5, threads=threads).slots() == 5


def test_gpus_are_shared_evenly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Named(local.WorkerProcess):
        """Does nothing, for ever."""

        def __init__(self, gpu: str | None, deterministic: bool, *, threads: int) -> None:
            self.gpu, self.deterministic, self.closed, self.runs = gpu, deterministic, False, 0

        def take(self, request: RunRequest) -> local.LocalJob:
            self.runs += 1
            return local.LocalJob(self, self.runs)

        def unfinished(self) -> list[int]:
            return list(range(self.runs))

        def ending(self) -> str:
            return ""

        def close(self) -> None:
            self.closed = True

    monkeypatch.setattr(local, "WorkerProcess", Named)
    executor = Local(9, gpus=["0", "GPU-7", "2"])
    assert executor.device() == "cuda"
    assert executor.slots() == 9
    jobs = [executor.start(request) for request in requests(seeds(5), tmp_path)]
    assert [job.process.gpu for job in jobs] == ["0", "GPU-7", "2", "0", "GPU-7"]
    assert jobs[0].process is jobs[3].process
    (request,) = requests([CONFIG], tmp_path)
    alone = executor.start(request, alone=True)
    assert alone.process.gpu == "2"
    assert alone.process is not jobs[2].process
    assert executor.start(request).process is jobs[0].process
    bitwise = executor.start(*requests([replace(CONFIG, deterministic=True)], tmp_path))
    assert bitwise.process.deterministic, "the whole process is"
    assert bitwise.process not in [job.process for job in jobs]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_crew_trains_on_a_gpu(tmp_path: Path) -> None:
    configs = [
        replace(CONFIG, method=name, settings=settings_for(name, "tiny"), device="cuda")
        for name in ("er", "onpro", "gdumb", "gss")
    ]
    with closing(Local(3, gpus=["0"])) as executor:
        events = list(execute(requests(configs, tmp_path), executor))
    assert [e.kind for e in events if e.request].count("finished") == len(configs)
