"""What experiments are called where several stand together."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from onpro.experiments.grouping import found
from onpro.methods import settings_for
from onpro.runs import Finished, RunConfig
from onpro.runs.config import digest
from onpro.runs.files import write_json
from onpro.runs.reading import finished_by_identity
from onpro.runs.result import describe


def finished(out: Path, seed: int, code: str, precision: str = "fp32", **given: Any) -> Finished:
    folder = out / f"er-digits-m50-s{seed}-{code}"
    folder.mkdir()
    stream = {name: given.pop(name) for name in ("limit_per_class", "deterministic") & given.keys()}
    settings = asdict(settings_for("er", "digits")) | given
    what = {"method": "er", "data": "digits", "memory": 50, "recipe": None}
    config = what | {"settings": settings} | stream
    known = {"config": config, "experiment": code, "seed": seed, "precision": precision}
    return Finished(folder, what | known)


def test_settings_are_named_rather_than_their_hash(tmp_path: Path) -> None:
    runs = [
        finished(tmp_path, 0, "aaaaaaaa"),
        finished(tmp_path, 1, "aaaaaaaa"),
        finished(tmp_path, 0, "bbbbbbbb", replay_batch=7),
        finished(tmp_path, 0, "cccccccc", limit_per_class=9),
    ]
    assert {str(one): len(one.runs) for one in found(runs)} == {
        "er, digits, M = 50": 2,
        "er, replay_batch=7, digits, M = 50": 1,
        "er, limit_per_class=9, digits, M = 50": 1,
    }


def test_settings_of_a_method_that_is_not_imported_are_named_where_they_differ() -> None:
    common = {"method": "mine", "data": "digits", "recipe": None, "seed": 0}
    given = [(50, 0.1, [1, 2]), (50, 0.2, [1, 2]), (70, 0.1, [1, 2])]
    runs = [
        Finished(
            Path(f"gone/{number}"),
            common | {"memory": memory, "config": {"settings": {"rate": rate, "pair": pair}}},
        )
        for number, (memory, rate, pair) in enumerate(given)
    ]
    assert sorted(map(str, found(runs))) == [
        "mine, rate=0.1, digits, M = 50",
        "mine, rate=0.1, digits, M = 70",
        "mine, rate=0.2, digits, M = 50",
    ]


def test_what_computes_otherwise_is_told_apart(tmp_path: Path) -> None:
    runs = [
        finished(tmp_path, 0, "aaaaaaaa"),
        finished(tmp_path, 0, "bbbbbbbb", precision="bf16"),
        finished(tmp_path, 0, "cccccccc", precision="bf16", deterministic=True),
    ]
    assert [str(one) for one in found(runs)] == [
        "er, bf16, digits, M = 50",
        "er, bf16, deterministic, digits, M = 50",
        "er, fp32, digits, M = 50",
    ]


def test_engines_and_devices_are_not_pooled(tmp_path: Path) -> None:
    runs = [
        Finished(run.folder, run.result | {"engine": engine, "device": device})
        for seed, (engine, device) in enumerate([("eager", "cuda"), ("graph", "cuda")] * 2)
        for run in [finished(tmp_path, seed, "aaaaaaaa")]
    ]
    assert {str(one): len(one.runs) for one in found(runs)} == {
        "er, fp32, eager cuda, digits, M = 50": 2,
        "er, fp32, graph cuda, digits, M = 50": 2,
    }


def test_the_digits_are_the_last_resort() -> None:
    result = {"method": "er", "data": "digits", "memory": 50, "seed": 0, "precision": "fp32"}
    runs = [
        Finished(
            Path(f"gone/{code}"), result | {"experiment": 4 * code, "engine": "x", "device": "y"}
        )
        for code in ("12345678", "9abcdef0")
    ]
    assert [str(one) for one in found(runs)] == [
        "er, fp32, x y, 12345678, digits, M = 50",
        "er, fp32, x y, 9abcdef0, digits, M = 50",
    ]


def test_runs_that_say_nothing_of_their_settings_are_not_pooled() -> None:
    result = {"method": "er", "data": "digits", "memory": 50, "seed": 0, "precision": "fp32"}
    runs = [Finished(Path(f"gone/{name}"), result) for name in ("a-new", "b-new")]
    assert [len(one.runs) for one in found(runs)] == [1, 1]


def test_a_setting_added_since_leaves_runs_the_same_experiment(tmp_path: Path) -> None:
    config = RunConfig("er-mkd", settings_for("er-mkd", "digits"), data="digits", memory=50)
    today = config.what()
    before = today | {"settings": dict(today["settings"]), "seed": 1}
    del before["settings"]["taught_rotations"]
    common = {"method": "er-mkd", "data": "digits", "memory": 50}
    old = common | {"seed": 1, "config": before, "experiment": "of before"}
    new = common | {"seed": 0, "config": today, "experiment": config.experiment}
    runs = [Finished(tmp_path / "old", old), Finished(tmp_path / "new", new)]
    (one,) = found(runs)
    assert len(one.runs) == 2


def test_finished_runs_are_found_by_the_identity_of_today(tmp_path: Path) -> None:
    config = RunConfig("er-mkd", settings_for("er-mkd", "digits"), data="digits", memory=50)
    noted = describe(replace(config, tasks=5))  # as many as digits has by default
    del noted["settings"]["taught_rotations"]
    noted["identity"] = digest({name: noted[name] for name in config.what()} | {"tasks": None})
    (tmp_path / "of-before").mkdir()
    write_json(tmp_path / "of-before/config.json", noted)
    write_json(tmp_path / "of-before/result.json", {})
    assert finished_by_identity(tmp_path) == {config.identity: tmp_path / "of-before"}


def test_a_recipe_is_named_only_where_it_changes_something(tmp_path: Path) -> None:
    plain = [finished(tmp_path, seed, "aaaaaaaa") for seed in range(2)]
    usual, varied = (
        Finished(run.folder, run.result | {"recipe": recipe})
        for recipe, run in zip(("paper", "original"), plain, strict=True)
    )
    assert settings_for("er", "digits", "paper") == settings_for("er", "digits")
    assert [one.recipe for one in found([usual, plain[1]])] == [None]
    assert [one.recipe for one in found([varied])] == ["original"]


def test_a_run_that_was_repeated_is_one_sample(tmp_path: Path) -> None:
    runs = [finished(tmp_path, seed, "aaaaaaaa") for seed in range(2)]
    repeated = Finished(tmp_path / "again", runs[0].result | {"train_seconds": 7.0})
    (one,) = found([*runs, repeated])
    assert [run.folder for run in one.runs] == [run.folder for run in runs]


def test_a_default_that_is_written_out_is_no_setting_by_hand(tmp_path: Path) -> None:
    config = RunConfig("er", settings_for("er", "cifar10"), data="cifar10", memory=200).what()
    common = {"method": "er", "data": "cifar10", "memory": 200, "seed": 0}
    for written, by_hand in (
        ({"tasks": 5, "image_size": 32}, ()),
        ({"tasks": 2}, ("tasks=2",)),
    ):
        (one,) = found([Finished(tmp_path, common | {"config": config | written})])
        assert one.by_hand == by_hand
        assert bool(one.paper) == (not by_hand)
