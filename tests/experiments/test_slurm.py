"""Runs as SLURM jobs, on submitit's cluster of one machine."""

import os
import signal
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onpro.cli.options import ExecutionOptions
from onpro.cli.training import make_executor
from onpro.experiments.executors import RunEvent, execute, requests, slurm
from onpro.experiments.executors.slurm import Attempt, Slurm, SlurmJob
from onpro.runs import RunConfig, finished, run
from onpro.training.checkpoint import Checkpoints
from tests.tiny_runs import ER as CONFIG
from tests.tiny_runs import lasting

submitit = pytest.importorskip("submitit", reason="an extra: pip install 'onpro[slurm]'")

SLOW = replace(CONFIG, limit_per_class=None, batch_size=1, tasks=6)
"""Some seconds long, with a checkpoint after each sixth of it."""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    monkeypatch.setattr(slurm, "LOOK_EVERY", 0.05)
    monkeypatch.setattr(slurm, "RESULT_WITHIN", 0.1)


def plain(config: RunConfig, out: Path) -> dict[str, Any]:
    done = finished(config, out)
    assert done is not None
    return lasting(done.result)


def kinds(events: list[RunEvent]) -> list[str]:
    return [event.kind for event in events if event.request]


def process_of(out: Path) -> int:
    """The process that trains the only run below a folder, by the name of its job's log."""
    (pid,) = (int(path.name) for path in (out / ".slurm").iterdir() if path.name.isdecimal())
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def has_checkpoint(config: RunConfig, out: Path) -> bool:
    return bool(Checkpoints(out / config.folder / "checkpoint").files())


@pytest.mark.thorough
def test_runs_in_jobs_equal_runs_in_this_process(tmp_path: Path) -> None:
    configs = [replace(CONFIG, seed=seed) for seed in range(2)]
    with closing(Slurm(cluster="local", workers=2)) as executor:
        assert executor.device() == "cpu"
        events = list(execute(requests(configs, tmp_path / "a"), executor))
    assert sorted(kinds(events)) == ["finished"] * 2 + ["started"] * 2
    for config in configs:
        run(config, tmp_path / "b")
        assert plain(config, tmp_path / "a") == plain(config, tmp_path / "b")
    names = {path.name for path in (tmp_path / "a").iterdir()}
    assert names == {config.folder for config in configs}, "no logs of jobs are left"


@pytest.mark.thorough
def test_a_mistake_and_a_defect_are_told_in_a_sentence(tmp_path: Path) -> None:
    broken = replace(CONFIG, settings=replace(CONFIG.settings, encoder="resnet18-imagenet"))
    defect = replace(CONFIG, precision="fp8")  # type: ignore[arg-type] # on purpose
    with closing(Slurm(cluster="local")) as executor:
        events = list(execute(requests([broken, defect], tmp_path), executor))
    assert sorted(kinds(events)) == ["failed"] * 2 + ["started"] * 2
    reasons = " ".join(event.reason for event in events)
    assert "are too small for the encoder" in reasons
    assert "KeyError: 'fp8'" in reasons
    assert f"see {tmp_path / defect.folder}.log." in reasons


def test_a_job_that_cannot_even_start_its_run_is_told_with_its_log(tmp_path: Path) -> None:
    job = submitit.AutoExecutor(tmp_path / "%j", cluster="local").submit(len, 3)
    waiting = SlurmJob(job)
    while (result := waiting.result()) is None:
        time.sleep(0.05)
    assert result.kind == "defect"
    assert result.reason.startswith("TypeError: object of type 'int' has no len()")
    assert str(job.paths.stderr) in result.reason


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="finds the process in /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGUSR2, signal.SIGTERM])
def test_a_run_that_is_killed_or_preempted_is_resumed(tmp_path: Path, number: int) -> None:
    """SIGUSR2 comes before the time limit and makes the job be queued again."""
    sent: list[int] = []
    events = []
    with closing(Slurm(cluster="local")) as executor:
        for event in execute(requests([SLOW], tmp_path / "a", checkpoint_every=0), executor):
            events.append(event)
            if not sent and has_checkpoint(SLOW, tmp_path / "a"):
                sent.append(process_of(tmp_path / "a"))
                os.kill(sent[0], number)
    assert sent
    again = [] if number == signal.SIGUSR2 else ["again", "started"]
    assert kinds(events) == ["started", *again, "finished"]
    (output,) = [event.result.output for event in events if event.kind == "finished"]
    assert "resumes from step" in output
    run(SLOW, tmp_path / "b")
    assert plain(SLOW, tmp_path / "a") == plain(SLOW, tmp_path / "b")


