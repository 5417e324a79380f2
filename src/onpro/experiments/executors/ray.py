"""Runs on a Ray cluster."""

import os
import socket
import warnings
from dataclasses import replace
from importlib import import_module
from typing import Any, Literal

from onpro.data.workers import cores
from onpro.errors import UserError
from onpro.experiments.executors.base import Job, JobResult, RunRequest
from onpro.experiments.executors.worker import work
from onpro.training.device import DeviceName

QUIET = {
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # else workers install an environment of their own
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else Ray warns of a change to come
}

ANSWER_WITHIN = 10.0
"""Seconds to wait for a cluster."""


class Ray:
    """A Ray cluster, or one of this machine alone that ends with the command.

    Args:
        address: Address of the cluster; None starts one.
        cpus: Cores of a run.
        at_once: Number of runs that share a GPU.
        workers: Most runs at once; None is as many as fit.
        device: Where to compute; "auto" is on GPUs if a machine of the cluster has any.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        cpus: int = 1,
        at_once: int = 1,
        workers: int | None = None,
        device: DeviceName = "auto",
    ) -> None:
        self._ray = _import()
        _connect(self._ray, address)
        on_gpu = device != "cpu" and (device == "cuda" or any(n.get("GPU") for n in self._nodes()))
        self._cpus = cpus
        self._at_once = at_once if on_gpu else 0
        self._workers = workers
        gpus = 1 / at_once if on_gpu else 0
        if not self.slots():
            self.close()
            raise UserError(
                f"a run takes {cpus} cores and {gpus:g} GPUs, which no machine of the Ray cluster "
                "has: give --threads, --at-once or --device another value."
            )
        # On GPUs Ray starts a process for each task. Retries are ours.
        self._work = self._ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(_work)

    def device(self) -> Literal["cpu", "cuda"]:
        """Return "cuda" if runs take a share of a GPU."""
        return "cuda" if self._at_once else "cpu"

    def slots(self) -> int:
        """Return how many runs fit into the machines of the cluster."""
        fitting = sum(map(self._fitting, self._nodes()))
        return fitting if self._workers is None else min(fitting, self._workers)

    def _nodes(self) -> list[dict[str, float]]:
        """Return the resources of each machine of the cluster."""
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def _fitting(self, there: dict[str, float]) -> int:
        fitting = int(there.get("CPU", 0) // self._cpus)
        return min(fitting, int(there.get("GPU", 0)) * self._at_once) if self._at_once else fitting

    def start(self, request: RunRequest, *, alone: bool = True) -> Job:
        """Submit a run, which is always alone in its process."""
        request = replace(
            request, folder=request.folder.absolute(), threads=request.threads or self._cpus
        )
        return RayJob(self._ray, self._work.remote(request))

    def close(self) -> None:
        """Disconnect; a cluster that was started here ends."""
        self._ray.shutdown()


class RayJob:
    """A task of the cluster."""

    def __init__(self, ray: Any, task: Any) -> None:
        self._ray = ray
        self._task = task
        self._result: JobResult | None = None

    def result(self) -> JobResult | None:
        """Return what the task returned, or how it was lost; None while it runs."""
        if self._result is None and self._ray.wait([self._task], timeout=0)[0]:
            self._result = self._get()
        return self._result

    def _get(self) -> JobResult:
        errors = self._ray.exceptions
        try:
            result: JobResult = self._ray.get(self._task)
        except errors.RayTaskError as error:
            return JobResult("failed", f"{error.cause!r}.")
        except errors.RayError as error:
            return JobResult("died", f"its worker was lost ({type(error).__name__}).")
        return result

    def stop(self) -> None:
        """Interrupt it, as Ctrl-C does."""
        self._ray.cancel(self._task, force=False)

    def kill(self) -> None:
        """End its process."""
        self._ray.cancel(self._task, force=True)


def _work(request: RunRequest) -> JobResult:
    return work(request)


def _import() -> Any:
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        return import_module("ray")
    except ImportError:
        raise UserError(
            "Ray is not installed: pip install 'onpro[ray]', or leave --on ray out."
        ) from None


def _connect(ray: Any, address: str | None) -> None:
    here = {"num_cpus": cores(), "include_dashboard": False} if address is None else {}
    try:
        _require_answer(address or "local")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(address=address or "local", log_to_driver=False, logging_level="error", **here)
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        if address is None:
            raise UserError(f"no Ray cluster can be started here: {reason}.") from error
        raise UserError(
            f"no Ray cluster answers at {address} ({reason}): check --ray-address, or leave it out "
            "to start a cluster here."
        ) from error


def _require_answer(address: str) -> None:
    """Raise OSError if nobody listens there; Ray itself retries for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port.isdecimal():  # neither `auto` nor `local`
        socket.create_connection((host, int(port)), timeout=ANSWER_WITHIN).close()
