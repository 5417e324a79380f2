"""Shell completion: what the shells are offered, and bash itself."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from onpro.cli import COMMANDS
from onpro.cli.completion import SCRIPTS
from onpro.methods import methods, recipes
from tests.cli.conftest import Command

OFFERED: dict[str, list[str]] = {
    "ru": ["run"],
    "re": ["resume", "recipes", "report"],
    "--c": ["--completion"],
    "--completion ": ["bash", "zsh", "fish"],
    "run e": ["er", "erace"],
    "run er --da": ["--data", "--data-dir"],
    "run er --data ci": ["cifar10", "cifar100"],
    "run er --data = cifar100": ["cifar100"],
    "run --data fol": ["folder:"],
    "run er --keep-mo": ["--keep-model"],
    "run onpro --recipe ": list(recipes("onpro")),
    "run er --on ": ["local", "ray", "slurm"],
    "run er --stream ga": ["gaussian"],
    "figure con": ["confusion"],
    "table tableA": [f"tableA{number}" for number in range(1, 7)],
    "run er-rot --rota": ["--rotations"],
    "table table1 --methods er,onp": ["er,onpro"],
    "table table1 --form": ["--format"],
    "table table1 --format m": ["markdown"],
    "recipes onp": ["onpro"],
    "sweep swe": [],
    "run nothing --da": [],
    "nothing ": [],
}


@pytest.mark.parametrize("typed", OFFERED)
def test_what_fits_is_offered(onpro: Command, typed: str) -> None:
    answer = onpro("--complete", *typed.split(" "))
    assert (answer.status, answer.err) == (0, "")
    assert answer.out.split() == OFFERED[typed]


def test_every_command_and_its_options_are_offered(onpro: Command) -> None:
    assert onpro("--complete", "").out.split()[: len(COMMANDS)] == list(COMMANDS)
    assert set(methods()) < set(onpro("--complete", "run", "").out.split())
    for command in COMMANDS:
        assert "--help" in onpro("--complete", command, "--").out.split()


def test_another_shell_is_refused(onpro: Command) -> None:
    for arguments in (["--completion"], ["--completion", "csh"]):
        answer = onpro(*arguments)
        assert answer.status == 2
        assert all(shell in answer.err for shell in SCRIPTS)


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
@pytest.mark.parametrize(
    ("line", "offered"),
    [("onpro ru", "run"), ("onpro run e", "er erace"), ("onpro run er --da", "--data --data-dir")],
)
def test_bash_completes(tmp_path: Path, line: str, offered: str) -> None:
    onpro = tmp_path / "onpro"
    onpro.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m onpro "$@"\n')
    onpro.chmod(0o755)
    words = " ".join(f"'{word}'" for word in line.split())
    asked = f"""
        PATH={tmp_path}:$PATH
        eval "$(onpro --completion bash)"
        complete -p onpro | grep -q _onpro || exit 3
        COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        _onpro onpro; echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"{offered}\n", "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_scripts_are_correct(onpro: Command, tmp_path: Path, shell: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"needs {shell}")
    (tmp_path / "script").write_text(onpro("--completion", shell).out)
    subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)


def test_completion_imports_nothing_heavy() -> None:
    script = (
        "import sys; from onpro.cli import main;"
        "main(['--complete', 'run', 'er', '--data', 'c']);"
        "assert not {'torch', 'numpy', 'scipy'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
