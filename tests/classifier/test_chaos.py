"""Whatever happens to processes that save, a file is one of those that were saved, whole."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "operations",
    [
        pytest.param(200, marks=pytest.mark.thorough),
        pytest.param(10_000, marks=pytest.mark.slow),
    ],
    ids=["some", "many"],
)
def test_nothing_is_lost_when_processes_save_load_and_are_killed(
    tmp_path: Path, operations: int, record_property: Any
) -> None:
    given = [sys.executable, "-m", "tests.classifier.chaos", str(tmp_path), str(operations), "0"]
    done = subprocess.run(given, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    record_property("outcome", done.stdout)
    errors = tmp_path / "errors"
    assert not outcome["errors"], errors.read_text()[:2000]
    assert outcome["operations"] >= operations
    assert outcome["kills"] > 1
    assert outcome["leftovers"] <= 3 * (outcome["kills"] + 4), "at most one a thread"
