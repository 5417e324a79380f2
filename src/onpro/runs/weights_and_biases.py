"""Log of a run for Weights & Biases."""

import logging
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from onpro.errors import UserError
from onpro.runs.config import RunConfig
from onpro.runs.events import scalars_of_evaluation, scalars_of_step
from onpro.runs.folder import WANDB_ID, final_folder, repetition_of
from onpro.runs.result import describe
from onpro.runs.runner import Running
from onpro.training import EvaluationEvent, StepEvent

LOG = logging.getLogger(__name__)

PATIENCE = 30.0
"""Timeout in seconds for starting a W&B run, and for uploading the rest at its end."""


class WandbLog:
    """Log of a run for W&B, whose failures never affect the run.

    The W&B run is started at the first event, when the run has a folder. W&B never prompts for a
    login: without one, or if the server does not answer, it logs offline for `wandb sync`. Any
    other error is reported once and ends the log.

    Args:
        folder: Folder of the run.
        config: Configuration of the run.
    """

    def __init__(self, folder: Path, config: RunConfig) -> None:
        self._wandb = _import()
        self._folder = folder.resolve()
        self._config = config
        self._run: Any = None
        self._given_up = False

    def on_step(self, step: StepEvent) -> None:
        """Log the terms of the loss."""
        self._log(scalars_of_step(step), step.step)

    def on_evaluation(self, evaluated: EvaluationEvent) -> None:
        """Log the accuracy on each task."""
        self._log(scalars_of_evaluation(evaluated), evaluated.step)

    def during(self, running: Running) -> Running:
        """Wrap a run so that the W&B run ends with it."""
        succeeded = False
        try:
            finished = yield from running
            succeeded = True
        finally:
            if self._run is not None:
                with self._undisturbed():
                    self._run.finish(exit_code=0 if succeeded else 1)
        return finished

    def _log(self, values: dict[str, float], step: int) -> None:
        if self._given_up:
            return
        with self._undisturbed():
            if self._run is None:
                self._run = self._begin()
            if step >= self._run.step:  # else W&B has it already: the run has resumed from before
                self._run.log(values, step=step)

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._given_up = True
            reason = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
            LOG.warning("logging %s to Weights & Biases stopped (%s).", self._folder.name, reason)

    def _begin(self) -> Any:
        self._wandb.setup(self._wandb.Settings(silent=True))
        mode = os.environ.get("WANDB_MODE") or "online"
        if mode == "online" and not self._wandb.login(prompt=False, verify=False):
            mode = "offline"
        kept = _place(self._folder) / WANDB_ID
        if not kept.exists():
            kept.write_text(_new_id())
        try:
            run = self._init(kept.read_text(), mode)
        except self._wandb.Error:
            if mode != "online":
                raise
            kept.write_text(_new_id())  # W&B may still be starting a run with the other id
            run = self._init(kept.read_text(), "offline")
        if run.offline:
            folder = Path(run.dir).parent
            LOG.warning("logging offline for Weights & Biases: upload with wandb sync %s", folder)
        elif run.url:
            LOG.warning("logging to Weights & Biases at %s", run.url)
        return run

    def _init(self, name: str, mode: str) -> Any:
        settings = self._wandb.Settings(
            console="off", silent=True, init_timeout=PATIENCE, finish_timeout=PATIENCE
        )
        return self._wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "onpro",
            name=self._config.folder,
            id=name,
            resume="allow",
            mode=mode,
            config=describe(self._config),
            reinit="create_new",  # runs of several seeds may share the process
            settings=settings,
        )


def going_on(folder: Path, config: RunConfig) -> WandbLog | None:
    """Return the log of a resumed run that has one; None if it has none or W&B is missing."""
    if not (folder / WANDB_ID).exists():
        return None
    try:
        return WandbLog(folder, config)
    except UserError:
        LOG.warning("%s resumes without Weights & Biases, which is not installed.", folder)
        return None


def _place(folder: Path) -> Path:
    """Return the folder of a run in progress, which differs if it repeats a finished run."""
    first = final_folder(folder)
    repetition = repetition_of(first)
    return repetition if repetition.is_dir() else first


def _new_id() -> str:
    return uuid.uuid4().hex[:12]


def _import() -> Any:
    try:
        return import_module("wandb")
    except ImportError:
        raise UserError(
            "Weights & Biases is not installed: pip install 'onpro[wandb]', or leave --wandb out."
        ) from None
