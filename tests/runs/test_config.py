"""What tells one run from another."""

import re
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from onpro.errors import UserError
from onpro.methods import settings_for
from onpro.methods.er import ERSettings
from onpro.methods.onpro import OnProSettings
from onpro.methods.settings import PRETRAINED
from onpro.runs import RunConfig, read_config, read_runs
from onpro.runs.config import KEEPING, digest
from onpro.runs.config_file import parse_config
from onpro.runs.files import write_json
from onpro.runs.result import describe
from onpro.streams import Blurry

RESULTS = Path(__file__).parents[2] / "results" / "cifar10.jsonl"
CONFIG = RunConfig(method="onpro", settings=OnProSettings())

OTHERS: dict[str, Any] = {
    "method": "er",
    "settings": ERSettings(),
    "data": "tiny",
    "memory": 200,
    "stream": Blurry(),
    "hide_boundaries": True,
    "evaluations": 20,
    "shortcut": 0.9,
    "tasks": 2,
    "batch_size": 5,
    "class_order": "random",
    "image_size": 16,
    "limit_per_class": 3,
    "validation": 0.1,
    "precision": "bf16",
    "deterministic": True,
}


def other(value: Any, hint: Any) -> Any:
    """A different value of the same kind, as possible as the first."""
    if get_origin(hint) is Literal:
        return next(option for option in get_args(hint) if option != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, tuple):
        return (0.5, *value[1:])
    if isinstance(value, str):
        return {"resnet18": "slim", "ocm": "crop"}[value]
    return type(value)(value / 2)


def test_another_seed_has_the_same_hash_and_another_folder() -> None:
    again = replace(CONFIG, seed=7)
    assert again.hash == CONFIG.hash
    assert again.folder != CONFIG.folder


@pytest.mark.parametrize("field", OTHERS)
def test_any_other_value_has_another_hash(field: str) -> None:
    assert replace(CONFIG, **{field: OTHERS[field]}).hash != CONFIG.hash


def test_every_field_is_in_the_hash_but_the_seed_the_recipe_and_the_place() -> None:
    known = {field.name for field in fields(RunConfig)}
    elsewhere = {
        "seed",
        "recipe",
        "data_dir",
        "device",
        "engine",
        "method_file",
        "stream_file",
    } | KEEPING
    only_with_cues = {"shortcut_size", "shortcut_strength"}  # tests/runs/test_shortcut.py
    only_if_pretrained = {"encoder_sha256"}  # tests/methods/test_pretrained.py
    assert known - set(OTHERS) == elsewhere | only_with_cues | only_if_pretrained


def test_stored_runs_keep_their_names() -> None:
    for run in read_runs([RESULTS]):
        config = parse_config(run.config)
        assert config.folder == run.folder.name
        assert not config.deterministic


def test_a_deterministic_run_is_read_back(tmp_path: Path) -> None:
    config = replace(CONFIG, deterministic=True)
    write_json(tmp_path / "config.json", describe(config))
    assert read_config(tmp_path) == config


def test_a_recipe_is_only_a_name_for_settings() -> None:
    named = replace(CONFIG, recipe="alpha-0.25")
    assert named.folder == CONFIG.folder
    assert named.what()["recipe"] == "alpha-0.25"


@pytest.mark.parametrize(
    "field", [field.name for field in fields(OnProSettings) if field.name not in PRETRAINED]
)
def test_every_setting_of_the_method_is_in_the_hash(field: str) -> None:
    hint = get_type_hints(OnProSettings)[field]
    changed = {field: other(getattr(CONFIG.settings, field), hint)}
    assert replace(CONFIG, settings=replace(CONFIG.settings, **changed)).hash != CONFIG.hash


def test_the_place_does_not_change_what_is_computed() -> None:
    moved = replace(CONFIG, data_dir=Path("elsewhere"), device="cpu")
    assert moved.folder == CONFIG.folder


def test_the_folder_says_what_is_in_it() -> None:
    config = replace(CONFIG, data="tiny", memory=50, seed=3)
    assert re.fullmatch(r"onpro-tiny-m50-s3-[0-9a-f]{8}", config.folder)


