"""Files are replaced atomically, by any number of writers, and no other file is changed."""

import os
import stat
import threading
from pathlib import Path

import pytest

from onpro.files import PRIVATE_FILE, read_plain, replacing


def write(path: Path, content: bytes) -> None:
    with replacing(path) as file:
        file.write(content)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_failure_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write(path, b"old")

    def fail() -> None:
        with replacing(path) as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_many_writers_of_one_path_never_disturb_each_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    contents = [bytes([65 + number]) * 100_000 for number in range(8)]
    errors: list[Exception] = []

    def work(content: bytes) -> None:
        try:
            for _ in range(20):
                write(path, content)
                assert read_plain(path) in contents
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert names(tmp_path) == ["file"]


def test_an_existing_file_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write(path, b"old")
    path.chmod(0o640)
    write(path, b"new")
    assert (mode(path), path.read_bytes()) == (0o640, b"new")


def test_a_new_file_has_the_mode_asked_for(tmp_path: Path) -> None:
    with replacing(tmp_path / "private", mode=PRIVATE_FILE) as file:
        file.write(b"secret")
    assert mode(tmp_path / "private") == 0o600
    usual = tmp_path / "usual"
    usual.touch()
    write(tmp_path / "public", b"all may read")
    assert mode(tmp_path / "public") == mode(usual)


def test_a_link_keeps_pointing_to_the_file_that_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "real").write_bytes(b"old")
    link = tmp_path / "link"
    link.symlink_to(folder / "real")
    write(link, b"new")
    assert link.is_symlink()
    assert (folder / "real").read_bytes() == b"new"


def test_a_loop_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(OSError, match="symbolic links"):
        write(tmp_path / "a", b"")
    assert names(tmp_path) == ["a", "b"]


def test_the_longest_name_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    write(path, b"content")
    assert path.read_bytes() == b"content"


def test_a_users_part_file_is_left_alone(tmp_path: Path) -> None:
    mine, target = tmp_path / "model.part", tmp_path / "target"
    target.write_bytes(b"mine")
    mine.symlink_to(target)
    write(tmp_path / "model", b"content")
    assert target.read_bytes() == b"mine"
    assert mine.is_symlink()


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="not a regular file"):
        read_plain(pipe)
    with pytest.raises(OSError, match="not a regular file"):
        write(pipe, b"")
    with pytest.raises(OSError, match="not a regular file"):
        read_plain(tmp_path)


def test_a_link_can_be_refused(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert read_plain(tmp_path / "link") == b"content"
    with pytest.raises(OSError, match="symbolic links"):
        read_plain(tmp_path / "link", follow_links=False)
