from pathlib import Path

import pytest

from onpro.data.location import data_folder
from onpro.errors import UserError


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


def test_a_cache_that_cannot_be_made_is_said_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.delenv("ONPRO_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match="cannot be made"):
        data_folder(None)
