"""Single files out of an archive, whatever else it holds and claims."""

import lzma
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

BROKEN_TAR = (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError)
BROKEN_ZIP = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    RuntimeError,  # for what is encrypted, or newer than Python
    ValueError,  # for offsets before the start, and names that are no text
)


class BadArchive(Exception):  # noqa: N818 # its message is half a sentence of an error
    """An archive does not hold what it should."""


def take_out(archive: Path, members: Mapping[str, Path], *, most: int) -> None:
    """Write some files of an archive, each to the place said for it.

    Nothing else is written: where the archive wants its files to go, and what it holds besides,
    is of no account, so that no path can lead to another place.

    Args:
        archive: a file whose name ends in .zip, else a tar archive, compressed or not.
        members: by names of plain files in it, where they go, in folders that exist; a link or a
            folder of such a name is refused.
        most: bytes that they may have together, by what the archive says, before it is unpacked.

    Raises:
        BadArchive: if a file is missing, is no plain file, or cannot be read, or if they are too
            large.
    """
    contents = _from_zip if archive.suffix == ".zip" else _from_tar
    for name, content in contents(archive, members, most):
        members[name].write_bytes(content)


def _from_tar(archive: Path, names: Mapping[str, Path], most: int) -> Iterator[tuple[str, bytes]]:
    try:
        with tarfile.open(archive) as tar:
            found = [_tar_member(tar, name) for name in names]
            _require_small({member.name: member.size for member in found}, most)
            for member in sorted(found, key=lambda member: member.offset):  # without going back
                content = tar.extractfile(member)
                assert content is not None  # a plain file has a content
                yield member.name, content.read()
    except BROKEN_TAR as error:
        raise BadArchive(f"it cannot be unpacked ({error})") from error


def _tar_member(tar: tarfile.TarFile, name: str) -> tarfile.TarInfo:
    try:
        member = tar.getmember(name)
    except KeyError:
        raise BadArchive(f"it has no file {name}") from None
    if not member.isreg():
        raise BadArchive(f"{name} in it is no plain file")
    return member


def _from_zip(archive: Path, names: Mapping[str, Path], most: int) -> Iterator[tuple[str, bytes]]:
    try:
        with zipfile.ZipFile(archive) as packed:
            found = [_zip_member(packed, name) for name in names]
            _require_small({member.filename: member.file_size for member in found}, most)
            for member in sorted(found, key=lambda member: member.header_offset):
                with packed.open(member) as content:
                    # The size said, for without one all is unpacked however large it gets.
                    yield member.filename, content.read(member.file_size)
    except BROKEN_ZIP as error:
        raise BadArchive(f"it cannot be unpacked ({error})") from error


def _zip_member(packed: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    try:
        member = packed.getinfo(name)
    except KeyError:
        raise BadArchive(f"it has no file {name}") from None
    kind = stat.S_IFMT(member.external_attr >> 16)  # 0 where the packer's system has no kinds
    if member.is_dir() or kind not in (0, stat.S_IFREG):
        raise BadArchive(f"{name} in it is no plain file")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise BadArchive(f"{name} in it is packed in an unusual way")  # and unpacks without limit
    return member


def _require_small(sizes: Mapping[str, int], most: int) -> None:
    if sum(sizes.values()) > most:
        largest = max(sizes, key=lambda name: sizes[name])
        raise BadArchive(
            f"its files would be {sum(sizes.values()):,} bytes large,"
            f" {sizes[largest]:,} of them {largest}"
        )
