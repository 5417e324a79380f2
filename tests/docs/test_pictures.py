"""The pictures in the documentation that name their command show the stored runs."""

import re
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from PIL import Image

from onpro.cli import main

ROOT = Path(__file__).parents[2]
PICTURE = re.compile(r"<!-- onpro figure (.*?) --out (\S+\.png) -->\n+!\[[^\]]*\]\((\S+)\)")
FOUND = [
    (page, *found)
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    for found in PICTURE.findall(page.read_text())
]


def test_each_command_draws_the_picture_below_it() -> None:
    assert len(FOUND) >= 12
    for page, _, out, shown in FOUND:
        assert (page.parent / shown).resolve() == ROOT / out


@pytest.mark.parametrize(("arguments", "out"), [found[1:3] for found in FOUND])
def test_pictures_are_those_of_the_stored_runs(
    arguments: str, out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Image.open(ROOT / out)
    if f"version{matplotlib.__version__}," not in kept.info["Software"]:
        pytest.skip("another version of Matplotlib has drawn it")
    monkeypatch.chdir(ROOT)
    assert main(["figure", *arguments.split(), "--out", str(tmp_path / "drawn.png")]) == 0
    drawn = Image.open(tmp_path / "drawn.png")
    assert drawn.size == kept.size, "run: uv run python results/update.py"
    one, other = (np.asarray(picture.convert("L"), dtype=int) for picture in (drawn, kept))
    assert (abs(one - other) > 64).sum() < 20, "run: uv run python results/update.py"
