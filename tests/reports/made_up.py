"""Runs nobody ran, in the form of those somebody did."""

import json
import random
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from onpro.runs import Finished
from onpro.runs.schema import checksum


def result(
    method: str = "onpro",
    seed: int = 0,
    *,
    tasks: int = 3,
    classes: int = 6,
    memory: int = 200,
    **more: Any,
) -> dict[str, Any]:
    """What a `result.json` holds; accuracies drawn from the seed."""
    draw = random.Random(f"{method} {seed} {memory}")
    accuracy = [
        [round(draw.uniform(40, 100), 2) if column <= row else None for column in range(tasks)]
        for row in range(tasks)
    ]
    last = [value for value in accuracy[-1] if value is not None]
    best = [max(row[task] or 0.0 for row in accuracy) for task in range(tasks)]
    made = {
        "method": method,
        "data": "cifar10",
        "memory": memory,
        "seed": seed,
        "recipe": None,
        "accuracy": accuracy,
        "average_accuracy": sum(last) / tasks,
        "average_forgetting": sum(b - v for b, v in zip(best, last, strict=True)) / tasks,
        "average_forgetting_strict": 20.0,
        "average_incremental_accuracy": 75.0,
        "confusion": _confusion(classes, seed % 9),
        "classes": [f"class {k}" for k in range(classes)],
        "train_seconds": draw.uniform(10, 60),
        "eval_seconds": 1.0,
        "steps": 5000,
        "images_seen": 400_000,
        "device": "cpu",
        "hardware": {"cpu": "x86_64", "threads": 2},
        "precision": "fp32",
        "versions": {"onpro": "0.1.0", "python": "3.12.3", "torch": "2.11.0", "numpy": "2.4.0"},
    } | more
    told = [str(made[key]) for key in ("method", "recipe", "data", "memory", "precision")]
    return {"experiment": sha256(" ".join(told).encode()).hexdigest()[:32]} | made


@cache
def _confusion(classes: int, seed: int) -> list[list[int]]:
    return [
        [80 if column == row else (7 * row + column + seed) % 9 for column in range(classes)]
        for row in range(classes)
    ]


def save(
    out: Path,
    content: dict[str, Any],
    settings: dict[str, Any] | None = None,
    code: str = "0123abcd",
) -> Finished:
    """Write a run folder as `onpro run` does."""
    content = content | {"experiment": code + content["experiment"]}
    if "checksum" in content:
        content["checksum"] = checksum(content)
    folder = out / f"{content['method']}-m{content['memory']}-s{content['seed']}-{code}"
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps(content))
    config = {"batch_size": 10, "settings": settings or {"learning_rate": 0.1}}
    (folder / "config.json").write_text(json.dumps(config))
    return Finished(folder, content)


def many(*, runs: int, seeds: int, tasks: int, classes: int) -> list[Finished]:
    """So many runs, each so many seeds with settings of their own, without files."""
    made = []
    for run in range(runs):
        group = run // seeds
        content = result(
            f"method{group % 8}",
            run,
            tasks=tasks,
            classes=classes,
            memory=100 + group % 3 * 100,
            experiment=f"{group:08x}".ljust(32, "0"),
        )
        made.append(Finished(Path(f"runs/{content['method']}-s{run}-{group:08x}"), content))
    return made
