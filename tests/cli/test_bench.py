"""`onpro bench`: every method is measured, figures are printed, saved and shown again."""

import json
from pathlib import Path

import pytest

from onpro.data.lazy import LIMIT
from onpro.methods import methods
from tests.cli.conftest import Command
from tests.data.made_up_imagenet import write_pool

SMALL = [
    "--like", "tiny", "--image-size", "8", "--classes", "4", "--tasks", "2", "--memory", "8",
    "--batch-size", "2", "--steps", "1", "--repeats", "1", "--device", "cpu",
]  # fmt: skip


@pytest.mark.thorough
def test_all_methods_are_measured_and_shown_again(onpro: Command, tmp_path: Path) -> None:
    answer = onpro("bench", "all", *SMALL, "--json", "--save", "kept/bench.json")
    assert answer.status == 0, answer.err
    (line,) = answer.out.splitlines()
    measured = json.loads(line)
    assert measured == json.loads((tmp_path / "kept" / "bench.json").read_text())
    assert measured["versions"].keys() >= {"onpro", "torch"}
    assert measured["hardware"]["threads"] == 1, "as a run has them"
    assert measured["peak_tflops"] > 0

    assert [result["method"] for result in measured["results"]] == list(methods())
    for result in measured["results"]:
        assert [phase["task"] for phase in result["phases"]] == [1, 2]
        for phase in result["phases"]:
            assert phase["ms_low"] <= phase["ms"] <= phase["ms_high"]
            assert sum(phase["breakdown"].values()) > 0
            assert (phase["images"] > 0) == (result["method"] != "gdumb")

    shown = onpro("bench", "--show", "kept/bench.json")
    assert shown.status == 0
    rows = [line for line in shown.out.splitlines() if line.startswith("| onpro | 8 | 4 | eager |")]
    assert len(rows) == 2
    assert "images of 8×8, batches of 2, 2 tasks; 1 block of 1 step." in shown.out


@pytest.mark.thorough
def test_several_numbers_of_classes_are_measured(onpro: Command) -> None:
    answer = onpro("bench", "gdumb", *SMALL, "--classes", "4,6")
    assert answer.status == 0, answer.err
    assert answer.out.count("ms per step") == 2
    assert "6 classes in 2 tasks" in answer.out
    assert max(map(len, answer.out.splitlines()[:-1])) <= 80


def test_a_method_that_cannot_be_measured_does_not_take_the_others_along(onpro: Command) -> None:
    # CoPE needs room for an image of every class.
    answer = onpro("bench", "cope", "gdumb", *SMALL, "--memory", "2")
    assert answer.status == 0
    assert "cope is left out" in answer.err
    assert "gdumb, memory of 2 images" in answer.out


def test_waiting_for_images_is_measured(
    onpro: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LIMIT, "0")
    for name in ("owl", "wren"):
        write_pool(tmp_path / "birds" / name, 40, [(20, 16)])
    small = ["--data", "folder:birds", "--image-size", "12", "--batch-size", "2"]
    few = ["--tasks", "2", "--steps", "3", "--memory", "4", "--device", "cpu"]
    answer = onpro("bench", "er", *small, *few, "--json")
    assert answer.status == 0, answer.err
    (measured,) = json.loads(answer.out)
    assert measured["ms"] > 0
    assert measured["ms_without_waiting"] > 0
    assert 0 < measured["ms_fetching"] < measured["ms"]
    assert 0 <= measured["waiting_percent"] < 100
    assert (measured["steps"], measured["image_size"], measured["engine"]) == (3, 12, "eager")
    assert "without waiting" in answer.err
    longer = onpro("bench", "er", *small, *few, "--steps", "400")
    assert longer.status == 2
    assert "give fewer --steps" in longer.err
    compressed = onpro("bench", "er-compressed", *small, *few, "--steps", "400")
    assert "26 to fill the memory" in compressed.err, "of 11 images"


def test_help_fits_80_columns(onpro: Command) -> None:
    answer = onpro("bench", "--help")
    assert answer.status == 0
    assert max(map(len, answer.out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["ers"], "er"),
        (["--compare", "eager,graphs"], "graph"),
        (["--compare", ","], "eager,graph"),
        (["--engine", "graph", "--device", "cpu"], "needs a GPU"),
        (["--memory", "many"], "--memory takes comma-separated whole numbers from 1"),
        (["--classes", "0"], "--classes takes comma-separated whole numbers from 1"),
        (["--tasks", "11"], "10 classes make 1 to 10 tasks"),
        (["--image-size", "0"], "--image-size must be at least 1"),
        (["--steps", "0"], "the number of steps must be at least 1"),
        (["--like", "folder"], "give --classes"),
        (["--save", "."], "cannot write"),
        (["--data", "digits", "--save", "bench.json"], "--save does not go with --data"),
        (["--data", "digits", "--threads", "-1"], "at least 1 thread"),
        (["--show"], "name at least one file"),
        (["--show", "nowhere.json"], "there is no file nowhere.json"),
    ],
)
def test_mistakes_are_explained(onpro: Command, arguments: list[str], sentence: str) -> None:
    answer = onpro("bench", *arguments)
    assert answer.status == 2
    assert sentence in answer.err
    assert not answer.out


def test_another_file_is_not_shown(onpro: Command, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"results": []}')
    answer = onpro("bench", "--show", "other.json")
    assert answer.status == 2
    assert "other.json is not what onpro bench --save writes" in answer.err
