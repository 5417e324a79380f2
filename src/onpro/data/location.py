"""Where downloaded data lie."""

import os
from pathlib import Path

from onpro.errors import UserError


def data_folder(data_dir: Path | None) -> Path:
    """The folder for downloaded data: the one given, else `ONPRO_DATA`, else the user's cache.

    A folder the user named has to exist, so that a slip of the pen starts no download; the cache
    folder is made where it is missing.
    """
    if data_dir is not None:
        return _existing(data_dir, "--data-dir")
    named = os.environ.get("ONPRO_DATA")
    if named:
        return _existing(Path(named), "ONPRO_DATA")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "onpro"
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"the folder {cache} cannot be made ({error.strerror}); give another one for data"
            " with --data-dir DIR or ONPRO_DATA."
        ) from error
    return cache


def _existing(folder: Path, given_by: str) -> Path:
    folder = folder.expanduser()
    if not folder.is_dir():
        fault = "is a file;" if folder.exists() else "does not exist; make it, or"
        raise UserError(f"the data folder {folder} {fault} correct {given_by}.")
    return folder
