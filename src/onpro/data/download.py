"""Archives of published data sets, the user's or the network's, checked before they are opened."""

import hashlib
import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from onpro.data.archive import BadArchive
from onpro.data.progress import saying
from onpro.errors import UserError

LOG = logging.getLogger(__name__)

TIMEOUT = 30.0
"""Seconds without an answer until a download is given up."""

AT_A_TIME = 2**20
"""Bytes."""


@dataclass(frozen=True)
class Archive:
    """A file that somebody has published."""

    file: str
    size: int
    """In bytes."""
    md5: str
    url: str


@contextmanager
def fetched(
    archive: Archive, root: Path, *, name: str, contents: str
) -> Iterator[tuple[Path, Path]]:
    """A published archive, and an empty folder below `root` to take its files out into.

    An archive the user has put into `root` is taken instead of the network's. None is handed over
    before its size and checksum have been compared. The folder, and what has been downloaded, goes
    away however that ends: what is to stay has to be moved.

    Args:
        archive: what has been published.
        root: the folder for downloaded data.
        name: of the data set, for sentences.
        contents: what may lie in `root` instead of the archive, for sentences.
    """
    path = root / archive.file
    given = path.is_file()
    try:
        difference = _difference(path, archive) if given else ""
        if difference:
            raise UserError(
                f"the archive {path} is damaged ({difference}); remove it or replace it."
            )
        with tempfile.TemporaryDirectory(dir=root, prefix=".download-") as scratch:
            if not given:
                path = Path(scratch) / archive.file
                _download(archive, path)
            yield path, Path(scratch)
    except BadArchive as error:
        raise UserError(
            f"the archive {archive.file} is not {name}'s: {error}; remove or replace it."
        ) from error
    except (OSError, HTTPException) as error:
        done = "extracted" if given else "downloaded"
        raise UserError(
            f"{name} is not in {root} and cannot be {done} there ({_why(error)}); put {contents}"
            f" there, or the archive {archive.file} from {archive.url}, or give another folder with"
            " --data-dir DIR or ONPRO_DATA."
        ) from error


def _why(error: Exception) -> str:
    """What went wrong, without what Python puts around it."""
    cause = error.reason if type(error) is URLError else error
    return getattr(cause, "strerror", None) or str(cause)


def _difference(path: Path, archive: Archive) -> str:
    """What tells a file from the published one; nothing where it is the same."""
    size = path.stat().st_size
    if size != archive.size:
        return f"it has {size:,} bytes, not {archive.size:,}"
    with path.open("rb") as file:
        checksum = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
    return "" if checksum.hexdigest() == archive.md5 else "its checksum differs"


def _download(archive: Archive, place: Path) -> None:
    """Write the file; one of another size or checksum is no better than none."""
    LOG.warning("downloading %s (%d MB)", archive.url, archive.size // 10**6)
    say = saying(f"downloading {archive.file}", archive.size)
    checksum, done = hashlib.md5(usedforsecurity=False), 0
    request = Request(archive.url, headers={"User-Agent": "onpro"})
    with urlopen(request, timeout=TIMEOUT) as answer, place.open("wb") as file:
        while part := answer.read(min(AT_A_TIME, archive.size + 1 - done)):
            file.write(part)
            checksum.update(part)
            done += len(part)
            say(done)
    if done != archive.size or checksum.hexdigest() != archive.md5:
        raise ConnectionError("what arrived is not the file that was published")
