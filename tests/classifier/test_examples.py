"""The examples run as they stand."""

import os
import re
import runpy
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from onpro import OnlineClassifier

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_camera_learns_from_being_told(capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(EXAMPLES / "webcam_like.py"))["main"]
    assert main(frames=200) > 0.3
    assert "things known" in capsys.readouterr().out


def drop(folder: Path, name: str, shade: int) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    Image.fromarray(np.full((20, 30, 3), shade, np.uint8)).save(folder / name)


def test_the_watcher_learns_saves_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = runpy.run_path(str(EXAMPLES / "folder_watcher.py"))["watch"]
    photos, saved = tmp_path / "photos", tmp_path / "birds.onpro"
    photos.mkdir()

    def run_while(number: int) -> None:
        over: list[int] = []
        thread = threading.Thread(target=watch, args=(photos, saved, over, 0.01))
        thread.start()
        end = time.monotonic() + 60
        while capsys.readouterr().out.count("learned ") < number and time.monotonic() < end:
            time.sleep(0.02)
        over.append(1)
        thread.join()

    drop(photos, "wren/1.png", 10)
    run_while(1)
    drop(photos, "robin/1.png", 200)
    (photos / "robin" / "2.png").write_bytes(b"not yet all of it")
    (photos / "robin" / "notes.txt").write_text("no image")
    run_while(1)
    classifier = OnlineClassifier.load(saved, device="cpu")
    assert classifier.classes_.tolist() == ["wren", "robin"]
    assert classifier.n_seen_ == 2


def test_ctrl_c_saves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drop(tmp_path, "wren/1.png", 10)
    saved = tmp_path / "birds.onpro"
    script = str(EXAMPLES / "folder_watcher.py")
    monkeypatch.setattr(sys, "argv", [script, str(tmp_path), str(saved)])

    def interrupt_once_learned() -> None:
        end = time.monotonic() + 60
        while "learned " not in capsys.readouterr().out and time.monotonic() < end:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    person = threading.Thread(target=interrupt_once_learned)
    person.start()
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        signal.signal(signal.SIGINT, handler)
        person.join()
    assert OnlineClassifier.load(saved, device="cpu").classes_.tolist() == ["wren"]


def test_the_page_on_production_shows_what_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = EXAMPLES.parent / "docs" / "production.md"
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, str(page), "exec"), names)
    assert names["birds"].classes_.tolist() == ["wren"]
