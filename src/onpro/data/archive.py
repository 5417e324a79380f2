"""Single files out of an archive, whatever else it holds and claims."""

import lzma
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path


class BadArchive(Exception):  # noqa: N818 # its message is half a sentence of an error
    """An archive does not hold what it should."""


def take_out(archive: Path, members: Iterable[str], folder: Path, *, most: int) -> None:
    """Write some files of a tar archive into a folder, each under the last part of its name.

    Nothing else is written: where the archive wants its files to go, and what it holds besides,
    is of no account, so that no path can lead out of the folder.

    Args:
        archive: the file, compressed or not.
        members: names of plain files in it; a link or a folder of that name is refused.
        folder: where they go; it exists.
        most: bytes that one of them may have, by what the archive says, before it is unpacked.

    Raises:
        BadArchive: if a file is missing, is no plain file, is too large, or cannot be read.
    """
    for name, content in _contents(archive, members, most):
        (folder / Path(name).name).write_bytes(content)


def _contents(archive: Path, names: Iterable[str], most: int) -> Iterator[tuple[str, bytes]]:
    try:
        with tarfile.open(archive) as tar:
            found = [_member(tar, name, most) for name in names]
            for member in sorted(found, key=lambda member: member.offset):  # without going back
                content = tar.extractfile(member)
                assert content is not None  # a plain file has a content
                yield member.name, content.read()
    except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError) as error:
        raise BadArchive(f"it cannot be unpacked ({error})") from error


def _member(tar: tarfile.TarFile, name: str, most: int) -> tarfile.TarInfo:
    try:
        member = tar.getmember(name)
    except KeyError:
        raise BadArchive(f"it has no file {name}") from None
    if not member.isreg():
        raise BadArchive(f"{name} in it is no plain file")
    if member.size > most:
        raise BadArchive(f"{name} in it would be {member.size:,} bytes large")
    return member
