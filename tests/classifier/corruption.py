"""Files of classifiers that no classifier wrote, with checksums that are right."""

import copy
import hashlib
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from onpro.training.statefile import FORMAT, freeze, save_state

Path_ = tuple[Any, ...]

NUMBERS = [-1, 0, 1, 7, 2**31, 2**40, 2**63, 2**70, -(2**70), 0.5, -1.0, 1e300, True, None, "x"]
WORDS = ["", "x", "er", "cuda", "\0", "\ud800", "a" * 300, 3, None, True]
THINGS: list[Any] = [None, 0, "x", [], {}, (), [[]], {"a": {}}, {0: 1}, torch.zeros(2), 1.5]
DTYPES = [torch.float64, torch.float16, torch.int64, torch.uint8, torch.bool, torch.complex64]


def places(value: Any, here: Path_ = ()) -> list[Path_]:
    """The ways to all parts of a state."""
    found = [here]
    if isinstance(value, dict):
        for key, item in value.items():
            found += places(item, (*here, key))
    elif isinstance(value, (list, tuple)):
        for position, item in enumerate(value):
            found += places(item, (*here, position))
    return found


def part(state: Any, place: Path_) -> Any:
    for key in place:
        state = state[key]
    return state


def replaced(state: Any, place: Path_, new: Any) -> Any:
    """The state with another part in one place."""
    if not place:
        return new
    key, *rest = place
    inner = replaced(state[key], tuple(rest), new)
    if isinstance(state, dict):
        return {k: inner if k is key or k == key else v for k, v in state.items()}
    items = [inner if i == key else v for i, v in enumerate(state)]
    return tuple(items) if isinstance(state, tuple) else items


def other_dict(rng: random.Random, value: dict[Any, Any]) -> Any:
    items = list(value.items())
    way = rng.randrange(7)
    if way == 0 and items:
        del items[rng.randrange(len(items))]
    elif way == 1 and items:
        at = rng.randrange(len(items))
        items[at] = (rng.choice(["x", f"{items[at][0]}_", 7]), items[at][1])
    elif way == 2:
        items.append((rng.choice(["x", 99, "0", None, True]), rng.choice(THINGS)))
    elif way == 3 and len(items) > 1:
        a, b = rng.sample(range(len(items)), 2)
        items[a], items[b] = (items[a][0], items[b][1]), (items[b][0], items[a][1])
    elif way == 4 and items:
        at = rng.randrange(len(items))
        items[at] = (items[at][0], {"deeper": items[at][1]})
    elif way == 5:
        return list(value)
    else:
        return rng.choice(THINGS)
    return dict(items)


def other_list(rng: random.Random, value: list[Any] | tuple[Any, ...]) -> Any:
    items, kind = list(value), type(value)
    way = rng.randrange(7)
    if way == 0 and items:
        del items[rng.randrange(len(items))]
    elif way == 1:
        items.append(rng.choice([*items, *THINGS]))
    elif way == 2:
        items.reverse()
    elif way == 3:
        return tuple(items) if kind is list else items
    elif way == 4:
        items = [items]
    elif way == 5 and items:
        items[rng.randrange(len(items))] = rng.choice([*items, *THINGS])
    else:
        return rng.choice(THINGS)
    return kind(items)


def other_tensor(rng: random.Random, value: Tensor) -> Any:
    ways: list[Callable[[], Any]] = [
        lambda: value[1:] if value.ndim and len(value) else value[None],
        lambda: torch.cat([value, value[:1]]) if value.ndim else value.expand(3),
        lambda: value[None],
        lambda: value.flatten() if value.ndim != 1 else value[:, None],
        lambda: value.transpose(0, -1) if value.ndim > 1 else value.repeat(2),
        lambda: value[:0] if value.ndim else torch.zeros(0),
        lambda: value.new_zeros(()),
        lambda: value.to(rng.choice(DTYPES)),
        lambda: value.tolist() if value.numel() < 50 else None,
        lambda: torch.full_like(value, rng.choice([0, 1, 255]) if value.dtype != torch.bool else 1),
        lambda: torch.full_like(value, -5 if value.dtype.is_signed else 5),
        lambda: torch.full_like(value, 2**60 if value.dtype == torch.int64 else 1),
        lambda: torch.full_like(value, math.nan) if value.is_floating_point() else None,
        lambda: rng.choice(THINGS),
    ]
    return rng.choice(ways)()


