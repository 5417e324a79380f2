"""The tests of kernels without a GPU: Triton interprets them on a CPU, slowly."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onpro.nn import fused_kernels_exist

HERE = Path(__file__).parent
FILES = ["nn/test_batch_norm.py", "augment/test_fused_ocm.py"]


@pytest.mark.thorough
@pytest.mark.skipif(not fused_kernels_exist(), reason="needs Triton")
def test_triton_interprets_the_kernels_on_a_cpu() -> None:
    options = ["-q", "-n", "0", "-p", "no:cacheprovider", "-m", "gpu"]
    chosen = ["-k", "not float16"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *chosen, *(HERE / file for file in FILES)],
        env=os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        cwd=HERE.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout
