"""Damaged files of runs, in every command that reads them: a sentence, never a traceback."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onpro.cli import main
from tests.tiny_runs import sealed

RUN = ["--data", "tiny", "--limit-per-class", "4", "--device", "cpu", "--memory", "20"]
FILES = ("result.json", "config.json", "events.jsonl")
SWEEP = """
[[runs]]
method = "er"
data = "tiny"
memory = 20
seeds = [0, 1, 2]
limit_per_class = 4
"""
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 10**30, -(10**400), 0.5, -0.0, 1e308, -1e308),
    *(float("nan"), float("inf"), "", "x", "0", "x" * 5000, "\ud800", "\x1b[2J", "=1", "a\nb\0c"),
    *([], [[]], [0], [None], [[1.0]], ["x"], {}, {"a": 1}, {"": {}}, {"\udfff": [{}]}),
]


def spoil_value(content: bytes, draw: random.Random) -> bytes:
    """Another value, or none, at any place of a JSON file or of a line of it."""
    lines = content.splitlines()
    whole = draw.randrange(len(lines)) if content.startswith(b'{"event"') else None
    tree = json.loads(content if whole is None else lines[whole])
    places: list[tuple[Any, Any]] = []
    left = [tree]
    while left:
        node = left.pop()
        inside = node.items() if isinstance(node, dict) else enumerate(node)
        for key, value in inside:
            places.append((node, key))
            if isinstance(value, (dict, list)) and value:
                left.append(value)
    node, key = draw.choice(places)
    if draw.random() < 0.25:
        del node[key]
    elif draw.random() < 0.1 and isinstance(node, dict):
        node["x" * draw.randrange(3)] = draw.choice(VALUES)
    else:
        node[key] = draw.choice(VALUES)
    text = json.dumps(tree).encode()
    if whole is None:
        return text
    lines[whole] = text
    return b"\n".join(lines) + b"\n"


def spoil_whole(content: bytes, draw: random.Random) -> bytes:
    return json.dumps(draw.choice(VALUES)).encode() + b"\n"


def cut(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content))]


def flip(content: bytes, draw: random.Random) -> bytes:
    spoilt = bytearray(content)
    for _ in range(draw.randrange(1, 5)):
        spoilt[draw.randrange(len(spoilt))] = draw.randrange(256)
    return bytes(spoilt)


def nest(content: bytes, draw: random.Random) -> bytes:
    depth = draw.choice([500, 5000, 100_000])
    at = draw.choice([0, content.index(b":") + 1])
    return content[:at] + b"[" * depth + b"]" * draw.choice([0, depth]) + content[at:]


def enlarge(content: bytes, draw: random.Random) -> bytes:
    digits = [at for at, byte in enumerate(content) if chr(byte).isdigit()]
    at = draw.choice(digits)
    return content[:at] + b"9" * draw.choice([20, 400, 5000]) + content[at:]


SPOIL: list[Callable[[bytes, random.Random], bytes]] = [
    *([spoil_value] * 6),
    *(spoil_whole, cut, flip, nest, enlarge),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished runs and what a third left that was killed.

    As of older versions their results have no checksum, which would notice all damage at once.
    """
    place = tmp_path_factory.mktemp("whole")
    out = place / "runs"
    for seed in range(3):
        assert main(["run", "er", *RUN, "--seed", str(seed), "--out", str(out)]) == 0
    (killed,) = out.glob("*-s2-*")
    (killed / "result.json").unlink()
    for path in out.glob("*/result.json"):
        result = json.loads(path.read_text())
        del result["checksum"]
        path.write_text(json.dumps(result))
    (killed / "checkpoint").mkdir()
    (place / "sweep.toml").write_text(SWEEP)
    assert {main(command) for command in commands(place)} == {0}
    return place


def commands(place: Path) -> list[list[str]]:
    runs = str(place / "runs")
    endings = ("html", "txt", "tex", "csv", "json")
    sweep = ["sweep", str(place / "sweep.toml"), "--out", runs, "--dry-run", "--device", "cpu"]
    return [
        ["report", runs],
        *(["report", runs, "--out", str(place / f"report.{ending}")] for ending in endings),
        ["figure", "accuracy", runs, "--out", str(place / "a.svg")],
        ["figure", "matrix", runs, "--out", str(place / "m.svg")],
        sweep,
    ]


def require_no_traceback(whole: Path, place: Path, seed: int) -> None:
    draw = random.Random(seed)
    shutil.copytree(whole, place)
    files = [path for path in sorted(place.glob("runs/*/*")) if path.name in FILES]
    for path in draw.sample(files, draw.choice([1, 1, 2])):
        path.write_bytes(draw.choice(SPOIL)(path.read_bytes(), draw))
    for command in commands(place):
        if command[0] != "figure" or seed % 10 == 0:  # drawing takes most of the time
            assert main(command) in (0, 2), command
    shutil.rmtree(place)


@pytest.mark.parametrize("seed", range(20))
def test_damage_is_told(whole: Path, tmp_path: Path, seed: int) -> None:
    require_no_traceback(whole, tmp_path / "spoilt", seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_much_damage_is_told(whole: Path, tmp_path: Path, block: int) -> None:
    for seed in range(100 * block, 100 * (block + 1)):
        require_no_traceback(whole, tmp_path / "spoilt", seed)


def test_a_result_of_no_steps_is_left_out(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "spoilt"
    shutil.copytree(whole, place)
    path, _ = sorted(place.glob("runs/*/result.json"))
    path.write_text(sealed(json.loads(path.read_text()), steps=0))
    assert main(["report", str(place / "runs")]) == 0
    assert "result.json has an unusable value of steps" in capsys.readouterr().err


@pytest.mark.parametrize("hardware", [{"gpu": "H200"}, {"threads": "many"}, {"threads": None}])
def test_hardware_that_says_little(whole: Path, tmp_path: Path, hardware: object) -> None:
    place = tmp_path / "spoilt"
    shutil.copytree(whole, place)
    for path in place.glob("runs/*/result.json"):
        path.write_text(sealed(json.loads(path.read_text()), hardware=hardware))
    for command in commands(place):
        assert main(command) == 0
