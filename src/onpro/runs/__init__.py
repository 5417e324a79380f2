"""One run on disk: its configuration, folder, result and logs."""

from onpro.runs.config import RunConfig
from onpro.runs.config_file import read_config
from onpro.runs.files import require_writable
from onpro.runs.reading import Finished, finished, finished_in, read_runs
from onpro.runs.runner import (
    Interrupted,
    SharedImages,
    load_images,
    make_stream,
    prepare,
    run,
    run_in,
    running,
)
from onpro.runs.side_by_side import room_for_runs, train_side_by_side

__all__ = [
    "Finished",
    "Interrupted",
    "RunConfig",
    "SharedImages",
    "finished",
    "finished_in",
    "load_images",
    "make_stream",
    "prepare",
    "read_config",
    "read_runs",
    "require_writable",
    "room_for_runs",
    "run",
    "run_in",
    "running",
    "train_side_by_side",
]
