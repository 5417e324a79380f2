"""The tutorial runs as it stands."""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
import torch

from onpro.methods import registry

NOTEBOOK = Path(__file__).parents[2] / "docs" / "tutorial.ipynb"


def cells() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text())["cells"]
    return [cell for cell in found if cell["cell_type"] == "code"]


def test_the_tutorial_shows_what_it_gives() -> None:
    outputs = [output for cell in cells() for output in cell["outputs"]]
    assert not any(output["output_type"] == "error" for output in outputs)
    shown = [output.get("data", {}) for output in outputs]
    assert sum("image/png" in data for data in shown) == 4
    assert sum("text/html" in data and "image/png" not in data for data in shown) == 3
    assert all("alt" in cell["metadata"] for cell in cells() if "image/png" in str(cell["outputs"]))


@pytest.mark.thorough
def test_the_tutorial_runs_and_shows_forgetting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mpl.use("agg")
    threads = torch.get_num_threads()
    names: dict[str, Any] = {"__name__": "tutorial"}
    try:
        for cell in cells():
            exec(compile("".join(cell["source"]), str(NOTEBOOK), "exec"), names)
    finally:
        torch.set_num_threads(threads)
        names["plt"].close("all")
    average = {
        run.result["method"]: run.result["average_accuracy"]
        for run in names["read_runs"]([names["runs"]])
    }
    assert average["fine-tuning"] < 30, "all but the last task is forgotten"
    assert average["er"] > average["fine-tuning"] + 10
    assert average["onpro"] > average["fine-tuning"] + 10
