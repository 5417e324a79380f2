"""The leaderboard: our results and published ones in one order."""

import json
from typing import Any

import pytest

from onpro.errors import UserError
from onpro.experiments import paper
from onpro.experiments.grouping import found
from onpro.experiments.published import published, sources
from onpro.methods import method, recipes
from onpro.reports.leaderboard import entries, leaderboard, used_sources
from onpro.runs import Finished
from tests.reports.test_tables import finished

COST = {"steps": 100, "images_seen": 7400, "shared_by": 3}


def board(*runs: Finished) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(leaderboard(entries(found(runs)), "json"))
    return rows


def test_rows_are_ordered_by_our_accuracy_or_the_published_one() -> None:
    ours = [finished("er", seed, last, **COST) for seed, last in enumerate((40.0, 44.0, 42.0))]
    rows = board(*ours)
    names = [row["name"] for row in rows]
    assert names[:3] == ["onpro", "er", "ocm"]  # 65.5 in the paper, 61.0 of ours, 59.6
    assert len(names) == len(set(names))
    er = rows[1]
    assert (er["n"], er["accuracy"], er["bounds"]) == (3, "61.0 ± 1.0", "58.5 to 63.5")
    assert (er["images"], er["seconds"], er["at_once"]) == (74.0, 10.0, 3)
    assert er["published"] == "20.9 ± 0.9 (onpro)"
    assert rows[0]["n"] is None


@pytest.mark.parametrize("beside", [{"gpu_processes": 2}, {"shared_by": None}])
def test_time_beside_others_is_left_out(beside: dict[str, Any]) -> None:
    run = finished("er", 0, 40.0, **COST)
    run.result.update(beside)
    if run.result["shared_by"] is None:
        del run.result["shared_by"]
    (er,) = (row for row in board(run) if row["n"])
    assert (er["seconds"], er["at_once"]) == (None, None)


def test_time_on_other_hardware_than_most_runs_have_is_left_out() -> None:
    runs = [finished("er", seed, 40.0, **COST) for seed in range(2)]
    other = finished("scr", 0, 40.0, hardware={"cpu": "x86_64", "threads": 1}, **COST)
    rows = {row["name"]: row for row in board(*runs, other)}
    assert (rows["er"]["seconds"], rows["scr"]["seconds"]) == (10.0, None)


def test_only_cells_that_were_run_are_shown() -> None:
    rows = board(finished("er", 0, 40.0, memory=500, **COST))
    assert {(row["data"], row["memory"]) for row in rows} == {("cifar10", 500)}
    assert board() == []


def test_a_method_can_have_several_published_values() -> None:
    rows = board(finished("gsa", 0, 40.0, **COST))
    (gsa,) = (row for row in rows if row["name"] == "gsa")
    assert gsa["published"] == "58.0 ± 0.4 (gsa); 48.9 ± 3.4 (mkd)"
    text = used_sources(found([finished("gsa", 0, 40.0, **COST)]))
    assert "- gsa: Guo et al., " in text
    assert "- s6mod" not in text  # has no value of this cell


def test_ablations_and_settings_by_hand_are_left_out() -> None:
    runs = [
        finished("onpro", 0, 40.0, recipe="without-ope", **COST),
        finished("relay-calibrated", 0, 40.0, recipe="without-teacher", **COST),
        finished("er", 0, 40.0, recipe="tuned", **COST),
    ]
    shown = {row["name"] for row in board(*runs) if row["n"]}
    assert shown == {"er (tuned)"}


def test_of_several_precisions_the_one_with_most_runs_is_shown() -> None:
    runs = [finished("er", seed, 40.0, **COST) for seed in range(2)]
    other = finished("er", 0, 60.0, precision="bf16", experiment="another", **COST)
    shown = [(row["name"], row["n"]) for row in board(*runs, other) if row["n"]]
    assert shown == [("er, fp32", 2)]


def test_time_without_a_number_of_runs_at_once_is_told_without() -> None:
    cost = {"steps": 100, "images_seen": 7400}
    (er,) = (row for row in board(finished("er", 0, 40.0, **cost)) if row["n"])
    assert er["at_once"] is None


def test_every_published_value_has_a_source_and_is_a_number() -> None:
    assert {value.source for value in published()} == set(sources())
    for value in published():
        assert 0 < value.mean < 100
        assert all(0 <= float(part) < 100 for part in value.text.split("±"))
    keys = [
        (value.method, value.recipe, value.data, value.memory, value.source, value.note)
        for value in published()
    ]
    assert len(keys) == len(set(keys))


def test_published_methods_are_known_or_have_a_name_with_words() -> None:
    for value in published():
        if " " in value.method:
            with pytest.raises(UserError):
                method(value.method)
        else:
            assert method(value.method)
            assert value.recipe is None or value.recipe in recipes(value.method)


def test_the_papers_values_are_those_of_table_1() -> None:
    own = [value for value in published() if value.source == "onpro"]
    assert len(own) == len(paper.AVERAGE_ACCURACY) * len(paper.COLUMNS)
    (onpro,) = (v for v in own if (v.method, v.data, v.memory) == ("onpro", "cifar100", 1000))
    assert onpro.text == "30.0 ± 0.4"
