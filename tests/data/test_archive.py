"""Files come out of an archive into one folder, or not at all."""

import io
import tarfile
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