def other(rng: random.Random, value: Any) -> Any:
    """Something else in the place of a part."""
    if isinstance(value, dict):
        return other_dict(rng, value)
    if isinstance(value, (list, tuple)):
        return other_list(rng, value)
    if isinstance(value, Tensor):
        return other_tensor(rng, value)
    if isinstance(value, str):
        return rng.choice([*WORDS, *THINGS])
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return rng.choice([*NUMBERS, value + 1, -value, *THINGS])
    return rng.choice([*NUMBERS, *WORDS, *THINGS])


def corrupt(rng: random.Random, state: dict[str, Any]) -> tuple[dict[str, Any], Path_]:
    """A state with one part changed, and where.

    Each level is as likely as another, for most parts by far are weights.
    """
    ways = places(state)
    depth = rng.randint(1, max(map(len, ways)))
    place = rng.choice([way for way in ways if len(way) == depth])
    return replaced(state, place, other(rng, part(state, place))), place


def plausible(place: Path_, before: Any, after: Any) -> bool:
    """Whether the changed part may belong to another classifier, sound in itself.

    Another value of the same type and shape in its range; a setting; a label; the averages of an
    optimizer that starts anew; a generator not used so far.
    """
    match place:
        case ("params", *_) | ("learner", "labels", *_):
            return True
        case ("learner",) if after is None:  # has learned nothing yet
            return True
        case ("learner", "method", "optimizer", "state", *_):
            return True
        case ("learner", "method", "optimizer", "param_groups", 0):  # torch adds what is missing
            return True
        case ("learner", "method", "task_images", *_):  # in another order
            return True
        case ("learner", "method", "learned"):  # of GDumb, which trains anew
            return isinstance(after, Tensor)
        case ("learner", "method", "random", *_):
            return True
        case ("learner", "method", "progress", "seen_before_task"):  # fewer or more classes
            return isinstance(after, list) and after == list(range(len(after)))
    if isinstance(before, Tensor) and isinstance(after, Tensor):
        return (before.shape, before.dtype) == (after.shape, after.dtype)
    if isinstance(before, dict) and isinstance(after, dict):  # parts swapped, or one to its inside
        return before.keys() == after.keys() and all(
            same_kind(before[key], after[key]) or plausible((*place, key), before[key], after[key])
            for key in before
        )
    return type(before) is type(after) and isinstance(before, (int, float, str))


