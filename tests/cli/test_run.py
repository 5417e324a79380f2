"""`onpro run`: what it prints, what it saves, and which setting wins."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from onpro.methods import registry
from onpro.training import EvaluationEvent
from tests.cli.conftest import Answer, Command

TINY = ["--data", "tiny", "--limit-per-class", "6", "--device", "cpu", "--out", "out"]


def result(answer: Answer) -> Any:
    """The JSON on the only line of standard output."""
    assert answer.status == 0, answer.err
    assert len(answer.out.splitlines()) == 1
    return json.loads(answer.out)


def configuration(tmp_path: Path) -> Any:
    (file,) = tmp_path.glob("out/*/config.json")
    return json.loads(file.read_text())


def test_the_accuracy_after_each_task_the_averages_and_the_folder_are_printed(
    onpro: Command, tmp_path: Path
) -> None:
    answer = onpro("run", "er", *TINY)
    (folder,) = (tmp_path / "out").iterdir()
    assert answer.status == 0
    for words in ("after task 1", "after task 3", "average accuracy", "average forgetting"):
        assert words in answer.out
    assert f"out/{folder.name}" in answer.out
    assert "task 3/3, step 6/6" in answer.err, "progress"
    assert "task 3/3, step 6/6" not in answer.out
    assert max(map(len, answer.out.splitlines())) <= 80


def test_a_run_in_a_renamed_folder_is_not_repeated(onpro: Command, tmp_path: Path) -> None:
    first = result(onpro("run", "er", *TINY, "--json"))
    (folder,) = (tmp_path / "out").iterdir()
    folder.rename(tmp_path / "out" / "my best run")
    answer = onpro("run", "er", *TINY, "--json")
    assert "already finished: out/my best run" in answer.err
    assert result(answer) == first | {"run": "out/my best run"}
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["my best run"]


def test_json_is_all_of_standard_output(onpro: Command, tmp_path: Path) -> None:
    answer = onpro("run", "er", *TINY, "--json")
    said = result(answer)
    saved = json.loads((tmp_path / said["run"] / "result.json").read_text())
    assert {key: said[key] for key in saved} == saved
    assert "average accuracy" in answer.err
    assert "(the data set's values)" in answer.err


def test_without_a_method_it_is_onpro_on_digits(onpro: Command) -> None:
    said = result(onpro("run", "--limit-per-class", "4", "--device", "cpu", "--json"))
    assert (said["method"], said["data"], said["memory"]) == ("onpro", "digits", 100)
    assert said["run"].startswith("runs/onpro-digits-m100-s0-")
    assert len(said["accuracy"]) == 5


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--feedback", "2", "the feedback must be between 0 and 1, not 2.0."),
        ("--encoder", "resnet81", "there is no encoder 'resnet81'; did you mean 'resnet18'?"),
        ("--augmentation", "ocm+crops", "there is no augmentation 'crops'; did you mean 'crop'?"),
    ],
)
def test_a_bad_setting_is_refused_before_data_are_looked_for(
    onpro: Command, option: str, value: str, sentence: str
) -> None:
    answer = onpro("run", "--data", "cifar10", "--data-dir", "nowhere", option, value)
    assert answer.status == 2
    assert answer.err.startswith(f"onpro: {sentence}")


def test_several_seeds_are_a_list_and_a_summary(onpro: Command) -> None:
    answer = onpro("run", "er", *TINY, "--seed", "3", "--seeds", "2", "--json")
    said = result(answer)
    assert [run["seed"] for run in said] == [3, 4]
    assert "2 runs" in answer.err
    assert "95 % interval" in answer.err


def test_several_seeds_are_a_list_also_if_all_but_one_fail(onpro: Command, tmp_path: Path) -> None:
    alone = result(onpro("run", "er", *TINY, "--seed", "1", "--json"))
    for file in (folder := tmp_path / alone["run"]).iterdir():
        file.rename(folder / f"{file.name}.txt")
    answer = onpro("run", "er", *TINY, "--seeds", "2", "--json")
    assert (answer.status, [run["seed"] for run in json.loads(answer.out)]) == (1, [0])
    assert "is not the folder of a run" in answer.err


def test_a_finished_run_is_not_run_again_unless_asked(onpro: Command, tmp_path: Path) -> None:
    command = ["run", "er", *TINY, "--json"]
    first = result(onpro(*command))
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / first["run"]).iterdir()}

    second = onpro(*command)
    assert "already finished" in second.err
    assert "steps" not in second.err, "nothing was trained"
    assert result(second) == first
    assert {path: path.stat().st_mtime_ns for path in files} == files

    third = onpro(*command, "--fresh")
    assert "already finished" not in third.err
    assert result(third)["confusion"] == first["confusion"]
    assert all(path.stat().st_mtime_ns > before for path, before in files.items())
    assert len(list((tmp_path / "out").iterdir())) == 1


def test_another_setting_is_another_run(onpro: Command, tmp_path: Path) -> None:
    for changes in ([], ["--seed", "1"], ["--memory", "50"], ["--learning-rate", "0.05"]):
        assert "already finished" not in onpro("run", "er", *TINY, *changes).err
    assert len(list((tmp_path / "out").iterdir())) == 4


def test_the_values_of_the_data_set_are_used_and_announced(onpro: Command, tmp_path: Path) -> None:
    answer = onpro("run", "onpro", *TINY)
    assert "encoder=slim" in answer.out
    assert "rotations=4" in answer.out
    settings = configuration(tmp_path)["settings"]
    assert (settings["encoder"], settings["rotations"]) == ("slim", 4)


def test_an_option_beats_the_data_set(onpro: Command, tmp_path: Path) -> None:
    answer = onpro("run", "onpro", *TINY, "--rotations", "1", "--projection=32")
    settings = configuration(tmp_path)["settings"]
    assert (settings["rotations"], settings["projection"]) == (1, 32)
    assert settings["encoder"] == "slim"
    assert "rotations=" not in answer.out, "announced is only what holds"


def test_a_recipe_beats_the_data_set_and_an_option_beats_both(
    onpro: Command, tmp_path: Path
) -> None:
    answer = onpro("run", *TINY, "--recipe", "without-projector", "--rotations", "1")
    assert "recipe without-projector: Table A6" in answer.out
    settings = configuration(tmp_path)["settings"]
    assert (settings["projection"], settings["rotations"]) == (0, 1)

    said = result(
        onpro("run", *TINY, "--recipe", "baseline", "--mixup", "--rotations", "1", "--json")
    )
    settings = json.loads((tmp_path / said["run"] / "config.json").read_text())["settings"]
    assert settings["mixup"] is True
    assert settings["new_prototypes"] is False


@pytest.mark.parametrize("name", ["class", "er-2", "my.own", "3d"])
def test_a_method_may_have_any_name(
    onpro: Command, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(registry._METHODS, name, registry._METHODS["er"])
    said = result(onpro("run", name, *TINY, "--learning-rate", "0.05", "--json"))
    assert said["method"] == name


@pytest.mark.parametrize("base", [["--base", "er"], ["--base=er"]])
def test_a_wrapper_can_be_given_its_method_as_an_option(onpro: Command, base: list[str]) -> None:
    wrapped = onpro("run", "rot", *base, *TINY, "--rotations", "4", "--json")
    assert result(wrapped)["method"] == "er-rot"


def test_underscores_and_equals_signs_are_fine(onpro: Command) -> None:
    said = result(onpro("run", "er", *TINY, "--batch_size=5", "--no-fresh", "--json"))
    assert said["steps"] == 9


def test_options_of_the_stream_reach_it(onpro: Command, tmp_path: Path) -> None:
    stream = ["--tasks", "2", "--class-order", "random", "--image-size", "8", "--batch-size", "6"]
    said = result(onpro("run", "er", *TINY, *stream, "--json"))
    assert len(said["accuracy"]) == 2
    assert said["steps"] == 6
    assert said["classes"] != sorted(said["classes"])
    assert configuration(tmp_path)["image_size"] == 8


def test_a_folder_of_images_can_be_learned(onpro: Command, tmp_path: Path) -> None:
    from PIL import Image

    for number, name in enumerate(("cat", "dog", "elk", "fox")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for k in range(5):
            Image.new("RGB", (9, 12), (60 * number, 20 * k, 0)).save(
                tmp_path / "photos" / name / f"{k}.jpg"
            )
    folder = ["--data", "folder:photos", "--image-size", "8", "--device", "cpu"]
    said = result(onpro("run", "er", *folder, "--json"))
    assert said["classes"] == ["cat", "dog", "elk", "fox"]
    assert len(said["accuracy"]) == 2
    assert said["run"].startswith("runs/er-folder_photos-")


def test_ctrl_c_keeps_nothing_of_the_run(
    onpro: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onpro.cli.live.Bar.on_evaluation", interrupt)
    answer = onpro("run", "er", *TINY)
    assert answer.status == 130
    assert answer.err.splitlines()[-1] == ("onpro: interrupted; the unfinished run was not kept.")
    assert not list((tmp_path / "out").iterdir())


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)


TYPED_IN = """
from dataclasses import dataclass
from onpro.methods import register
from onpro.methods.er import ER, ERSettings

