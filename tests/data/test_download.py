"""Where data are stored, and how published archives get there."""

import io
import socket
import stat
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from onpro.data import download
from onpro.data.download import Archive, data_folder, fetch
from onpro.errors import UserError
from tests.data.conftest import WEB, md5

CONTENT = b"pixels" * 1000


def tar_file(name: str, content: bytes = CONTENT) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    return member, content


def tar_link(name: str, to: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, to
    return member, b""


def write_tar(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for member, content in members:
            tar.addfile(member, io.BytesIO(content))


def write_zip(path: Path, *members: tuple[str | zipfile.ZipInfo, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for member, content in members:
            packed.writestr(member, content)


def published(file: Path) -> Archive:
    return Archive("birds", f"{WEB}{file.name}", md5(file), "data")


@pytest.fixture(params=["birds.tar.gz", "birds.zip"])
def server(request: pytest.FixtureRequest, web: Path) -> Path:
    """An archive of two files on the network."""
    path = web / str(request.param)
    if path.suffix == ".zip":
        write_zip(path, ("data/one", CONTENT), ("data/more/two", b""))
    else:
        write_tar(path, tar_file("data/one"), tar_file("data/more/two", b""))
    return path


def everything_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_the_folder_of_an_archive_is_downloaded(server: Path, place: Path) -> None:
    fetch(published(server), place)
    assert everything_below(place) == {"data", "data/one", "data/more", "data/more/two"}
    assert (place / "data" / "one").read_bytes() == CONTENT


def test_a_download_shows_a_progress_bar_on_standard_error(
    server: Path,
    place: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    fetch(published(server), place)
    shown = capfd.readouterr()
    size = server.stat().st_size
    assert server.name in shown.err
    assert f"{size}/{size} bytes" in shown.err
    assert not shown.out


def test_an_archive_in_the_folder_is_used_and_kept(server: Path, place: Path) -> None:
    archive = published(server)
    server.rename(place / server.name)
    fetch(archive, place)
    assert (place / "data" / "one").read_bytes() == CONTENT
    assert (place / server.name).is_file()


def test_files_that_are_missing_in_a_folder_are_added(server: Path, place: Path) -> None:
    (place / "data").mkdir()
    (place / "data" / "notes").write_text("mine")
    fetch(published(server), place)
    assert (place / "data" / "one").read_bytes() == CONTENT
    assert (place / "data" / "notes").read_text() == "mine"


def test_without_a_network_a_sentence_says_what_to_put_where(server: Path, place: Path) -> None:
    archive = published(server)
    server.unlink()
    with pytest.raises(UserError) as caught:
        fetch(archive, place)
    sentence = str(caught.value)
    parts = ("put the folder data", f"archive {server.name} from {archive.url}")
    for part in (f"{place} and cannot be downloaded there (no such host);", *parts, "--data-dir"):
        assert part in sentence
    assert "ONPRO_DATA" in sentence
    assert "\n" not in sentence
    assert not list(place.iterdir())


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut off": lambda content: content[:-20],
    "longer": lambda content: content + b"more",
    "other bytes": lambda content: content[::-1],
    "empty": lambda content: b"",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_download_leaves_nothing_behind(
    server: Path, place: Path, damage: Callable[[bytes], bytes]
) -> None:
    archive = published(server)
    server.write_bytes(damage(server.read_bytes()))
    with pytest.raises(UserError, match=r"cannot be downloaded there \(the file received is not"):
        fetch(archive, place)
    assert not list(place.iterdir())


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_archive_in_the_folder_is_named(
    server: Path, place: Path, damage: Callable[[bytes], bytes]
) -> None:
    (place / server.name).write_bytes(damage(server.read_bytes()))
    with pytest.raises(
        UserError, match=f"archive .*{server.name} is damaged .*; remove or replace"
    ):
        fetch(published(server), place)
    assert [path.name for path in place.iterdir()] == [server.name]


@contextmanager
def silent_server() -> Iterator[str]:
    """Address of a server that sends half a file and then nothing more."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = threading.Event()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(2**16)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n" + b"x" * 100)
                done.wait(60)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/birds.zip"
        done.set()
        thread.join()


def test_a_download_that_stalls_is_given_up(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "TIMEOUT", 0.2)
    monkeypatch.setenv("no_proxy", "*")
    with silent_server() as url, pytest.raises(UserError, match="timed out"):
        fetch(Archive("birds", url, "0" * 32, "data"), place)
    assert not list(place.iterdir())


@pytest.mark.parametrize("name", ["../escaped", "{}/escaped", "data/../../../escaped"])
@pytest.mark.parametrize("suffix", ["tar.gz", "zip"])
def test_no_path_leads_out_of_the_folder(web: Path, place: Path, name: str, suffix: str) -> None:
    name = name.format(place.parent)
    path = web / f"birds.{suffix}"
    if suffix == "zip":
        write_zip(path, (name, CONTENT), ("data/one", CONTENT))
    else:
        write_tar(path, tar_file(name), tar_file("data/one"))
    fetch(published(path), place)
    assert (place / "data" / "one").read_bytes() == CONTENT
    assert [entry.name for entry in place.iterdir()] == ["data"]
    assert {entry.name for entry in place.parent.iterdir()} == {"place", "web"}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_only_regular_files_of_a_tar_archive_are_extracted(
    web: Path, place: Path, tmp_path: Path, kind: bytes
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    links = tar_link("data/link", str(outside), kind), tar_link("data/more", str(outside))
    path = web / "birds.tar.gz"
    write_tar(path, *links, tar_file("data/more/one"))
    fetch(published(path), place)
    assert everything_below(place) == {"data", "data/more", "data/more/one"}
    assert not list(outside.iterdir())


def test_a_link_in_a_zip_archive_becomes_a_regular_file(web: Path, place: Path) -> None:
    link = zipfile.ZipInfo("data/link")
    link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    write_zip(web / "birds.zip", (link, b"/etc/passwd"))
    fetch(published(web / "birds.zip"), place)
    assert not (place / "data" / "link").is_symlink()
    assert (place / "data" / "link").read_bytes() == b"/etc/passwd"


@pytest.mark.parametrize("suffix", ["tar.gz", "zip"])
def test_what_is_no_archive_in_spite_of_its_checksum_is_a_sentence(
    web: Path, place: Path, suffix: str
) -> None:
    path = web / f"birds.{suffix}"
    path.write_bytes(b"this is no archive")
    with pytest.raises(UserError, match="birds is not in"):
        fetch(published(path), place)
    assert not list(place.iterdir())


def test_the_folder_given_wins_over_the_variable_and_that_over_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, variable = tmp_path / "given", tmp_path / "variable"
    given.mkdir()
    variable.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ONPRO_DATA", raising=False)
    assert data_folder(None) == tmp_path / "cache" / "onpro"
    assert data_folder(None).is_dir()
    monkeypatch.setenv("ONPRO_DATA", str(variable))
    assert data_folder(None) == variable
    assert data_folder(given) == given


def test_without_any_setting_it_is_the_cache_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_CACHE_HOME", "ONPRO_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_folder(None) == tmp_path / ".cache" / "onpro"


def test_without_a_home_there_is_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "ONPRO_DATA", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 2**31 - 7)  # a container's user without an entry
    with pytest.raises(UserError, match="give another data folder"):
        data_folder(None)
    assert not Path("~").exists()


def test_a_folder_that_was_named_and_does_not_exist_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"nowhere does not exist.*--data-dir"):
        data_folder(tmp_path / "nowhere")
    monkeypatch.setenv("ONPRO_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"nowhere does not exist.*ONPRO_DATA"):
        data_folder(None)
    assert not list(tmp_path.iterdir())


def test_a_file_is_no_data_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file is a file; correct --data-dir"):
        data_folder(tmp_path / "file")


def test_a_cache_that_cannot_be_created_is_said_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.delenv("ONPRO_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match="cannot be created"):
        data_folder(None)
