"""Paths that cannot be: one sentence, status 2, no traceback and no waiting, in every command."""

import io
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from tests.cli.conftest import Command
from tests.reports.made_up import result, save

RUN = ["run", "er", "--device", "cpu", "--memory", "20"]
TINY = [*RUN, "--data", "tiny", "--limit-per-class", "4"]
BENCH = ["bench", "er", "--like", "tiny", "--steps", "1", "--repeats", "1", "--device", "cpu"]
COMMANDS: dict[str, list[str]] = {
    "run --out": [*TINY, "--out"],
    "run --data folder": [*RUN, "--data"],
    "run --data-dir": [*RUN, "--data", "cifar10", "--data-dir"],
    "resume": ["resume"],
    "resume several": ["resume", "runs/*", "runs"],
    "predict": ["predict"],
    "predict image": ["predict", "runs"],
    "report": ["report"],
    "report --out": ["report", "runs", "--out"],
    "figure": ["figure", "accuracy"],
    "figure --out": ["figure", "accuracy", "runs", "--out"],
    "sweep": ["sweep"],
    "sweep --out": ["sweep", "sweep.toml", "--device", "cpu", "--out"],
    "table --out": ["table", "table1", "--data", "cifar10", "--device", "cpu", "--out"],
    "bench --save": [*BENCH, "--save"],
    "bench --show": ["bench", "--show"],
}
BAD = {
    "a name of 256 letters": "x" * 256,
    "a path of 5,000 letters": "/".join(["x" * 99] * 50),
    "2,000 levels": "/".join("d" * 2000),
    "a loop of links": "loop/x",
    "a null byte": "a\0b",
}


class Waits(BaseException):
    """A command waits for something; no handler of errors catches this."""


@pytest.fixture(autouse=True)
def _no_waiting() -> Iterator[None]:
    def tell(number: int, frame: FrameType | None) -> None:
        raise Waits

    before = signal.signal(signal.SIGALRM, tell)
    signal.alarm(600)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def _place(tmp_path: Path) -> None:
    save(tmp_path / "runs", result())
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "sweep.toml").write_text('[[runs]]\nmethod = "er"\ndata = "tiny"\nmemory = 20\n')


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_path_that_cannot_be(onpro: Command, command: str, bad: str) -> None:
    path = f"folder:{BAD[bad]}" if command == "run --data folder" else BAD[bad]
    answer = onpro(*COMMANDS[command], path)
    assert answer.status == 2, answer
    assert not answer.out
    assert len(answer.err.splitlines()) == 1, answer.err
    assert "cannot be used: " in answer.err
    assert len(answer.err) < 500


@pytest.mark.parametrize("command", [c for c in COMMANDS if "--out" not in c and "--save" not in c])
def test_the_home_of_an_unknown_user(onpro: Command, command: str) -> None:
    path = "~no-such-user/x"
    answer = onpro(*COMMANDS[command], f"folder:{path}" if command == "run --data folder" else path)
    assert answer.status == 2, answer
    assert answer.err.splitlines()[-1].startswith("onpro: ")


@pytest.mark.parametrize("option", [["--out=~/found.csv"], ["--out", "~/found.csv"]])
def test_the_home_is_found_without_a_shell(
    onpro: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: list[str]
) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert onpro("report", "runs", *option).status == 0
    assert (tmp_path / "home" / "found.csv").is_file()
    assert not (tmp_path / "~").exists()


@pytest.mark.parametrize("command", [c for c in COMMANDS if c not in ("resume several",)])
def test_a_fifo_is_no_file_and_no_folder(onpro: Command, command: str) -> None:
    path = "folder:fifo" if command == "run --data folder" else "fifo"
    answer = onpro(*COMMANDS[command], path)
    if command == "figure --out":
        assert answer.out == "saved fifo.png\n"
        return
    assert answer.status == 2, answer
    assert answer.err.count("\n") <= 2, answer.err


@pytest.mark.parametrize("name", ["result.json", "config.json"])
def test_a_fifo_in_the_folder_of_a_run(onpro: Command, tmp_path: Path, name: str) -> None:
    folder = save(tmp_path / "other", result()).folder
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert onpro("report", "other").status == (2 if name == "result.json" else 0)
    assert onpro("resume", str(folder)).status == 2


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_names_that_are_not_utf8_on_a_strict_standard_output(
    onpro: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    raw = os.fsdecode(b"caf\xe9\xff")
    (tmp_path / "runs").rename(tmp_path / raw)
    (tmp_path / raw / raw).mkdir()
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding, errors="strict") for _ in range(2))
    for name, stream in (("stdout", out), ("stderr", err)):
        monkeypatch.setattr(stream, "fileno", lambda: 1, raising=False)
        monkeypatch.setattr(sys, name, stream)
    assert onpro("report", raw).status == 0
    assert onpro("report", raw, "--out", f"{raw}.csv").status == 0
    assert onpro("figure", "accuracy", raw, "--out", f"{raw}.svg").status == 0
    assert onpro("report", f"{raw}x").status == 2
    assert onpro("resume", raw).status == 2
    for stream in (out, err):
        stream.flush()
    assert rb"saved caf\udce9\udcff.csv" in out.buffer.getvalue()
    assert rb"skipped caf\udce9\udcff/" in err.buffer.getvalue()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_without_rights(onpro: Command, tmp_path: Path, command: str) -> None:
    closed = tmp_path / "closed"
    (closed / "inside").mkdir(parents=True)
    closed.chmod(0)
    try:
        for path in ("closed", "closed/inside"):
            named = f"folder:{path}" if command == "run --data folder" else path
            answer = onpro(*COMMANDS[command], named)
            assert answer.status == 2, answer
            assert answer.err.count("\n") <= 2, answer.err
    finally:
        closed.chmod(0o700)


@pytest.mark.parametrize("many", ["10001", "1000000000", "9" * 18])
def test_a_number_of_seeds_that_cannot_be_meant(onpro: Command, tmp_path: Path, many: str) -> None:
    (tmp_path / "sweep.toml").write_text(f'[[runs]]\nmethod = "er"\nseeds = {many}\n')
    for command in (
        ["run", "er", "--seeds", many],
        ["table", "table1", "--seeds", many, "--dry-run"],
        ["sweep", "sweep.toml", "--dry-run"],
    ):
        answer = onpro(*command)
        assert answer.status == 2
        assert re.search("(from 1 to|at most) 10000", answer.err)
        assert len(answer.err.splitlines()) == 1


@pytest.mark.parametrize(
    "command",
    [["table", "table1", "--memory"], ["table", "table1", "--workers"], ["bench", "--memory"]],
)
def test_a_number_with_more_digits_than_python_reads(onpro: Command, command: list[str]) -> None:
    answer = onpro(*command, "9" * 5000)
    assert answer.status == 2
    assert " takes " in answer.err