@dataclass(frozen=True)
class MineSettings(ERSettings):
    extra: int = 1

@register("mine", MineSettings, title="", paper="", year=2026, memory="", inference="",
          images_per_step="")
class Mine(ER):
    pass
"""


def test_a_method_that_was_typed_in_and_is_in_no_file_runs(
    onpro: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))
    module = ModuleType("typed_in")
    monkeypatch.setitem(sys.modules, "typed_in", module)
    exec(TYPED_IN, vars(module))
    assert onpro("run", "mine", *TINY, "--extra", "2").status == 0


def test_on_a_terminal_a_bar_shows_how_the_run_goes(
    onpro: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_terminal(monkeypatch)
    answer = onpro("run", "er", *TINY)
    assert answer.status == 0
    assert "task 3/3, step 6/6: accuracy" in answer.err
    assert "images/s" in answer.err
    assert "\x1b[" not in answer.out


def test_an_interrupted_run_leaves_the_terminal_in_order(
    onpro: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_terminal(monkeypatch)
    monkeypatch.setattr("onpro.cli.live.Bar.on_evaluation", interrupt)
    answer = onpro("run", "er", *TINY)
    hidden, shown = "\x1b[?25l", "\x1b[?25h"
    assert answer.status == 130
    assert answer.err.rindex(shown) > answer.err.rindex(hidden), "the cursor is visible again"


def interrupt(self: Callable[..., None], evaluated: EvaluationEvent) -> None:
    raise KeyboardInterrupt
