"""Files are there completely or not at all."""

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from filelock import unlock_descriptor

from onpro.errors import UserError
from onpro.runs.files import (
    Held,
    _lock_shared,
    is_held,
    locked,
    read_json,
    require_writable,
    write_json,
    writing_below,
)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    value = {"a": [1.5, None], "b": "é"}
    write_json(tmp_path / "x.json", value)
    assert read_json(tmp_path / "x.json") == value
    write_json(tmp_path / "x.json", [])
    assert read_json(tmp_path / "x.json") == []


def test_a_value_that_fails_halfway_leaves_the_old_file(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", "old")
    with pytest.raises(TypeError):
        write_json(tmp_path / "x.json", [*range(10_000), object()])
    assert read_json(tmp_path / "x.json") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_a_disk_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_json(tmp_path / "x.json", "old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_json(tmp_path / "x.json", "new")
    assert read_json(tmp_path / "x.json") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_a_missing_or_damaged_file_is_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no file .*x\.json"):
        read_json(tmp_path / "x.json")
    (tmp_path / "x.json").write_text('{"half": ')
    with pytest.raises(UserError, match=r"x\.json cannot be read"):
        read_json(tmp_path / "x.json")
    (tmp_path / "x.json").write_text(r'{"method": "\ud800"}')
    with pytest.raises(UserError, match=r"x\.json cannot be read.*surrogates"):
        read_json(tmp_path / "x.json")
    (tmp_path / "x.json").write_text(r'{"method": "\ud83d\ude00"}')
    assert read_json(tmp_path / "x.json") == {"method": "😀"}
    (tmp_path / "x.json").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match=r"x\.json cannot be read"):
        read_json(tmp_path / "x.json")


def test_what_the_file_system_refuses_becomes_a_sentence(tmp_path: Path) -> None:
    refused = pytest.raises(UserError, match=r"cannot write in .*: no space left.*choose another")
    with refused, writing_below(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_reader_that_has_gone_is_no_matter_of_files(tmp_path: Path) -> None:
    with pytest.raises(BrokenPipeError), writing_below(tmp_path):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def test_a_folder_that_is_or_can_be_made_is_writable(tmp_path: Path) -> None:
    require_writable(tmp_path)
    require_writable(tmp_path / "a" / "b")
    assert not list(tmp_path.iterdir()), "asking makes nothing"


@pytest.mark.parametrize("below", ["", "a", "a/b"])
def test_a_file_is_no_folder(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot write in .*file is a file"):
        require_writable(tmp_path / "file" / below)


def test_a_relative_folder_lies_below_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    require_writable(Path("a/b"))
    (tmp_path / "a").touch()
    with pytest.raises(UserError, match="is a file"):
        require_writable(Path("a/b"))


def test_a_folder_that_may_not_be_written_in_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # a super-user may write anywhere
    with pytest.raises(UserError, match="permission denied"):
        require_writable(tmp_path)


def test_a_lock_excludes_others_and_leaves_no_file(tmp_path: Path) -> None:
    with locked(tmp_path / "a" / "X"):
        assert is_held(tmp_path / "a" / "X")
        assert not is_held(tmp_path / "a" / "Y")
        refused = pytest.raises(Held, match=r"another process is working on .*X: wait until it")
        with refused, locked(tmp_path / "a" / "X"):
            pytest.fail("two hold one folder")
        assert is_held(tmp_path / "a" / "X"), "who is refused takes nothing away"
    assert not is_held(tmp_path / "a" / "X")
    assert list(tmp_path.rglob("*")) == [tmp_path / "a"]


def test_a_lock_is_released_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(tmp_path / "X"):
        raise ZeroDivisionError
    with locked(tmp_path / "X"):
        pass
    assert not list(tmp_path.iterdir())


def test_a_lock_can_be_released_by_another_thread(tmp_path: Path) -> None:
    lock = locked(tmp_path / "X")
    lock.__enter__()
    thread = threading.Thread(target=lock.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    assert not is_held(tmp_path / "X")
    assert not list(tmp_path.iterdir())


HOLDING = """
import sys
from pathlib import Path
from onpro.runs.files import locked

with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.thorough
def test_the_lock_of_a_killed_process_is_released(tmp_path: Path) -> None:
    folder = tmp_path / "X"
    command = [sys.executable, "-c", HOLDING, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"held\n"
        assert is_held(folder)
        with pytest.raises(Held), locked(folder):
            pytest.fail("two hold one folder")
        process.kill()
    assert [path.name for path in tmp_path.iterdir()] == [".X.lock"]
    assert not is_held(folder)
    assert [path.name for path in tmp_path.iterdir()] == [".X.lock"], "looking changes nothing"
    with locked(folder):
        assert is_held(folder)
    assert not list(tmp_path.iterdir())


@contextmanager
def looked_at(folder: Path) -> Iterator[int]:
    """What a process inside `is_held` does: lock an existing lock file."""
    path = folder.with_name(f".{folder.name}.lock")
    path.touch()
    handle = os.open(path, os.O_RDWR)
    try:
        assert _lock_shared(handle)
        yield handle
    finally:
        os.close(handle)


def test_a_process_that_only_looks_delays_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with looked_at(tmp_path / "X") as handle:
        monkeypatch.setattr(time, "sleep", lambda _: unlock_descriptor(handle))
        with locked(tmp_path / "X"):
            assert is_held(tmp_path / "X")
    assert not list(tmp_path.iterdir())


def test_two_processes_that_only_look_do_not_see_each_other(tmp_path: Path) -> None:
    with looked_at(tmp_path / "X"):
        assert not is_held(tmp_path / "X")


def test_a_lock_file_that_is_removed_while_it_is_opened_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if another process ended its work between opening the file and locking it."""
    path = tmp_path / ".X.lock"
    really_open = os.open
    removed: list[bool] = []

    def slow_open(name: str | Path, *rest: int, **named: int) -> int:
        handle = really_open(name, *rest, **named)
        if not removed and Path(name) == path:
            path.unlink()
            removed.append(True)
        return handle

    monkeypatch.setattr(os, "open", slow_open)
    with locked(tmp_path / "X"):
        assert removed
        assert path.exists()
        assert is_held(tmp_path / "X")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_only_a_full_disk_needs_room(tmp_path: Path, number: int) -> None:
    with pytest.raises(UserError) as told, writing_below(tmp_path):
        raise OSError(number, "no")
    assert ("make room" in str(told.value)) == (number == errno.ENOSPC)
