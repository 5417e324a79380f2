"""Tables of what `onpro bench` has measured."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from onpro.bench.breakdown import PARTS
from onpro.errors import counted
from onpro.reports.formats import Column, Record, markdown_text, render
from onpro.runs.result import machine
from onpro.text import written

Result = Mapping[str, Any]
"""A method's figures with one engine, as `onpro.bench.bench` gives them."""

WHAT = [
    Column("method", "method"),
    Column("memory", "memory"),
    Column("classes", "classes"),
    Column("engine", "engine"),
]

FIGURES = [
    Column("images", "images per step"),
    Column("images_per_second", "images per second", ".0f"),
    Column("tflops", "TFLOP/s", ".3g"),
    Column("share_of_peak", "of matrix peak", ".0%"),
    Column("network_ms", "network alone, ms", ".2f"),
    Column("outside_network", "outside network", ".0%"),
    Column("allocated", "GPU memory, GiB", ".1f"),
    Column("reserved", "reserved, GiB", ".1f"),
]

PARTS_OF_A_STEP = [Column(f"share_of_{part}", part, ".0%") for part in PARTS]


def figures_by_task(results: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    """Header and rows for a terminal: a column for each engine and task, a row for each figure.

    The results are those of one method, first the engine that the others are compared with.
    """
    columns = [(result, phase) for result in results for phase in result["phases"]]
    records = [_figures(phase) for _, phase in columns]
    header = ["", *(f"{result['engine']}, task {phase['task']}" for result, phase in columns)]
    figures = [Column("ms_text", "ms per step"), *FIGURES, *PARTS_OF_A_STEP]
    rows = [
        [figure.title, *(_cell(r[figure.key], figure.spec) for r in records)] for figure in figures
    ]
    first, *others = results
    if others:
        ratios = [
            written(reference["ms"] / phase["ms"], ".2f")
            for other in others
            for reference, phase in zip(first["phases"], other["phases"], strict=True)
        ]
        rows.append([f"{first['engine']} / this, times", *("" for _ in first["phases"]), *ratios])
    return header, [row for row in rows if any(row[1:])]


def _cell(value: str | float | None, spec: str) -> str:
    return "" if value is None else value if isinstance(value, str) else written(value, spec)


def bench_table(document: Mapping[str, Any]) -> str:
    """Markdown of a whole file: a row for each method and engine, and what was measured where."""
    results = document["results"]
    records = [
        {**_what(result), **_times(result), **_figures(result["phases"][-1])} for result in results
    ]
    tables: list[tuple[Sequence[Record], list[Column]]] = [
        (records, [*WHAT, *_time_columns(results), *FIGURES]),
        (records, [*WHAT, *PARTS_OF_A_STEP]),
        *_ratios(results),
    ]
    titles = [
        "Milliseconds of a step, median ± half the range; the other columns are of the last task.",
        "Share of each part in a step of the last task, computed operation by operation; losses "
        "are whatever is none of the others.",
        "Steps of the first engine take so many times as long.",
    ]
    shown = [
        f"{title}\n\n{render(*table, 'markdown')}"
        for title, table in zip(titles, tables, strict=False)
    ]
    return "\n\n".join([*shown, markdown_text(conditions(document))])


def conditions(document: Mapping[str, Any]) -> str:
    """On what and how a file was measured, as a sentence."""
    hardware, versions, peak = (document[k] for k in ("hardware", "versions", "peak_tflops"))
    first = document["results"][0]
    size, batch = first["image_size"], first["batch_size"]
    return (
        f"{machine(hardware)}, torch {versions['torch']}, Python {versions['python']}; "
        f"{first['precision']}, matrix peak {peak:.3g} TFLOP/s; images of {size}×{size}, "
        f"batches of {batch}, {counted(first['tasks'], 'task')}; "
        f"{counted(document['repeats'], 'block')} of {counted(document['steps'], 'step')}."
    )


def _what(result: Result) -> dict[str, Any]:
    recipe = result["recipe"]
    name = f"{result['method']} ({recipe})" if recipe else result["method"]
    return {"method": name, **{k: result[k] for k in ("memory", "classes", "engine")}}


def _figures(phase: Mapping[str, Any]) -> dict[str, Any]:
    parts = phase["breakdown"]
    total = sum(parts.values())
    return {
        **{column.key: phase.get(column.key) for column in FIGURES},
        "ms_text": _spread(phase),
        "allocated": _gib(phase["memory_allocated"]),
        "reserved": _gib(phase["memory_reserved"]),
        **{f"share_of_{part}": time / total if total else None for part, time in parts.items()},
    }


def _gib(size: int | None) -> float | None:
    return None if size is None else size / 2**30


def _times(result: Result) -> dict[str, str]:
    return {f"task {phase['task']}": _spread(phase) for phase in result["phases"]}


def _time_columns(results: Sequence[Result]) -> list[Column]:
    tasks = sorted({phase["task"] for result in results for phase in result["phases"]})
    return [Column(f"task {task}", f"task {task}, ms") for task in tasks]


def _spread(phase: Mapping[str, Any]) -> str:
    half = (phase["ms_high"] - phase["ms_low"]) / 2
    return f"{written(phase['ms'], '.2f')} ± {written(half, '.2f')}"


def _ratios(results: Sequence[Result]) -> Iterator[tuple[Sequence[Record], list[Column]]]:
    """Yield the ratio of the step times of the first engine and each other."""
    records: list[Record] = []
    for _, group in groupby(results, key=lambda r: (r["method"], r["memory"], r["classes"])):
        first, *others = group
        for other in others:
            pairs = zip(first["phases"], other["phases"], strict=True)
            times = {f"task {mine['task']}": mine["ms"] / yours["ms"] for mine, yours in pairs}
            records.append(
                {**_what(other), "engine": f"{first['engine']} / {other['engine']}", **times}
            )
    if records:
        names = dict.fromkeys(name for r in records for name in r if name.startswith("task "))
        yield records, [*WHAT, *(Column(name, name, ".2f") for name in names)]
