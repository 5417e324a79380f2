"""`onpro figure`."""

import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from onpro.cli import main
from onpro.figures import FIGURES
from onpro.methods import ReplaySettings, settings_for
from onpro.runs import RunConfig, run
from tests.reports.made_up import result, save


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "runs", result())
    (tmp_path / "figures").mkdir()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("out", "written"),
    [
        ([], "accuracy.png"),
        (["--out", "mine"], "mine.png"),
        (["--out", "mine.svg"], "mine.svg"),
        (["--out", "figures"], "figures/accuracy.png"),
    ],
)
def test_it_says_which_file_it_has_written(
    out: list[str], written: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["figure", "accuracy", "runs", *out]) == 0
    assert capsys.readouterr().out == f"saved {written}\n"
    assert Path(written).is_file()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name a figure and run folders: onpro figure accuracy runs; see --list"),
        (["accuracy"], "name a figure and run folders"),
        (["runs"], "there is no figure 'runs'"),
        (["sweep", "runs", "--x", "nothing"], "there is no setting of these runs 'nothing'"),
        (["paper", "runs", "--measure", "nothing"], "there is no measure 'nothing'"),
        (
            ["accuracy", "runs", "--measure", "forgetting"],
            "--measure is for the figures paper, sweep: leave it out",
        ),
        (
            ["accuracy", "runs", "--x", "memory"],
            "--x is for the figures attention, compute, features, sweep: leave",
        ),
        (["attention", "runs", "--after", "1"], "--after is for the figure features: leave it out"),
        (["memory", "runs", "--tasks", "2"], "--tasks is for the figure stream without runs:"),
        (["stream", "runs", "--data", "tiny"], "--data is for the figure stream without runs:"),
    ],
)
def test_it_says_what_it_needs(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["figure", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_the_list_says_what_each_figure_shows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figure", "--list"]) == 0
    listed = capsys.readouterr().out
    assert "confusion" in listed
    assert "(Fig. 4b)" in listed


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short runs of ER on digits with all that figures need, which differ in the replay batch."""
    out = tmp_path_factory.mktemp("digits")
    settings = settings_for("er", "digits")
    assert isinstance(settings, ReplaySettings)
    config = RunConfig("er", settings, "digits", memory=50, limit_per_class=30, shortcut=0.9)
    config = replace(config, model="network", task_networks=True, probe="prototypes")
    for size in (10, 20):
        run(replace(config, settings=replace(settings, replay_batch=size), probe_every=2), out)
    return out


@pytest.mark.thorough
@pytest.mark.parametrize("width", ["column", "page"])
@pytest.mark.parametrize("name", [*sorted(set(FIGURES) - {"paper"}), "stream"])
def test_every_figure_is_drawn_from_digits(name: str, width: str, digits: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for ending in ("png", "svg"):
            out = ["--out", f"figure.{ending}", "--width", width]
            assert main(["figure", name, str(digits), *out]) == 0
    with Image.open("figure.png") as image:
        assert image.width <= {"column": 670, "page": 1380}[width]
        assert len(image.convert("L").getcolors() or []) > 20
    labels = Path("figure.svg").read_text()
    assert "digits" in labels or name == "attention"
    expected = {"attention": "task 1", "stream": "images seen", "replay": "training time"}
    assert expected.get(name, "replay_batch=20" if name != "sweep" else "replay batch") in labels
