"""What experiments are called where several stand together."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from onpro.experiments.grouping import by_experiment
from onpro.methods import settings_for
from onpro.runs import Finished


def finished(out: Path, seed: int, code: str, precision: str = "fp32", **given: Any) -> Finished:
    folder = out / f"er-digits-m50-s{seed}-{code}"
    folder.mkdir()
    stream = {name: given.pop(name) for name in ("limit_per_class", "deterministic") & given.keys()}
    settings = asdict(settings_for("er", "digits")) | given
    what = {"method": "er", "data": "digits", "memory": 50, "recipe": None}
    (folder / "config.json").write_text(json.dumps(what | {"settings": settings} | stream))
    return Finished(folder, what | {"seed": seed, "precision": precision})


def test_settings_are_named_rather_than_their_hash(tmp_path: Path) -> None:
    runs = [
        finished(tmp_path, 0, "aaaaaaaa"),
        finished(tmp_path, 1, "aaaaaaaa"),
        finished(tmp_path, 0, "bbbbbbbb", replay_batch=7),
        finished(tmp_path, 0, "cccccccc", limit_per_class=9),
    ]
    assert {title: len(members) for title, members in by_experiment(runs).items()} == {
        "er, digits, M = 50": 2,
        "er, replay_batch=7, digits, M = 50": 1,
        "er, limit_per_class=9, digits, M = 50": 1,
    }


def test_what_computes_otherwise_is_told_apart(tmp_path: Path) -> None:
    runs = [
        finished(tmp_path, 0, "aaaaaaaa"),
        finished(tmp_path, 0, "bbbbbbbb", precision="bf16"),
        finished(tmp_path, 0, "cccccccc", precision="bf16", deterministic=True),
    ]
    assert list(by_experiment(runs)) == [
        "er, digits, M = 50, fp32",
        "er, digits, M = 50, bf16",
        "er, digits, M = 50, bf16, deterministic",
    ]


def test_the_hash_is_the_last_resort() -> None:
    result = {"method": "er", "data": "digits", "memory": 50, "precision": "fp32"}
    runs = [Finished(Path(f"gone/er-digits-m50-s0-{code}"), result) for code in ("1a", "2b")]
    assert list(by_experiment(runs)) == [
        "er, digits, M = 50, fp32, 1a",
        "er, digits, M = 50, fp32, 2b",
    ]