def same_kind(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return torch.equal(a, b) if (a.shape, a.dtype) == (b.shape, b.dtype) else False
    return a is b


def raw(header: bytes, data: bytes, size: int | None = None) -> bytes:
    """A file with a right checksum around a payload of any kind."""
    length = (len(header) if size is None else size).to_bytes(8, "little")
    payload = length + header + data
    return FORMAT + hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload


def corrupt_format(rng: random.Random, content: bytes) -> bytes:
    """A file whose payload is not one that onpro writes, in any of many ways."""
    payload = content.split(b"\n", 2)[2]
    size = int.from_bytes(payload[:8], "little")
    header, data = json.loads(payload[8 : 8 + size]), payload[8 + size :]
    said = header["__metadata__"]
    structure = json.loads(said["structure"])
    tensors = [name for name in header if name != "__metadata__"]
    chosen = rng.choice(tensors)
    deep = rng.choice([101, 1000, 20_000])

    def described(change: Callable[[list[Any]], Any]) -> Any:
        """The structure with one description of a tensor changed."""
        changed = copy.deepcopy(structure)
        found: list[list[Any]] = []

        def look(value: Any) -> None:
            if isinstance(value, dict):
                if "tensor" in value:
                    found.append(value["tensor"])
                for item in value.values():
                    look(item)
            elif isinstance(value, list):
                for item in value:
                    look(item)

        look(changed)
        change(rng.choice(found))
        return changed

    def with_structure(new: Any) -> bytes:
        text = new if isinstance(new, str) else json.dumps(new)
        return raw(json.dumps(header | {"__metadata__": said | {"structure": text}}).encode(), data)

    def with_header(new: Any) -> bytes:
        return raw(new if isinstance(new, bytes) else json.dumps(new).encode(), data)

    def with_tensor(**changes: Any) -> bytes:
        return with_header(header | {chosen: header[chosen] | changes})

    nested = rng.choice(
        [
            '{"list": [' * deep + "]}" * deep,
            '{"dict": [["a", ' * deep + "1" + "]]}" * deep,
            "[" * deep + "]" * deep,
        ]
    )
    ways: list[Callable[[], bytes]] = [
        lambda: with_structure(nested),
        lambda: with_structure(
            f'{{"dict": [["version", {rng.choice(["NaN", "1e999", "9" * 9999])}]]}}'
        ),
        lambda: with_structure(
            rng.choice(["", "null", "3", "[]", "{}", '{"list": []}', "{", "\ud800"])
        ),
        lambda: with_structure({rng.choice(["set", "x", "tuple"]): structure["dict"]}),
        lambda: with_structure({"dict": [*structure["dict"], structure["dict"][0]]}),
        lambda: with_structure({"dict": [*structure["dict"], [rng.choice([[], {}]), 1]]}),
        lambda: with_structure({"dict": [*structure["dict"], rng.choice([[], ["a"], 3, "ab"])]}),
        lambda: with_structure({"dict": structure["dict"], "list": []}),
        lambda: with_structure({"dict": {"version": 1}}),
        lambda: with_structure(
            described(lambda d: d.__setitem__(0, rng.choice(["x", 0, None, []])))
        ),
        lambda: with_structure(described(lambda d: d.__setitem__(0, chosen))),
        lambda: with_structure(described(lambda d: d.clear())),
        lambda: with_structure(described(lambda d: d.append(1))),
        lambda: with_header({k: v for k, v in header.items() if k != "__metadata__"}),
        lambda: with_header({k: v for k, v in header.items() if k != chosen}),
        lambda: with_header(
            header | {"__metadata__": rng.choice([3, [], {}, {"kind": "classifier"}])}
        ),
        lambda: with_header(
            header | {"__metadata__": said | {"kind": rng.choice(["", "checkpoint", "\x1b[2J"])}}
        ),
        lambda: with_header(rng.choice([b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * deep])),
        lambda: with_tensor(
            dtype=rng.choice(["F64", "C64", "F8_E4M3", "I8", "BOOL", "X", "", 3, None])
        ),
        lambda: with_tensor(
            shape=rng.choice([[], [0], [2**40], [-1], [2**62, 4], "x", None, [1.5]])
        ),
        lambda: with_tensor(
            data_offsets=rng.choice([[0, 0], [0, 2**40], [-1, 4], [8, 0], [], "x"])
        ),
        lambda: with_header(
            header | {"more": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}
        ),
        lambda: raw(json.dumps(header).encode(), data[: rng.randrange(len(data))]),
        lambda: raw(json.dumps(header).encode(), data + b"\0"),
        lambda: raw(json.dumps(header).encode(), data, rng.choice([0, 1, 2**32, 2**63, 2**64 - 1])),
        lambda: raw(b"", b"", rng.choice([0, 5])),
    ]
    return rng.choice(ways)()


def write(path: Path, state: Any) -> bool:
    """Whether such a state can be written at all."""
    try:
        save_state(path, freeze(state, kind="classifier"))
    except (TypeError, ValueError, AttributeError):  # nothing that a file could hold
        return False
    return True
