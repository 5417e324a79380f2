"""Download and extract published archives.

torchvision's `download_url` has no timeout and falls back from https to http, and its
`extract_archive` (0.26) follows the links and paths of a tar archive out of the folder; hence this
file.
"""

import hashlib
import logging
import os
import shutil
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from onpro.errors import UserError
from onpro.files import expand_home

LOG = logging.getLogger(__name__)

TIMEOUT = 30.0
"""Seconds without a response after which a download fails."""


@dataclass(frozen=True)
class Archive:
    """A published archive with one folder in it."""

    name: str
    """Name of the data set."""
    url: str
    md5: str
    folder: str

    @property
    def file(self) -> str:
        """File name."""
        return self.url.rpartition("/")[2]


def data_folder(data_dir: Path | None) -> Path:
    """Return the folder for downloaded data: `data_dir`, else `ONPRO_DATA`, else the user's cache.

    A folder named by the user must exist, so that a typo does not start a download. The cache
    folder is created if missing.
    """
    if data_dir is not None:
        return _existing(Path(data_dir), "--data-dir")
    if os.environ.get("ONPRO_DATA"):
        return _existing(default_folder(), "ONPRO_DATA")
    cache = default_folder()
    if not cache.is_absolute():  # without a home folder
        raise UserError(
            f"the cache folder {cache} is not absolute; give another data folder with "
            "--data-dir DIR or ONPRO_DATA."
        )
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"the folder {cache} cannot be created ({error.strerror}); give another data folder"
            " with --data-dir DIR or ONPRO_DATA."
        ) from error
    return cache


def default_folder() -> Path:
    """Return `ONPRO_DATA`, else the user's cache folder, which may not exist yet."""
    named = os.environ.get("ONPRO_DATA")
    if named:
        return expand_home(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or expand_home("~/.cache")) / "onpro"


def _existing(folder: Path, given_by: str) -> Path:
    folder = expand_home(folder)
    if not folder.is_dir():
        problem = "is a file;" if folder.exists() else "does not exist; create it, or"
        raise UserError(f"the data folder {folder} {problem} correct {given_by}.")
    return folder


def fetch(archive: Archive, root: Path) -> None:
    """Put the folder of an archive into `root`.

    An archive that is in `root` already is used, else it is downloaded. It is opened only if its
    checksum is right. The folder appears once all its files are extracted; nothing else is left
    behind, however this ends.

    Args:
        archive: the archive.
        root: the folder for downloaded data.
    """
    path = root / archive.file
    local = path.is_file()
    try:
        if local and _md5(path) != archive.md5:
            raise UserError(
                f"the archive {path} is damaged (its checksum differs); remove or replace it."
            )
        with tempfile.TemporaryDirectory(dir=root, prefix=".download-") as scratch:
            if not local:
                path = Path(scratch) / archive.file
                _download(archive.url, path)
                if _md5(path) != archive.md5:
                    raise ConnectionError("the file received is not the published one")
            LOG.warning("extracting %s", archive.file)
            _extract(path, Path(scratch))
            _install(Path(scratch) / archive.folder, root / archive.folder)
    except (OSError, HTTPException, tarfile.TarError, zipfile.BadZipFile) as error:
        action = "extracted" if local else "downloaded"
        raise UserError(
            f"{archive.name} is not in {root} and cannot be {action} there ({_reason(error)}); put"
            f" the folder {archive.folder} there, or the archive {archive.file} from {archive.url},"
            " or give another folder with --data-dir DIR or ONPRO_DATA."
        ) from error


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _download(url: str, path: Path) -> None:
    """Download a file, with a progress bar on standard error."""
    from rich.console import Console
    from rich.progress import wrap_file

    LOG.warning("downloading %s", url)
    request = Request(url, headers={"User-Agent": "onpro"})
    with urlopen(request, timeout=TIMEOUT) as response, path.open("wb") as file:
        total = int(response.headers.get("Content-Length", 0))
        console = Console(stderr=True)
        with wrap_file(response, total, description=path.name, console=console) as body:
            shutil.copyfileobj(body, file)


def _extract(archive: Path, folder: Path) -> None:
    """Extract the files of a zip or tar archive; write no links and nothing outside the folder."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(folder)  # drops "..", writes links as regular files
        return
    root = folder.resolve()
    with tarfile.open(archive) as tar:
        for member in tar:
            target = (root / member.name).resolve()
            if member.isreg() and target.is_relative_to(root):
                target.parent.mkdir(parents=True, exist_ok=True)
                content = tar.extractfile(member)
                assert content is not None  # a regular file has content
                with content, target.open("wb") as file:
                    shutil.copyfileobj(content, file)


def _install(source: Path, target: Path) -> None:
    """Move an extracted folder to its place; replace the files of one that is there already."""
    try:
        source.rename(target)
    except OSError:  # it lacks files, or another process was faster
        if not target.is_dir():
            raise
        for path in source.iterdir():
            if path.is_file():
                path.replace(target / path.name)


def _reason(error: Exception) -> str:
    """Return the cause of an error without what urllib wraps around it."""
    cause = error.reason if type(error) is URLError else error
    return getattr(cause, "strerror", None) or str(cause)
