"""`--stream KIND` and its options, in every command that has them."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from onpro.errors import UserError
from onpro.experiments.grouping import found
from onpro.experiments.plan import Place, plan
from onpro.experiments.sweep import read_sweep
from onpro.figures import draw_streams
from onpro.figures.arrivals import shares
from onpro.reports import by_stream
from onpro.runs import read_runs
from onpro.streams import (
    Blurry,
    ClassIncremental,
    IBlurry,
    ShortcutSettings,
    stream_kind,
    stream_kinds,
)
from tests.cli.conftest import Command
from tests.streams.test_class_incremental import even

TINY = ("--data", "tiny", "--limit-per-class", "8", "--memory", "20", "--device", "cpu")
RUN = ("run", "er", *TINY, "--no-model", "--json")


@pytest.mark.parametrize("kind", list(stream_kinds()))
def test_a_run_has_the_stream_that_was_asked_for(onpro: Command, kind: str) -> None:
    answer = onpro(*RUN, "--stream", kind)
    assert answer.status == 0, answer.err
    result = json.loads(answer.out.splitlines()[-1])
    named = result["config"].get("stream", {"kind": "disjoint"})
    assert named == {"kind": kind} | stream_kind(kind).values()
    assert kind == "disjoint" or f"-{kind}-" in Path(result["run"]).name


def test_settings_of_the_stream_are_options(onpro: Command) -> None:
    answer = onpro(*RUN, "--stream=i-blurry", "--blur", "30", "--evaluations", "4")
    result = json.loads(answer.out.splitlines()[-1])
    stream = {"kind": "i-blurry", "disjoint_classes": 50.0, "blur": 30.0}
    assert (result["config"]["stream"], result["config"]["evaluations"]) == (stream, 4)
    shown = onpro("report", "runs").out
    assert "er, stream=i-blurry (blur=30.0)" in shown
    hidden = json.loads(onpro(*RUN, "--hide-boundaries").out.splitlines()[-1])
    assert hidden["config"]["hide_boundaries"] is True


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--stream", "blury"], "there is no stream 'blury'; did you mean 'blurry'?"),
        (["--blur", "3"], "the stream disjoint has no option --blur: add --stream blurry or"),
        (["--stream", "random", "--blur=3"], "the stream random has no option --blur: add"),
        (["--stream", "blurry", "--sizes", "ordered"], "add --stream long-tail, or leave it out"),
        (["--stream", "blurry", "--blur", "300"], "the blur of the stream blurry must be between"),
        (["--stream", "blurry", "--blur", "x"], "--blur takes FLOAT, not 'x'"),
        (["--stream"], "--stream"),
        (["--evaluations", "-1"], "the number of evaluations must be at least 0, not -1"),
        (["--evaluations", "999"], "999 evaluations are too many for a stream of 6 steps"),
    ],
)
@pytest.mark.parametrize("command", [RUN, ("table", "table1", "--data", "tiny")])
def test_a_mistake_is_told_in_one_sentence(
    onpro: Command, command: tuple[str, ...], arguments: list[str], sentence: str
) -> None:
    if command[0] == "table" and "999" in arguments:
        pytest.skip("a table runs what it can")
    answer = onpro(*command, *arguments)
    assert answer.status == 2
    assert sentence in answer.err
    assert answer.err.count("onpro: ") == 1


def test_a_table_runs_on_another_stream(onpro: Command) -> None:
    table = ("table", "table1", "--data", "tiny", "--methods", "er", "--memory", "20")
    asked = (*table, "--seeds", "1", "--limit-per-class", "8", "--stream", "blurry", "--blur", "20")
    answer = onpro(*asked, "--workers", "1", "--measures", "anytime", "--format", "json")
    assert answer.status == 0, answer.err
    (record,) = json.loads(answer.out)
    assert (record["n"], record["by_hand"]) == (1, "stream=blurry (blur=20.0), limit_per_class=8")
    (folder,) = Path("runs").iterdir()
    result = json.loads((folder / "result.json").read_text())
    assert record["anytime_mean"] == result["anytime_accuracy"]
    assert "anytime, %" in onpro(*asked, "--measures", "anytime").out
    assert result["config"]["stream"] == {"kind": "blurry", "blur": 20.0}


def sweep(text: str) -> list[Any]:
    Path("sweep.toml").write_text(text)
    return read_sweep(Path("sweep.toml"))


def test_streams_and_their_settings_are_axes_of_a_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    setups = sweep(
        '[[runs]]\nmethod = "er"\nstream = ["disjoint", "blurry", "i-blurry"]\n'
        "blur = [10, 30]\ndisjoint_classes = 20\n"
    )
    assert [dict(one.stream).get("stream") for one in setups] == [
        None,
        Blurry(10),
        Blurry(30),
        IBlurry(20, 10),
        IBlurry(20, 30),
    ]
    planned = plan(setups, tmp_path, Place()).experiments
    assert [one.name for one in planned][:3] == [
        "er",
        "er, stream=blurry",
        "er, stream=blurry (blur=30.0)",
    ]


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ('stream = "blury"', "line 3: there is no stream 'blury'; did you mean 'blurry'"),
        ("blur = 10", "line 3: blur is a setting of the stream blurry and of i-blurry: add stream"),
        ('stream = "blurry"\nblur = 300', "line 4: the blur of the stream blurry must be between"),
        ('stream = "blurry"\nblur = "x"', "line 4: blur takes a number, or a list of such"),
        ("hide_boundaries = 3", "line 3: hide_boundaries takes true or false"),
        ("evaluations = -3", "line 3: the number of evaluations must be at least 0"),
        ("blurr = 3", "line 3: there is no key 'blurr'; did you mean 'blur'"),
    ],
)
def test_a_mistake_in_a_sweep_is_told_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=sentence):
        sweep(f'[[runs]]\nmethod = "er"\n{lines}\n')


def test_methods_are_shown_against_streams(onpro: Command) -> None:
    for kind in ("random", "blurry", "disjoint"):
        assert onpro(*RUN, "--stream", kind).status == 0
    lines = onpro("report", "runs", "--streams").out.splitlines()
    assert lines[0] == "| accuracy, % | disjoint | blurry | random |"
    assert lines[4] == "| anytime, % | disjoint | blurry | random |"
    assert lines[2].startswith("| er, limit_per_class=8 | ")
    assert lines[-1] == "tiny, M = 20: mean ± standard deviation in percent; seeds: 0."


def test_of_runs_that_differ_in_their_evaluations_most_are_shown(onpro: Command) -> None:
    for more in (["--seeds", "3"], ["--seed", "3", "--evaluations", "4"]):
        assert onpro(*RUN, "--stream", "blurry", *more).status == 0
    experiments = found(read_runs([Path("runs")]))
    for order in (experiments, experiments[::-1]):
        accuracy, empty = by_stream(order).splitlines()[2:4]
        assert ("±" in accuracy, empty) == (True, "")


def test_anytime_accuracies_of_other_evaluations_have_tables_of_their_own(onpro: Command) -> None:
    for kind, more in (("blurry", []), ("random", ["--evaluations", "2"]), ("random", [])):
        assert onpro(*RUN, "--stream", kind, *more).status == 0
    lines = onpro("report", "runs", "--streams").out.splitlines()
    headers = [lines[at - 1] for at, line in enumerate(lines) if line.startswith("| ---")]
    assert headers == [
        "| accuracy, % | blurry | random |",
        "| anytime, % (evaluations=0) | blurry | random |",
        "| anytime, % (evaluations=2) | random |",
    ]


def test_streams_of_other_precisions_are_told_apart(onpro: Command) -> None:
    for precision in ("fp32", "bf16"):
        assert onpro(*RUN, "--stream", "blurry", "--precision", precision).status == 0
    lines = onpro("report", "runs", "--streams").out.splitlines()
    names = {line.split(" | ")[0] for line in lines[2:4]}
    assert names == {"| er, limit_per_class=8, fp32", "| er, limit_per_class=8, bf16"}


@pytest.mark.parametrize("kind", list(stream_kinds()))
def test_a_stream_is_drawn_without_training(onpro: Command, kind: str) -> None:
    answer = onpro("figure", "stream", "--data", "tiny", "--stream", kind, "--evaluations", "6")
    assert (answer.status, answer.out) == (0, "saved stream.png\n")
    with Image.open("stream.png") as image:
        assert len(image.convert("L").getcolors() or []) > 20


def test_the_stream_of_a_run_is_drawn(onpro: Command) -> None:
    run = json.loads(onpro(*RUN, "--stream", "blurry").out.splitlines()[-1])["run"]
    assert onpro(*RUN, "--stream", "random", "--seeds", "2").status == 0
    assert onpro("figure", "stream", run, "--out", "one.svg").status == 0
    assert onpro("figure", "stream", "runs", "--out", "all.svg").status == 0
    assert len(Path("all.svg").read_text()) > len(Path("one.svg").read_text())


def test_of_many_seeds_the_stream_of_the_first_is_drawn(
    onpro: Command, caplog: pytest.LogCaptureFixture
) -> None:
    assert onpro(*RUN, "--stream", "random", "--seed", "3", "--seeds", "9").status == 0
    assert onpro(*RUN, "--seed", "4").status == 0
    answer = onpro("figure", "stream", "runs", "--out", "many.svg")
    assert (answer.status, answer.out) == (0, "saved many.svg\n")
    assert "left out: all seeds but the first of each stream, 10 in all" in caplog.text
    titles = re.findall(r"<!-- (.*seed \d+) -->", Path("many.svg").read_text())
    assert sorted(title.split(", ")[1::2] for title in titles) == [
        ["disjoint", "seed 4"],
        ["random", "seed 3"],
    ]
    for blur in range(7):
        assert onpro(*RUN, "--stream", "blurry", "--blur", str(blur)).status == 0
    answer = onpro("figure", "stream", "runs")
    assert answer.status == 2
    assert "these runs have 9 different streams: name fewer, at most 8" in answer.err


def test_shares_are_those_of_the_stream() -> None:
    stream = ClassIncremental(even(6, 40), 3)
    found = shares(stream)
    assert found.sum(axis=0) == pytest.approx(np.full(found.shape[1], 100))
    assert found[:2, : found.shape[1] // 3].sum() == pytest.approx(100 * found.shape[1] / 3)
    assert not found[2:, : found.shape[1] // 3].any()


def test_many_classes_are_drawn_too(tmp_path: Path) -> None:
    for classes in (1, 30):
        stream = ClassIncremental(even(classes, 3), 1)
        draw_streams({"$a^b_{$": stream}, tmp_path / f"{classes}.png")
        assert (tmp_path / f"{classes}.png").stat().st_size > 5000


def test_a_shortcut_is_an_option_of_runs_tables_and_sweeps(onpro: Command, tmp_path: Path) -> None:
    answer = onpro(*RUN, "--shortcut", "0.9", "--shortcut-size", "0.3")
    assert answer.status == 0, answer.err
    result = json.loads(answer.out.splitlines()[-1])
    cue = {"shortcut": 0.9, "shortcut_size": 0.3, "shortcut_strength": 1.0}
    assert {name: result["config"][name] for name in cue} == cue
    assert "cue-following rate" in answer.err
    shown = onpro("report", "runs", "--measures", "reliance,following,no_cue").out
    assert "| er, limit_per_class=8, shortcut=0.9, shortcut_size=0.3 |" in shown
    assert "following_mean" in onpro("report", "runs", "--format", "csv").out
    path = tmp_path / "sweep.toml"
    path.write_text(
        '[[runs]]\nmethod = "er"\ndata = "tiny"\nshortcut = [0, 0.5]\nshortcut_strength = 0.5\n'
    )
    planned = plan(read_sweep(path), tmp_path, Place())
    cues = [run.config.cue() for run in planned.runs()]
    assert cues == [None, ShortcutSettings(0.5, strength=0.5)]
    table = onpro("table", "table1", "--dry-run", "--shortcut", "0.5", "--format", "markdown")
    assert table.status == 0, table.err
    assert "shortcut=0.5" in table.out


def test_reports_without_a_shortcut_do_not_mention_it(onpro: Command) -> None:
    onpro(*RUN)
    assert "reliance" not in onpro("report", "runs", "--format", "csv").out
    answer = onpro("report", "runs", "--measures", "reliance")
    assert answer.status == 2
    assert "none of these runs has measured 'reliance'" in answer.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--shortcut-size", "0.3"], "--shortcut-size is for --shortcut SHARE: add that"),
        (["--shortcut", "2"], "the share of a shortcut must be above 0 and at most 1, not 2."),
        (["--shortcut", "1", "--shortcut-strength", "0"], "strength of a shortcut must be above 0"),
        (["--shortcut", "1", "--stream", "random"], "each class arrives in one task"),
        (["--shortcut", "1", "--tasks", "6"], "task 1 of 6 has one class only: use fewer tasks"),
    ],
)
def test_shortcuts_that_cannot_work_are_refused(
    onpro: Command, arguments: list[str], sentence: str
) -> None:
    answer = onpro(*RUN, *arguments)
    assert answer.status == 2
    assert sentence in answer.err
