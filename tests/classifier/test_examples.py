"""The examples run as they stand."""

import errno
import json
import os
import re
import runpy
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    (folder / name).parent.mkdir(exist_ok=True, parents=True)
    Image.fromarray(np.full((20, 30, 3), shade, np.uint8)).save(folder / name)


def wait_for(event: Callable[[], bool]) -> None:
    end = time.monotonic() + 600
    while not event() and time.monotonic() < end:
        time.sleep(0.02)


@contextmanager
def watching(photos: Path, saved: Path) -> Iterator[None]:
    """The watcher at work, until the block ends."""
    watch = runpy.run_path(str(EXAMPLES / "folder_watcher.py"))["watch"]
    over: list[int] = []
    thread = threading.Thread(target=watch, args=(photos, saved, over, 0.01))
    thread.start()
    try:
        yield
    finally:
        over.append(1)
        thread.join()


def listed(saved: Path) -> list[str]:
    """What the watcher says it has learned."""
    notes = saved.with_name(saved.name + ".learned.json")
    names: list[str] = json.loads(notes.read_text()) if notes.exists() else []
    return names


def test_the_watcher_learns_saves_and_goes_on(tmp_path: Path) -> None:
    photos, saved = tmp_path / "photos", tmp_path / "birds.onpro"
    photos.mkdir()
    drop(photos, "wren/1.png", 10)
    with watching(photos, saved):
        wait_for(lambda: listed(saved) == ["wren/1.png"])
        assert OnlineClassifier.load(saved, device="cpu").n_seen_ == 1, "saved while it goes on"
    drop(photos, "robin/1.png", 200)
    (photos / "robin" / "notes.txt").write_text("no image")
    with watching(photos, saved):
        wait_for(lambda: len(listed(saved)) == 2)
    classifier = OnlineClassifier.load(saved, device="cpu")
    assert classifier.classes_.tolist() == ["wren", "robin"]
    assert classifier.n_seen_ == 2
    assert not list(tmp_path.glob("*.new"))


def test_the_watcher_names_a_broken_file_once_and_learns_it_when_it_is_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos, saved = tmp_path / "photos", tmp_path / "birds.onpro"
    (photos / "robin").mkdir(parents=True)
    (photos / "robin" / "1.png").write_bytes(b"not yet all of it")
    with watching(photos, saved):
        drop(photos, "wren/1.png", 10)
        wait_for(lambda: listed(saved) == ["wren/1.png"])
        drop(photos, "wren/2.png", 20)  # another look at everything
        wait_for(lambda: len(listed(saved)) == 2)
        assert capsys.readouterr().out.count("robin/1.png is left") == 1
        drop(photos, "robin/1.png", 200)
        wait_for(lambda: len(listed(saved)) == 3)
    assert "robin/1.png" in listed(saved)


