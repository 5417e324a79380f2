"""The command as a process: imports, signals, pipes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "numpy", "scipy", "sklearn", "matplotlib", "PIL")
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"} | {
    "OMP_NUM_THREADS": "1"
}
PATIENCE = 600
"""Seconds until a process counts as one that never ends; a busy machine takes minutes."""
ER = ["run", "er", "--data", "tiny", "--limit-per-class", "4", "--device", "cpu"]


def python(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=cwd,
        env=ENVIRONMENT,
        check=False,
    )


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["datasets"], ["datasets", "--json"], ["rum"]]
)
def test_what_needs_no_tensor_imports_none(arguments: list[str]) -> None:
    done = python("-X", "importtime", "-m", "onpro", *arguments)
    assert done.returncode == (2 if arguments == ["rum"] else 0)
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    packages = {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}
    assert "onpro" in packages
    assert not packages & set(HEAVY)


def test_a_run_as_a_process(tmp_path: Path) -> None:
    done = python("-m", "onpro", *ER, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (tmp_path / said["run"] / "result.json").is_file()
    assert "Warning" not in done.stderr


def test_a_mistake_as_a_process() -> None:
    done = python("-m", "onpro", "datasets", "--jsn")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "onpro: there is no option '--jsn'; did you mean '--json'?\n"


def test_ctrl_c_in_mid_run(tmp_path: Path) -> None:
    # A shell that starts a job in the background may have it ignore Ctrl-C: undo that first.
    start = (
        "import runpy, signal, sys;"
        "signal.signal(signal.SIGINT, signal.default_int_handler);"
        "sys.argv[0] = 'onpro';"
        "runpy.run_module('onpro', run_name='__main__')"
    )
    command = [sys.executable, "-c", start, "run", "onpro", "--rotations", "4", "--device", "cpu"]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=tmp_path, text=True,
        env=ENVIRONMENT,
    ) as process:  # fmt: skip
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if line.startswith("task 1/5"):
                    break
            assert any((tmp_path / "runs").glob("onpro-*")), "the run has a folder by now"
            process.send_signal(signal.SIGINT)
            rest = process.stderr.read()
            assert process.wait(timeout=PATIENCE) == 130
        finally:
            process.kill()
    (told,) = [line for line in rest.splitlines() if line and not line.startswith("task ")]
    assert told.startswith("onpro: interrupted; ")
    left = [path.name for path in (tmp_path / "runs").iterdir()]
    assert all(f"onpro resume runs/{name}" in told for name in left), "what is left can go on"
    assert not list((tmp_path / "runs").glob("*/result.json"))


@pytest.mark.parametrize("arguments", [["datasets"], ["--help"], ["rum"]], ids=" ".join)
@pytest.mark.parametrize("broken", ["stdout", "stderr", "both"])
def test_a_reader_that_has_gone_is_no_error(arguments: list[str], broken: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "onpro", *arguments],
            stdout=writing if broken in ("stdout", "both") else subprocess.PIPE,
            stderr=writing if broken in ("stderr", "both") else subprocess.PIPE,
            env=ENVIRONMENT,
            text=True,
        ) as process:
            _, err = process.communicate(timeout=PATIENCE)
    finally:
        os.close(writing)
    told = arguments == ["rum"] and broken == "stdout"
    assert process.returncode == (2 if told else 0)
    assert (err or "").count("\n") == told
    assert "Traceback" not in (err or "")


@pytest.mark.thorough
def test_a_run_whose_reader_has_gone_has_not_succeeded(tmp_path: Path) -> None:
    run = f'"{sys.executable}" -m onpro run er --data tiny 2>&1 | true; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(
        ["bash", "-c", run],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout == f"{128 + signal.SIGPIPE}\n"


def test_ctrl_c_during_an_import_ends_the_process() -> None:
    script = (
        "import os, signal, sys\n"
        "from onpro import cli\n"
        "def interrupted(name):\n"
        "    try: os.kill(os.getpid(), signal.SIGINT)\n"
        "    except KeyboardInterrupt: pass  # as careless code does\n"
        "cli.import_module = interrupted\n"
        "cli.main(['run'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=ENVIRONMENT
    )
    assert done.returncode == -signal.SIGINT
    assert not done.stderr


def test_a_list_can_be_cut_off() -> None:
    pipeline = f'"{sys.executable}" -m onpro datasets | head -1; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(
        ["bash", "-c", pipeline], capture_output=True, text=True, env=ENVIRONMENT, check=True
    )
    assert done.stdout.splitlines()[-1] == "0"
    assert not done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="no other system has such segments")
@pytest.mark.parametrize(
    ("given", "used"),
    [
        ({}, "expandable_segments:True"),
        ({"PYTORCH_ALLOC_CONF": "mine"}, "mine"),
        ({"PYTORCH_CUDA_ALLOC_CONF": "mine"}, "None"),
    ],
)
def test_memory_of_a_gpu_comes_in_segments_that_grow(given: dict[str, str], used: str) -> None:
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    show = (
        "import os; from onpro.cli import main; main(['--version']);"
        "print(os.environ.get('PYTORCH_ALLOC_CONF'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", show],
        capture_output=True,
        text=True,
        check=True,
        env={name: v for name, v in ENVIRONMENT.items() if name not in names} | given,
    )
    assert done.stdout.splitlines()[-1] == used


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("redirections", "status", "told"),
    [
        (">&- 2>&- <&-", 0, ""),
        ("2>/dev/full", 0, ""),
        (">/dev/full", 1, "onpro: standard output could not be written: No space left on device."),
    ],
)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device is always full here")
def test_output_that_cannot_be_written_ends_no_run(
    tmp_path: Path, redirections: str, status: int, told: str
) -> None:
    run = f'"{sys.executable}" -m onpro {" ".join(ER)} {redirections}'
    done = subprocess.run(
        ["bash", "-c", run], capture_output=True, text=True, env=ENVIRONMENT, cwd=tmp_path
    )
    assert done.returncode == status
    assert done.stderr.splitlines()[-1:] == ([told] if told else [])
    assert len(list(tmp_path.glob("runs/*/result.json"))) == 1
    assert ("average accuracy" in done.stdout) == (redirections == "2>/dev/full")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device is always full here")
def test_a_list_that_cannot_be_written_is_told() -> None:
    for command in ("datasets", "datasets --help"):
        done = subprocess.run(
            ["bash", "-c", f'"{sys.executable}" -m onpro {command} >/dev/full'],
            capture_output=True,
            text=True,
            env=ENVIRONMENT,
        )
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert done.stderr.startswith("onpro: standard output could not be written")


@pytest.mark.thorough
def test_a_run_whose_terminal_is_closed_can_go_on(tmp_path: Path) -> None:
    start = (
        "import fcntl, signal, sys, termios;"
        "fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL);"
        "from onpro.cli import main;"
        "sys.exit(main(['run', '--rotations', '4', '--device', 'cpu']))"
    )
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", start], stdin=theirs, stdout=theirs, stderr=theirs,
        start_new_session=True, cwd=tmp_path, env=ENVIRONMENT,
    ) as process:  # fmt: skip
        try:
            os.close(theirs)
            shown = b""
            while b"task 1/5, step" not in shown:
                shown += os.read(ours, 1024)
            os.close(ours)
            assert process.wait(timeout=PATIENCE) == 128 + signal.SIGHUP
        finally:
            process.kill()
    assert list(tmp_path.glob("runs/*/checkpoint/step-*"))
