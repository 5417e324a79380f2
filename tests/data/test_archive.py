"""Files come out of an archive to the places said for them, or not at all."""

import io
import stat
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from onpro.data.archive import BadArchive, take_out

CONTENT = b"pixels" * 1000


def plain(name: str, content: bytes = CONTENT) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    return member, content


def special(name: str, kind: bytes, to: str = "") -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, to
    return member, b""


def archive_of(
    folder: Path, *members: tuple[tarfile.TarInfo, bytes], compression: str = "gz"
) -> Path:
    path = folder / "archive"
    mode: Any = f"w:{compression}"
    with tarfile.open(path, mode) as tar:
        for member, content in members:
            tar.addfile(member, io.BytesIO(content))
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "target"
    folder.mkdir()
    return folder


def take(archive: Path, target: Path, *names: str, most: int = 10**6) -> None:
    take_out(archive, {name: target / Path(name).name for name in names}, most=most)


def everything_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("compression", ["", "gz", "xz"])
def test_what_is_asked_for_comes_out_and_nothing_else(
    tmp_path: Path, target: Path, compression: str
) -> None:
    files = plain("data/one"), plain("data/two", b""), plain("data/three")
    archive = archive_of(tmp_path, *files, compression=compression)
    take(archive, target, "data/one", "data/two")
    assert (target / "one").read_bytes() == CONTENT
    assert everything_below(tmp_path) == {"archive", "target", "target/one", "target/two"}


@pytest.mark.parametrize("name", ["../escaped", "/escaped", "data/../../escaped"])
def test_no_path_leads_out_of_the_folder(tmp_path: Path, target: Path, name: str) -> None:
    name = str(tmp_path) + name if name.startswith("/") else name
    archive = archive_of(tmp_path, plain(name), plain("data/one"))
    take(archive, target, "data/one", name)
    assert everything_below(tmp_path) == {"archive", "target", "target/one", "target/escaped"}


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE],
)
def test_what_is_no_plain_file_is_refused(tmp_path: Path, target: Path, kind: bytes) -> None:
    secret = tmp_path / "secret"
    secret.write_text("not for the archive")
    archive = archive_of(tmp_path, special("data/one", kind, to=str(secret)))
    with pytest.raises(BadArchive, match="data/one in it is no plain file"):
        take(archive, target, "data/one")
    assert not list(target.iterdir())