def test_the_watcher_minds_no_odd_names_pipes_or_loops(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard output is strict, and one pipe would be waited for for ever."""
    photos, saved = tmp_path / "photos", tmp_path / "birds.onpro"
    odd = os.fsdecode(b"wr\xffen")
    drop(photos, f"{odd}/\x1b[2J.png", 10)
    os.mkfifo(photos / odd / "a.png")
    (photos / odd / "b.png").symlink_to("b.png")
    (photos / odd / "c.png").symlink_to("nothing")
    (photos / odd / "d.png").mkdir()
    (photos / "loop").symlink_to("loop")
    with watching(photos, saved):
        wait_for(lambda: len(listed(saved)) == 1)
        drop(photos, "robin/1.png", 200)
        wait_for(lambda: len(listed(saved)) == 2)
    said = capsys.readouterr().out
    assert "learned wr\\udcffen/\\x1b[2J.png\n" in said
    assert "left" not in said
    assert OnlineClassifier.load(saved, device="cpu").classes_.tolist() == [odd, "robin"]


def test_the_watcher_goes_on_where_it_may_not_look_or_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    photos, saved = tmp_path / "photos", tmp_path / "birds.onpro"
    drop(photos, "owl/1.png", 10)

    def denied(call: Any) -> Any:
        def asked(path: Path, *given: Any, **more: Any) -> Any:
            if path.parent.name == "owl":
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return call(path, *given, **more)

        return asked

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "stat", denied(Path.stat))
    monkeypatch.setattr(Image, "open", denied(Image.open))
    with watching(photos, saved):
        with monkeypatch.context() as disk:
            disk.setattr(OnlineClassifier, "save", full)
            said = ""

            def told() -> bool:
                nonlocal said
                said += capsys.readouterr().out
                return "not saved" in said

            drop(photos, "wren/1.png", 20)
            wait_for(told)
        drop(photos, "wren/2.png", 20)
        wait_for(lambda: len(listed(saved)) == 2)
    said += capsys.readouterr().out
    assert said.count("owl/1.png is left until it changes") == 1
    assert OnlineClassifier.load(saved, device="cpu").n_seen_ == 2


@pytest.mark.parametrize("damaged", ["birds.onpro", "birds.onpro.learned.json"])
def test_the_watcher_says_what_is_damaged(tmp_path: Path, damaged: str) -> None:
    (tmp_path / damaged).write_text("{")
    watch = runpy.run_path(str(EXAMPLES / "folder_watcher.py"))["watch"]
    with pytest.raises(SystemExit, match="do not say where to go on"):
        watch(tmp_path, tmp_path / "birds.onpro", [1])


@pytest.mark.parametrize("missing", [0, 1])
def test_the_watcher_needs_its_folders(
    missing: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = [str(tmp_path), str(tmp_path / "birds.onpro")]
    given[missing] = str(tmp_path / "nothing" / "here")
    script = str(EXAMPLES / "folder_watcher.py")
    monkeypatch.setattr(sys, "argv", [script, *given])
    with pytest.raises(SystemExit):
        runpy.run_path(script, run_name="__main__")
    assert "there is no folder" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_watcher_and_nothing_is_lost(
    kind: signal.Signals,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drop(tmp_path, "wren/1.png", 10)
    saved = tmp_path / "birds.onpro"
    script = str(EXAMPLES / "folder_watcher.py")
    monkeypatch.setattr(sys, "argv", [script, str(tmp_path), str(saved)])

    def interrupt_once_learned() -> None:
        wait_for(lambda: "learned " in capsys.readouterr().out)
        os.kill(os.getpid(), kind)

    handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    person = threading.Thread(target=interrupt_once_learned)
    person.start()
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
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


def test_photographs_are_learned_saved_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = runpy.run_path(str(EXAMPLES / "own_photos.py"))
    example["make_demo"](tmp_path / "fruit", images=10)
    right = example["main"](tmp_path / "fruit", memory=20, image_size=16, batch_size=4)
    said = capsys.readouterr().out
    assert "4 classes, 32 images to learn, 8 to test" in said
    assert said.count("of 2 right") == 4
    assert 0 <= right <= 1
    saved = OnlineClassifier.load(tmp_path / "fruit.onpro", device="cpu")
    assert sorted(saved.classes_) == ["lemon", "lime", "plum", "tomato"]
    with Image.open(tmp_path / "fruit.png") as drawn:
        assert drawn.width > drawn.height > 100


@pytest.mark.thorough
def test_photographs_are_recognised(tmp_path: Path) -> None:
    example = runpy.run_path(str(EXAMPLES / "own_photos.py"))
    example["make_demo"](tmp_path / "fruit")
    assert example["main"](tmp_path / "fruit") > 0.5


def test_methods_are_compared_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(EXAMPLES / "compare_methods.py"))["main"]
    out, figure = tmp_path / "runs", tmp_path / "comparison.png"
    given = {"data": "tiny", "memory": 20, "seeds": 2, "out": out, "figure": figure}
    first = main(**given)
    assert set(first) == {"er", "erace", "scr"}
    assert all(summary.n == 2 for summary in first.values())
    assert len(list(out.glob("*/result.json"))) == 6
    with Image.open(figure) as drawn:
        assert drawn.width > 500
    assert main(**given) == first, "finished runs are only read"
    assert "2 runs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("example", "arguments", "said"),
    [
        ("own_photos", ["nowhere"], "own_photos: the image folder nowhere does not exist"),
        ("compare_methods", ["--methods", "err"], "compare_methods: there is no method 'err'"),
    ],
)
def test_a_mistake_ends_an_example_with_a_sentence(
    example: str, arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [example, *arguments])
    monkeypatch.setattr("torch.set_num_threads", lambda threads: None)
    with pytest.raises(SystemExit, match=said):
        runpy.run_path(str(EXAMPLES / f"{example}.py"), run_name="__main__")
