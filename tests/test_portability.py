"""The package imports and runs where POSIX's own modules and functions are missing."""

import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT_POSIX = """
import os, signal, sys

MISSING = {"fcntl", "grp", "pwd", "resource", "termios"}

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name in MISSING:
            raise ImportError(name)

for name in MISSING:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Finder())
for name in "O_NOFOLLOW", "O_NONBLOCK", "fchown", "getuid", "sched_getaffinity", "set_blocking":
    vars(os).pop(name, None)
for name in "SIGHUP", "SIGPIPE":
    vars(signal).pop(name, None)
"""

USING = """
import onpro
from onpro import OnlineClassifier
import onpro.bench, onpro.cli, onpro.experiments, onpro.figures, onpro.reports, onpro.runs

assert onpro.cli.main(["methods"]) == 0
assert onpro.cli.main(["run", "er", "--data", "tiny"]) == 0
"""


@pytest.mark.thorough
def test_the_command_works_without_posix(tmp_path: Path) -> None:
    used = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WITHOUT_POSIX + USING],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert used.returncode == 0, used.stderr
    assert "average accuracy" in used.stdout
    (folder,) = (tmp_path / "runs").iterdir()
    assert (folder / "result.json").is_file()