@pytest.mark.parametrize("data", ["folder:/home/me/my birds", "folder:../x", "folder:" + 300 * "x"])
def test_the_folder_of_any_data_is_one_name_a_file_system_takes(data: str, tmp_path: Path) -> None:
    name = replace(CONFIG, data=data).folder
    assert re.fullmatch(r"onpro-folder_[\w.]+-m100-s0-[0-9a-f]{8}", name)
    (tmp_path / name).mkdir()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_folders_of_long_paths_stay_apart() -> None:
    first, second = (replace(CONFIG, data=f"folder:{300 * 'x'}{end}") for end in "ab")
    assert first.folder != second.folder


def test_what_is_computed_is_plain_values() -> None:
    what = CONFIG.what()
    assert what["settings"] | PRETRAINED == asdict(CONFIG.settings)
    assert what["seed"] == 0


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"memory": 0}, "at least 1 image, not 0"),
        ({"memory": -3}, "at least 1 image, not -3"),
        ({"memory": 9}, "smaller than a batch of 10"),
        ({"seed": -1}, "at least 0"),
        ({"seed": 2**63}, "below 2\\^63"),
        ({"batch_size": 10.0}, r"the batch size must be a whole number, not 10\.0\."),
        ({"batch_size": 0}, "the batch size must be at least 1, not 0"),
        ({"data": "digits", "tasks": 99}, "10 classes make 1 to 10 tasks, not 99"),
        ({"data": "folder:birds", "tasks": 0}, "the number of tasks must be at least 1, not 0"),
        ({"data": "folder"}, "the data set 'folder' is written as folder:PATH"),
        ({"image_size": 5000}, "the image size must be between 1 and 1024 pixels, not 5000"),
        ({"limit_per_class": 0}, "the limit per class must be at least 1, not 0"),
        ({"shortcut": 0.5, "stream": Blurry()}, "each class arrives in one task.* not blurry"),
        ({"data": "digits", "shortcut": 0.5, "tasks": 6}, "task 5 of 6 has one class only"),
    ],
)
def test_what_cannot_work_is_refused(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        replace(CONFIG, **values)


def test_a_folder_of_images_is_known_by_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "mine"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "yours").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    mine = replace(CONFIG, data="folder:birds")
    monkeypatch.chdir(tmp_path / "yours")
    yours = replace(CONFIG, data="folder:birds")
    assert mine.hash != yours.hash
    for same in ("folder:../mine/birds", "folder:~/birds", f"folder:{tmp_path}/mine/birds/"):
        assert replace(CONFIG, data=same) == mine


def test_defaults_written_out_are_the_same_run() -> None:
    digits = replace(CONFIG, data="digits", settings=settings_for("onpro", "digits"))
    for same in (replace(digits, tasks=5), replace(digits, image_size=8)):
        assert same.identity == digits.identity
        assert same.folder == digits.folder
    assert replace(digits, tasks=2).identity != digits.identity


def test_an_integer_is_the_float_it_stands_for() -> None:
    one, same = (replace(CONFIG, settings=OnProSettings(learning_rate=rate)) for rate in (1, 1.0))
    assert one.identity == same.identity
    assert one == same


def test_a_whole_number_of_numpy_is_that_of_python() -> None:
    plain: dict[str, Any] = {"seed": 3, "memory": 200, "tasks": 2}
    of_numpy: dict[str, Any] = {name: np.int32(value) for name, value in plain.items()}
    assert replace(CONFIG, **of_numpy).identity == replace(CONFIG, **plain).identity


def test_the_experiment_is_what_is_computed_but_for_the_seed() -> None:
    again = replace(CONFIG, seed=7)
    assert again.experiment == CONFIG.experiment
    assert again.identity != CONFIG.identity
    assert replace(CONFIG, memory=101).experiment != CONFIG.experiment


def test_a_renamed_folder_is_the_same_run(tmp_path: Path) -> None:
    config = replace(CONFIG, data="tiny", tasks=3)
    (tmp_path / "mine").mkdir()
    write_json(tmp_path / "mine" / "config.json", describe(config))
    assert read_config(tmp_path / "mine").identity == config.identity


def test_identities_of_older_versions_are_known(tmp_path: Path) -> None:
    """They were digests of the values as they were written, defaults included."""
    config = replace(CONFIG, data="tiny", tasks=3)
    older = describe(config)
    older["identity"] = digest(config.what())
    assert older["identity"] != config.identity
    write_json(tmp_path / "config.json", older)
    assert read_config(tmp_path).identity == config.identity
    older["memory"] += 1
    write_json(tmp_path / "config.json", older)
    with pytest.raises(UserError, match="has been changed since the run began"):
        read_config(tmp_path)
