"""Runs as jobs of a SLURM cluster, by submitit."""

import logging
import shutil
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from onpro.errors import UserError
from onpro.experiments.executors.base import Job, JobResult, RunRequest
from onpro.experiments.executors.worker import work

CLUSTER = "slurm"
"""Default cluster, as submitit calls it; "local" has processes of this machine, for tests."""

MOST_JOBS = 100
"""Default number of jobs at a time, running or queued."""

MINUTES = 240
"""Default time limit of a job."""

MOST_TIMEOUTS = 10_000
"""How often a job may reach its time limit and be queued again; each time its run gets on."""

LOOK_EVERY = 1.0
"""Seconds between two looks at a job, which ask the shared file system."""

RESULT_WITHIN = 15.0
"""Seconds until the result of a job that has ended is visible on a shared file system."""

FOLDER = ".slurm"
"""Folder beside the run folders for scripts and logs of jobs, until their runs are finished."""


class Slurm:
    """Jobs of a SLURM cluster, one for each run.

    Args:
        cpus: Cores of a run.
        gpu: Whether a run takes a GPU.
        workers: Most jobs at a time; None is `MOST_JOBS`.
        partition: Partition of the cluster.
        minutes: Time limit of a job; None is `MINUTES`.
        parameters: Other parameters of sbatch.
        cluster: The cluster; None is `CLUSTER`.
    """

    def __init__(
        self,
        *,
        cpus: int = 1,
        gpu: bool = False,
        workers: int | None = None,
        partition: str | None = None,
        minutes: int | None = None,
        parameters: Mapping[str, str | bool] | None = None,
        cluster: str | None = None,
    ) -> None:
        self._submitit = _import()
        cluster = cluster or CLUSTER
        if cluster == "slurm" and not (shutil.which("sbatch") and shutil.which("srun")):
            raise UserError(
                "there is no SLURM here (sbatch and srun are not found): start the command on a "
                "machine of the cluster, or leave --on slurm out."
            )
        self._cluster = cluster
        self._workers = workers or MOST_JOBS
        self._cpus, self._gpu = cpus, gpu
        self._parameters: dict[str, Any] = {
            "cpus_per_task": cpus,
            "timeout_min": minutes or MINUTES,
            "slurm_additional_parameters": dict(parameters or {}),
        }
        if gpu:
            self._parameters["gpus_per_node"] = 1
        if partition is not None:
            self._parameters["slurm_partition"] = partition
        self._folders: set[Path] = set()

    def device(self) -> Literal["cpu", "cuda"]:
        """Return "cuda" if a run takes a GPU."""
        return "cuda" if self._gpu else "cpu"

    def slots(self) -> int:
        """Return how many jobs may run or be queued."""
        return self._workers

    def start(self, request: RunRequest, *, alone: bool = True) -> Job:
        """Submit a run, which is always alone in its job."""
        folder = request.folder.absolute()
        request = replace(request, folder=folder, threads=request.threads or self._cpus)
        logs = folder.parent / FOLDER
        self._folders.add(logs)
        try:
            executor = self._submitit.AutoExecutor(
                logs / "%j", cluster=self._cluster, slurm_max_num_timeout=MOST_TIMEOUTS
            )
            executor.update_parameters(name=folder.name, **self._parameters)
            return SlurmJob(executor.submit(Attempt(), request))
        except (RuntimeError, OSError, self._submitit.core.utils.FailedJobError) as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            return SlurmJob(None, JobResult("failed", f"SLURM refused its job: {lines[-1]}"))

    def close(self) -> None:
        """Remove what submitit leaves of finished jobs."""
        for folder in filter(Path.is_dir, self._folders):
            for path in folder.iterdir():
                if path.is_symlink() and not path.exists():
                    path.unlink()
            for empty in (folder / "%j", folder):
                with suppress(OSError):
                    empty.rmdir()


class Attempt:
    """What a job does; submitit calls `checkpoint` before it queues the job again."""

    def __init__(self) -> None:
        self._begun = False

    def __call__(self, request: RunRequest) -> JobResult:
        """Train a run.

        The signal before a preemption or the time limit makes it save a checkpoint. Then submitit
        handles the signal and queues the job again.
        """
        self._begun = True
        return work(request, handled_again=[signal.SIGUSR1, signal.SIGUSR2])

    def checkpoint(self, request: RunRequest) -> Any:
        """Return what the job does next time: resume the run."""
        if self._begun:
            request = replace(request, folder=request.current_folder, fresh=False)
        return import_module("submitit").helpers.DelayedSubmission(Attempt(), request)


class SlurmJob:
    """A job of the cluster."""

    def __init__(self, job: Any, result: JobResult | None = None) -> None:
        self._job = job
        self._result = result
        self._next_look = 0.0
        self._ended: float | None = None
        self._cancelled = False

    def result(self) -> JobResult | None:
        """Return what the job returned, or how it was lost; None while it runs or is queued."""
        now = time.monotonic()
        if self._result is None and now >= self._next_look:
            self._next_look = now + LOOK_EVERY
            self._result = self._look(now)
            if self._result and self._result.kind == "finished":
                shutil.rmtree(self._job.paths.folder, ignore_errors=True)
        return self._result

    def _look(self, now: float) -> JobResult | None:
        paths = self._job.paths
        if not paths.result_pickle.exists():
            if self._cancelled and not paths.stdout.exists():
                return JobResult("died", "its job was cancelled before it started.")
            if not self._job.done():
                return None
            self._ended = self._ended or now
            if now < self._ended + RESULT_WITHIN:
                return None
            state = str(self._job.state).lower()
            return JobResult("died", f"its job {self._job.job_id} is lost ({state}).")
        error = self._job.exception()
        if error is None:
            result: JobResult = self._job.result()
            return result
        log = paths.stderr
        trace = [line for line in str(error).splitlines() if line and not line.startswith("-")]
        said = next((line for line in reversed(trace) if "Error" in line), type(error).__name__)
        return JobResult("defect", f"{said.strip()}; see {log}.")

    def stop(self) -> None:
        """Cancel it: SLURM asks it to end, and it saves a checkpoint."""
        self._cancelled = True
        self._next_look = 0.0
        self.kill()

    def kill(self) -> None:
        """Cancel it; SLURM kills what does not end."""
        if self._job:
            self._job.cancel(check=False)


def _import() -> Any:
    try:
        submitit = import_module("submitit")
    except ImportError:
        raise UserError(
            "submitit is not installed: pip install 'onpro[slurm]', or leave --on slurm out."
        ) from None
    logging.getLogger("submitit").setLevel(logging.ERROR)  # else it prints to standard output
    return submitit
