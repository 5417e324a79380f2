"""Runs on the machines of a Ray cluster."""

import os
import socket
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from onpro.errors import UserError
from onpro.experiments.executors.execute import Job
from onpro.experiments.executors.local import cores
from onpro.experiments.executors.worker import Outcome, work
from onpro.runs.config import RunConfig
from onpro.training.device import DeviceName

QUIET = {
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # else workers install an environment of their own
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else Ray warns of a change to come
}

ANSWER_WITHIN = 10.0
"""Seconds until a cluster that does not answer is given up."""


class Ray:
    """A cluster that is there already, or one of this machine alone that ends with the command.

    Args:
        address: of the cluster; None starts one here.
        cpus: cores that a run takes, which is also its number of threads.
        gpus: share of a GPU that a run takes, at most 1, where runs compute on GPUs.
        workers: how many runs at once at most; default: as many as fit.
        device: on what runs compute; auto: on GPUs, if a machine of the cluster has any.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        cpus: int = 1,
        gpus: float = 1.0,
        workers: int | None = None,
        device: DeviceName = "auto",
    ) -> None:
        self._ray = _import()
        _connect(self._ray, address)
        if device == "cpu" or (device == "auto" and not any(n.get("GPU") for n in self._nodes())):
            gpus = 0.0
        self._needs = {"CPU": float(cpus), "GPU": gpus}
        self._workers = workers
        if not self.slots():
            self.close()
            raise UserError(
                f"a run takes {cpus} cores and {gpus:g} GPUs, which no machine of the Ray cluster "
                "has: give --cpus-per-run, --gpus-per-run or --device another value."
            )
        # On GPUs Ray gives each task a process of its own. Trying again is not left to it.
        remote = self._ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)
        self._work = remote(_work)
        self._threads = cpus

    def device(self) -> Literal["cpu", "cuda"]:
        """On GPUs, if runs take a share of one."""
        return "cuda" if self._needs["GPU"] else "cpu"

    def slots(self) -> int:
        """How many runs fit into the machines that are there now; none is spread over two."""
        fitting = sum(map(self._fitting, self._nodes()))
        return fitting if self._workers is None else min(fitting, self._workers)

    def _nodes(self) -> list[dict[str, float]]:
        """What each machine of the cluster has."""
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def _fitting(self, there: dict[str, float]) -> int:
        """How many runs fit into a machine; a share of a GPU lies on one GPU."""
        cpus, gpus = self._needs["CPU"], self._needs["GPU"]
        fitting = int(there.get("CPU", 0) // cpus)
        return min(fitting, int(there.get("GPU", 0)) * int(1 / gpus)) if gpus else fitting

    def start(self, config: RunConfig, out: Path, *, alone: bool = True) -> Job:
        """Hand a run to the cluster, where each is alone in its process."""
        return RayJob(self._ray, self._work.remote(config, out.absolute(), self._threads))

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        self._ray.shutdown()


class RayJob:
    """A task of the cluster."""

    def __init__(self, ray: Any, task: Any) -> None:
        self._ray = ray
        self._task = task
        self._outcome: Outcome | None = None

    def outcome(self) -> Outcome | None:
        """What the task has returned, or how it was lost."""
        if self._outcome is None and self._ray.wait([self._task], timeout=0)[0]:
            self._outcome = self._get()
        return self._outcome

    def _get(self) -> Outcome:
        errors = self._ray.exceptions
        try:
            outcome: Outcome = self._ray.get(self._task)
        except errors.RayTaskError as error:
            return Outcome("failed", f"{error.cause!r}.")
        except errors.RayError as error:
            return Outcome("died", f"its worker was lost ({type(error).__name__}).")
        return outcome

    def stop(self) -> None:
        """Interrupt it, as Ctrl-C does."""
        self._ray.cancel(self._task, force=False)

    def kill(self) -> None:
        """End its process."""
        self._ray.cancel(self._task, force=True)


def _work(config: RunConfig, out: Path, threads: int) -> Outcome:
    return work(config, out, threads=threads)


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
    """Find out whether anybody listens there; Ray itself would ask for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port.isdecimal():  # neither `auto` nor `local`
        socket.create_connection((host, int(port)), timeout=ANSWER_WITHIN).close()