def test_a_link_to_a_folder_outside_carries_nothing_there(tmp_path: Path, target: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    link = special("data", tarfile.SYMTYPE, to=str(outside))
    take(archive_of(tmp_path, link, plain("data/one")), target, "data/one")
    assert not list(outside.iterdir())
    assert (target / "one").read_bytes() == CONTENT


def test_a_file_that_claims_to_be_huge_is_refused_before_it_is_unpacked(
    tmp_path: Path, target: Path
) -> None:
    with pytest.raises(BadArchive, match="would be 6,000 bytes large"):
        take(archive_of(tmp_path, plain("data/one")), target, "data/one", most=5_999)
    member, _ = plain("data/one")
    member.size = 10**15
    (tmp_path / "archive").write_bytes(member.tobuf() + CONTENT)
    with pytest.raises(BadArchive):
        take(tmp_path / "archive", target, "data/one")
    assert not list(target.iterdir())


def test_a_missing_file_is_named(tmp_path: Path, target: Path) -> None:
    with pytest.raises(BadArchive, match="has no file data/two"):
        take(archive_of(tmp_path, plain("data/one")), target, "data/two")


@pytest.mark.parametrize("compression", ["", "gz", "xz"])
def test_an_archive_cut_off_anywhere_is_refused(
    tmp_path: Path, target: Path, compression: str
) -> None:
    whole = archive_of(
        tmp_path, plain("data/one"), plain("data/two"), compression=compression
    ).read_bytes()
    for share in range(8):
        (tmp_path / "archive").write_bytes(whole[: share * len(whole) // 12])
        with pytest.raises(BadArchive, match=r"cannot be unpacked|has no file"):
            take(tmp_path / "archive", target, "data/two")
        (target / "two").unlink(missing_ok=True)


def test_a_full_disk_is_not_the_archive_s_fault(tmp_path: Path, target: Path) -> None:
    archive = archive_of(tmp_path, plain("data/one"))
    with pytest.raises(FileNotFoundError):
        take(archive, target / "missing", "data/one")


def zip_of(folder: Path, *members: tuple[str, bytes], packing: int = zipfile.ZIP_DEFLATED) -> Path:
    path = folder / "archive.zip"
    with zipfile.ZipFile(path, "w", packing) as packed:
        for name, content in members:
            packed.writestr(name, content)
    return path


def zip_of_kind(folder: Path, kind: int, content: bytes) -> Path:
    """An archive of one entry `data/one` that is no plain file."""
    path = folder / "archive.zip"
    member = zipfile.ZipInfo("data/one")
    member.create_system, member.external_attr = 3, (kind | 0o644) << 16
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr(member, content)
    return path


def test_what_is_asked_for_comes_out_of_a_zip_and_nothing_else(
    tmp_path: Path, target: Path
) -> None:
    names = ("data/one", CONTENT), ("data/two", b""), ("data/three", CONTENT), ("../escaped", b"x")
    archive = zip_of(tmp_path, *names)
    take(archive, target, "data/two", "data/one", "../escaped")
    assert (target / "one").read_bytes() == CONTENT
    found = {"archive.zip", "target", "target/one", "target/two", "target/escaped"}
    assert everything_below(tmp_path) == found


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFDIR, stat.S_IFIFO, stat.S_IFCHR])
def test_what_is_no_plain_file_in_a_zip_is_refused(tmp_path: Path, target: Path, kind: int) -> None:
    with pytest.raises(BadArchive, match="data/one in it is no plain file"):
        take(zip_of_kind(tmp_path, kind, b"/etc/passwd"), target, "data/one")
    assert not list(target.iterdir())


@pytest.mark.parametrize("packing", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_packed_so_that_it_unpacks_without_limit_is_refused(
    tmp_path: Path, target: Path, packing: int
) -> None:
    with pytest.raises(BadArchive, match="unusual way"):
        take(zip_of(tmp_path, ("data/one", CONTENT), packing=packing), target, "data/one")


def test_files_of_a_zip_that_are_large_together_are_refused(tmp_path: Path, target: Path) -> None:
    archive = zip_of(tmp_path, ("data/one", CONTENT), ("data/two", CONTENT))
    take(archive, target, "data/one", "data/two", most=12_000)
    with pytest.raises(BadArchive, match="would be 12,000 bytes large"):
        take(archive, target, "data/one", "data/two", most=11_999)


def test_a_zip_that_unpacks_to_more_than_it_claims_is_refused(tmp_path: Path, target: Path) -> None:
    archive = zip_of(tmp_path, ("data/one", bytes(10**7)))
    archive.write_bytes(archive.read_bytes().replace(struct.pack("<I", 10**7), b"\x10\0\0\0"))
    with pytest.raises(BadArchive, match="cannot be unpacked"):
        take(archive, target, "data/one", most=100)
    assert not list(target.iterdir())


def test_a_zip_with_a_secret_is_refused(tmp_path: Path, target: Path) -> None:
    archive = zip_of(tmp_path, ("data/one", CONTENT), packing=zipfile.ZIP_STORED)
    content = bytearray(archive.read_bytes())
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    archive.write_bytes(content)
    with pytest.raises(BadArchive, match="cannot be unpacked"):
        take(archive, target, "data/one")


def test_a_zip_with_any_byte_damaged_is_refused_or_whole(tmp_path: Path, target: Path) -> None:
    whole = zip_of(tmp_path, ("data/one", CONTENT), ("data/two", CONTENT)).read_bytes()
    archive = tmp_path / "archive.zip"
    for position in range(len(whole)):
        for damaged in (whole[:position], whole[:position] + b"\xff" + whole[position + 1 :]):
            archive.write_bytes(damaged)
            try:
                take(archive, target, "data/one", "data/two")
            except BadArchive:
                continue
            assert (target / "one").read_bytes() == (target / "two").read_bytes() == CONTENT