@pytest.mark.thorough
def test_stopping_cancels_the_job_and_keeps_what_was_trained(tmp_path: Path) -> None:
    with (
        closing(Slurm(cluster="local")) as executor,
        closing(execute(requests([SLOW], tmp_path, checkpoint_every=0), executor)) as events,
    ):
        for _ in events:
            if has_checkpoint(SLOW, tmp_path):
                break
    assert finished(SLOW, tmp_path) is None
    assert has_checkpoint(SLOW, tmp_path)


class Queued:
    """A job that waits in the queue of a cluster for ever."""

    def __init__(self, folder: Path) -> None:
        self.paths = submitit.core.utils.JobPaths(folder, "1")
        self.cancelled = False

    def done(self) -> bool:
        return False

    def cancel(self, check: bool) -> None:
        self.cancelled = True


def test_a_job_that_is_cancelled_in_the_queue_is_not_waited_for(tmp_path: Path) -> None:
    queued = Queued(tmp_path)
    job = SlurmJob(queued)
    assert job.result() is None
    job.stop()
    result = job.result()
    assert queued.cancelled
    assert result is not None
    assert (result.kind, result.reason) == ("died", "its job was cancelled before it started.")


def test_a_run_that_starts_over_does_so_once(tmp_path: Path) -> None:
    (request,) = requests([CONFIG], tmp_path)
    request = replace(request, fresh=True)
    attempt = Attempt()
    assert attempt.checkpoint(request).args == (request,), "it has not begun"
    attempt(request)
    assert attempt.checkpoint(request).args == (replace(request, fresh=False),)
    repetition = request.folder.with_name(f"{request.folder.name}.new")
    repetition.mkdir()
    (again,) = attempt.checkpoint(request).args
    assert again == replace(request, folder=repetition, fresh=False)


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands of SLURM that keep the script of a job, and never run it."""
    (tmp_path / "bin").mkdir()
    submit = f'#!/bin/sh\ncp "$1" "{tmp_path}/script"\necho Submitted batch job 7\n'
    texts = {"sbatch": submit, "srun": "", "sacct": "", "scancel": f"touch {tmp_path}/cancelled"}
    for name, text in texts.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return tmp_path / "script"


def test_the_options_reach_sbatch(sbatch: Path, tmp_path: Path) -> None:
    options = ExecutionOptions(
        on="slurm", threads=3, partition="long", time=90, slurm=("account=lab", "--exclusive")
    )
    options.check()
    executor = make_executor(options, "cuda", 32)
    assert (executor.device(), executor.slots()) == ("cuda", slurm.MOST_JOBS)
    job = executor.start(*requests([CONFIG], tmp_path / "runs"), alone=False)
    script = sbatch.read_text()
    for line in (
        "cpus-per-task=3", "gpus-per-node=1", "partition=long", "time=90", "account=lab",
        "exclusive", "signal=USR2@90", f"job-name={CONFIG.folder}",
    ):  # fmt: skip
        assert f"#SBATCH --{line}\n" in script
    assert job.result() is None
    job.stop()
    assert (tmp_path / "cancelled").exists()
    result = job.result()
    assert result is not None
    assert result.kind == "died"


def test_a_job_that_slurm_refuses_fails_its_run_alone(sbatch: Path, tmp_path: Path) -> None:
    refuse = "#!/bin/sh\necho 'sbatch: error: invalid partition specified: x' >&2\nexit 1\n"
    (tmp_path / "bin" / "sbatch").write_text(refuse)
    events = list(execute(requests([CONFIG], tmp_path / "runs"), Slurm(partition="x")))
    assert kinds(events) == ["started", "failed"]
    (failed,) = [event for event in events if event.kind == "failed"]
    assert failed.reason.startswith("SLURM refused its job: ")
    assert "invalid partition specified" in failed.reason


def test_a_folder_that_cannot_be_written_fails_the_run_alone(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with closing(Slurm(cluster="local")) as executor:
        (job,) = (executor.start(one) for one in requests([CONFIG], tmp_path / "runs"))
    result = job.result()
    assert result is not None
    assert result.reason.startswith("SLURM refused its job: ")
