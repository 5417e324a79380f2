"""Files are there completely or not at all."""

import errno
import os
from pathlib import Path

import pytest

from onpro.errors import UserError
from onpro.runs.files import read_json, require_writable, write_json, writing_below


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
