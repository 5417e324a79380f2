"""The tables of the paper as data, against the paper."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from onpro.data import find
from onpro.errors import UserError
from onpro.experiments.plan import Place, plan
from onpro.experiments.tables import PaperTable, paper_name, paper_table, paper_tables, reported
from onpro.methods import recipes
from onpro.runs import RunConfig

METHODS = [
    "icarl", "derpp", "pass", "agem", "gss", "er", "mir",
    "gdumb", "aser", "scr", "cope", "dvc", "ocm", "onpro",
]  # fmt: skip
PLACES = [
    ("cifar10", 100), ("cifar10", 200), ("cifar10", 500),
    ("cifar100", 500), ("cifar100", 1000), ("cifar100", 2000),
    ("tinyimagenet", 1000), ("tinyimagenet", 2000), ("tinyimagenet", 4000),
]  # fmt: skip
SGD: dict[str, Any] = {
    "optimizer": "sgd", "learning_rate": 0.1, "momentum": 0.0, "weight_decay": 0.0,
}  # fmt: skip
COMMON = {"encoder": "resnet18", "augmentation": "ocm"}
REPLAY = COMMON | SGD | {"replay_batch": 64}
ROTATED = COMMON | {
    "weight_decay": 1e-4, "betas": (0.9, 0.99), "replay_batch": 64, "replay_per_class": 7,
    "instance_temperature": 0.07, "rotations": 16, "projection": 128, "similarity_scale_first": 1.0,
}  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    "icarl": REPLAY,
    "derpp": REPLAY | {
        "learning_rate": 0.03, "logit_weight": 0.1, "label_weight": 0.5, "augmentation": "crop+ocm",
    },
    "pass": COMMON | {
        "learning_rate": 0.001, "weight_decay": 2e-4, "temperature": 0.1,
        "prototype_weight": 10.0, "distillation_weight": 10.0,
    },
    "agem": REPLAY,
    "gss": REPLAY | {"gradient_batches": 64, "gradient_batch": 64},
    "er": REPLAY,
    "mir": REPLAY | {"candidates": 100},
    "gdumb": COMMON | SGD | {
        "epochs": 70, "train_batch": 10, "clip": 10.0, "schedule": "constant",
        "minimum_learning_rate": 0.0005,
    },
    "aser": REPLAY | {"neighbours": 3, "samples_per_class": 1.5},
    "scr": REPLAY | {
        "temperature": 0.07, "projection": 128, "review": False,
        "augmentation": "scr+ocm",
    },
    "cope": REPLAY | {
        "learning_rate": 0.001, "temperature": 1.0, "prototype_momentum": 0.99, "embedding": 0,
    },
    "dvc": REPLAY | {
        "candidates": 50, "cross_entropy_weight": 1.0, "entropy_weight": 1.0,
        "augmentation": "dvc+ocm",
    },
    "ocm": ROTATED | {"learning_rate": 0.001},
    "onpro": ROTATED | {
        "learning_rate": 0.0005, "prototype_temperature": 0.5, "random_mixup_highest": 0.6,
        "feedback_mixup_beta": 0.4, "mixup": True, "cross_entropy": "replay",
    },
}  # fmt: skip
"""What each method has on all data sets: the paper, and where it is silent the official code."""
MANY_CLASSES = {
    "onpro": {"feedback": 0.10, "mixup_probability": 0.2, "similarity_scale": 1.0},
    "ocm": {"similarity_scale": 1.0},
    "dvc": {"agreement_weight": 4.0},
}
BY_DATA: dict[str, dict[str, dict[str, Any]]] = {
    "cifar10": {
        "onpro": {"feedback": 0.25, "mixup_probability": 0.6, "similarity_scale": 0.5},
        "ocm": {"similarity_scale": 0.5},
        "dvc": {"agreement_weight": 2.0},
    },
    "cifar100": MANY_CLASSES,
    "tinyimagenet": MANY_CLASSES,
}
"""What depends on the data set."""
STREAMS = {"cifar10": (10, 5, 32), "cifar100": (100, 10, 32), "tinyimagenet": (200, 100, 64)}
"""Classes, tasks and side of the images."""
RUNS = {
    "table1": 15, "table2": 15, "table3": 15, "table4": 15, "tableA1": 5,
    "tableA2": 3, "tableA3": 15, "tableA4": 5, "tableA5": 5, "tableA6": 5,
}  # fmt: skip


def printed(name: str) -> list[tuple[str, list[str]]]:
    """Rows of a table: title, and the paper's values as it prints them."""
    return [
        (row.title, [f"{mean}±{deviation}" for mean, deviation in row.values.values()])
        for row in paper_table(name).rows
    ]


def values(part: PaperTable) -> list[float | None]:
    """The paper's means beside the experiments of a table, as a plan has them."""
    return [
        one.paper[measure][0] if measure in one.paper else None
        for one in plan(part.setups(range(1)), Path("nowhere"), Place()).experiments
        for measure in part.measures
    ]


@pytest.mark.parametrize("name", ["table1", "table2"])
def test_the_benchmark_has_14_methods_9_columns_and_15_runs(name: str) -> None:
    setups = paper_table(name).setups()
    found = {(one.method, one.data, one.memory) for one in setups}
    assert found == {(method, *place) for method in METHODS for place in PLACES}
    assert len(setups) == 14 * 9
    runs = {(one, seed) for one in setups for seed in one.seeds}
    assert len(runs) == 14 * 9 * 15
    assert {seed for _, seed in runs} == set(range(15))
    assert all((e.recipe, e.settings, e.stream) == (None, (), ()) for e, _ in runs)


def test_tables_1_and_2_are_measured_on_the_same_runs() -> None:
    first, second = paper_table("table1"), paper_table("table2")
    assert first.setups() == second.setups()
    assert (first.measures, second.measures) == (("accuracy",), ("forgetting",))


@pytest.fixture(scope="module")
def whole_table() -> list[RunConfig]:
    """The runs of Table 1, as they are planned where nothing has been run."""
    there = plan(paper_table("table1").setups(), Path("nowhere"), Place("cuda", "bf16"))
    assert not there.problems()
    return there.left()


def test_the_plan_of_table_1_has_all_its_runs(whole_table: list[RunConfig]) -> None:
    planned = {(run.method, run.data, run.memory, run.seed) for run in whole_table}
    assert planned == {(m, *place, s) for m in METHODS for place in PLACES for s in range(15)}
    assert len(whole_table) == len({run.folder for run in whole_table}) == 14 * 9 * 15


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("data", STREAMS)
def test_the_plan_of_table_1_has_the_settings_of_the_paper(
    name: str, data: str, whole_table: list[RunConfig]
) -> None:
    runs = [run for run in whole_table if (run.method, run.data) == (name, data)]
    (settings,) = {run.settings for run in runs}
    expected = SETTINGS[name] | BY_DATA[data].get(name, {})
    found = asdict(settings)
    assert {setting: found[setting] for setting in expected} == expected
    for run in runs:
        assert (run.batch_size, run.class_order, run.recipe) == (10, "natural", None)
        assert (run.tasks, run.image_size, run.limit_per_class) == (None, None, None), "its own"


@pytest.mark.parametrize("data", STREAMS)
def test_the_data_of_table_1_are_split_as_in_the_paper(data: str) -> None:
    source = find(data)
    assert (source.classes, source.tasks, source.image_size) == STREAMS[data]
    assert not source.seeded, "runs of several seeds share them"


@pytest.mark.parametrize(("data", "memory"), [("imagenet100", 1000), ("imagenet1k", 5000)])
def test_imagenet_is_learned_as_in_the_paper(data: str, memory: int) -> None:
    there = plan(paper_table("tableA2").setups(), Path("nowhere"), Place())
    assert not there.problems()
    runs = [run for run in there.left() if run.data == data]
    assert {run.memory for run in runs} == {memory}
    assert {run.seed for run in runs} == {0, 1, 2}
    source = find(data)
    assert (source.tasks, source.image_size, source.seeded) == (50, 224, False)
    for run in runs:
        settings = asdict(run.settings)
        assert (settings["replay_batch"], settings["augmentation"]) == (10, "ocm")
        assert settings["encoder"] == "resnet18-imagenet"
        assert settings.get("rotations", 1) == 1
        assert run.batch_size == 10


def test_every_table_is_there_with_its_number_of_runs() -> None:
    assert {name: known.runs for name, known in paper_tables().items()} == RUNS
    for known in paper_tables().values():
        assert len({row.title for row in known.rows}) == len(known.rows)


def test_table_1_corner_by_corner() -> None:
    rows = dict(printed("table1"))
    assert rows["iCaRL"][:3] == ["31.0±1.2", "33.9±0.9", "42.0±0.9"]
    assert rows["ER"] == [
        "19.4±0.6", "20.9±0.9", "26.0±1.2", "8.7±0.3", "9.9±0.5", "10.7±0.8",
        "1.2±0.1", "1.5±0.2", "2.0±0.2",
    ]  # fmt: skip
    assert rows["OnPro"][0] == "57.8±1.1"
    assert rows["OnPro"][-1] == "22.1±0.4"


def test_table_2_corner_by_corner() -> None:
    rows = dict(printed("table2"))
    assert rows["iCaRL"][0] == "52.7±1.0"
    assert rows["AGEM"][3] == "41.7±0.8"
    assert rows["OnPro"][-3:] == ["21.3±0.5", "17.4±0.4", "16.8±0.4"]


ABLATION = [
    (data, memory, measure)
    for data, memory in (("cifar10", 100), ("cifar100", 500))
    for measure in ("accuracy", "forgetting")
]
CIFAR10 = [("cifar10", m, "accuracy") for m in (100, 200, 500)]
OTHERS: dict[str, tuple[list[tuple[str, int, str]], list[str]]] = {
    "table3": (
        ABLATION,
        [
            "baseline: 46.4±1.2 36.0±2.1 18.8±0.8 18.5±0.7",
            "w/o OPE: 53.1±1.4 24.7±2.0 19.3±0.7 15.9±0.9",
            "w/o APF: 52.0±1.5 34.6±2.4 21.5±0.5 16.3±0.8",
            "w/o L_new: 54.8±1.2 22.1±3.0 19.6±0.8 19.9±0.7",
            "w/o L_seen: 55.7±1.4 25.5±1.5 20.1±0.4 16.2±0.6",
            "L_seen w/o C_new: 56.2±1.2 26.4±2.3 20.8±0.6 17.9±0.7",
            "OnPro: 57.8±1.1 23.2±1.3 22.7±0.7 15.0±0.8",
        ],
    ),
    "table4": (
        CIFAR10,
        ["Random: 53.5±2.7 62.9±2.5 70.8±2.2", "APF: 57.8±1.1 65.5±1.0 72.6±0.8"],
    ),
    "tableA1": (
        CIFAR10,
        ["ER: 19.4±0.6 20.9±0.9 26.0±1.2", "ER with KD: 17.0±2.7 17.3±2.1 17.6±0.8"],
    ),
    "tableA2": (
        [("imagenet100", 1000, "accuracy"), ("imagenet1k", 5000, "accuracy")],
        [
            "ER: 9.6±3.5 5.6±4.5",
            "SCR: 12.9±2.2 4.7±0.2",
            "DVC: 11.7±2.9 0.1±0.1",
            "OCM: 16.4±3.6 5.5±0.1",
            "OnPro: 18.6±2.3 6.0±0.2",
        ],
    ),
    "tableA3": (
        ABLATION,
        [
            "CE(both): 48.5±2.2 46.6±2.4 20.4±0.6 41.0±0.6",
            "CE(sepa): 53.2±2.1 38.9±2.3 18.8±0.6 48.1±0.8",
            "OnPro: 57.8±1.1 23.2±1.3 22.7±0.7 15.0±0.8",
        ],
    ),
    "tableA4": (
        CIFAR10,
        [
            "ER-Rot: 30.1±1.9 34.1±3.0 42.8±4.1",
            "ASER-Rot: 30.7±3.5 35.8±0.8 43.8±2.1",
            "SCR-Rot: 35.8±3.3 46.4±2.4 59.8±2.6",
            "DVC-Rot: 45.3±4.3 58.5±2.8 66.7±2.1",
            "OCM: 47.5±1.7 59.6±0.4 70.1±1.5",
            "OnPro: 57.8±1.1 65.5±1.0 72.6±0.8",
        ],
    ),
    "tableA5": (
        [("cifar10", 200, "accuracy"), ("cifar100", 500, "accuracy")],
        [
            "α = 0: 62.9±2.5 22.0±1.5",
            "α = 0.1: 63.2±2.0 22.7±0.7",
            "α = 0.25: 65.5±1.0 22.1±1.1",
            "α = 0.5: 65.4±2.7 21.7±1.2",
            "α = 0.75: 64.6±1.8 21.3±1.3",
            "α = 0.9: 64.1±2.0 21.1±1.1",
        ],
    ),
    "tableA6": (
        CIFAR10,
        ["no Projector: 56.1±4.7 63.3±1.9 71.0±1.5", "OnPro: 57.8±1.1 65.5±1.0 72.6±0.8"],
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_the_other_tables_are_as_the_paper_prints_them(name: str) -> None:
    columns, rows = OTHERS[name]
    table = paper_table(name)
    assert [(*place, measure) for place in table.places for measure in table.measures] == columns
    assert [f"{title}: {' '.join(values)}" for title, values in printed(name)] == rows


@pytest.mark.parametrize("name", ["table3", "table4", "tableA3", "tableA5", "tableA6"])
def test_variants_of_onpro_are_its_recipes(name: str) -> None:
    for row in paper_table(name).rows:
        assert row.method == "onpro"
        assert row.recipe is None or row.recipe in recipes("onpro")


@pytest.mark.parametrize("name", ["1", "Table1", "TABLE1", "table1"])
def test_a_table_is_found_by_its_number(name: str) -> None:
    assert paper_table(name).name == "table1"
    assert paper_table("a5").name == "tableA5"


def test_an_unknown_table_is_told_the_nearest_one() -> None:
    with pytest.raises(UserError, match="no table 'tabel1'; did you mean 'table1'"):
        paper_table("tabel1")


def test_a_part_of_a_table() -> None:
    part = paper_table("table1").narrowed(data=["cifar10"], methods=["onpro", "er"], memory=[200])
    assert list(part.places) == [("cifar10", 200)]
    assert [row.method for row in part.rows] == ["onpro", "er"]
    assert values(part) == [65.5, 20.9]
    assert list(paper_table("table1").narrowed(data=["cifar100"]).places) == PLACES[3:6]
    assert paper_table("table1").narrowed(memory=[500]).places == (PLACES[2], PLACES[3])


def test_a_variant_can_be_chosen() -> None:
    every = paper_table("table3").narrowed(methods=["without-ope", "onpro"]).rows
    assert sorted(row.title for row in every) == sorted(
        row.title for row in paper_table("table3").rows
    )
    part = paper_table("table3").narrowed(methods=["without-ope"])
    assert [row.title for row in part.rows] == ["w/o OPE"]


def test_another_data_set_or_memory_has_no_value_of_the_paper() -> None:
    part = paper_table("table3").narrowed(data=["tiny"], memory=[20])
    assert (part.places, part.measures) == ((("tiny", 20),), ("accuracy", "forgetting"))
    assert set(values(part)) == {None}
    part = paper_table("table1").narrowed(data=["cifar10"], memory=[100, 300], methods=["er"])
    assert values(part) == [19.4, None]


def test_another_stream_has_no_value_of_the_paper() -> None:
    setups = paper_table("table1").setups(range(1), (("limit_per_class", 8),))
    there = plan(setups, Path("nowhere"), Place())
    assert not any(one.paper for one in there.experiments)


def test_a_memory_no_column_has_is_a_mistake() -> None:
    with pytest.raises(UserError, match=r"no memory of 7 but 100, 200, 500.*--data"):
        paper_table("table1").narrowed(memory=[7])


def test_a_method_the_table_does_not_have_is_a_mistake() -> None:
    with pytest.raises(UserError, match="method or variant of table3 'without-opee'"):
        paper_table("table3").narrowed(methods=["without-opee"])
    with pytest.raises(UserError, match="did you mean 'relay'"):
        paper_table("table1").narrowed(methods=["relya"])


def test_a_registered_method_can_stand_beside_those_of_the_paper() -> None:
    part = paper_table("table4").narrowed(methods=["onpro", "er"])
    assert [row.title for row in part.rows] == ["Random", "APF", "er"]
    assert values(part)[-1] == 26.0, "of Table 1"


def test_so_can_a_wrapped_method() -> None:
    (row,) = paper_table("table1").narrowed(methods=["er-rot"]).rows
    assert (row.method, row.recipe) == ("er-rot", None)


@pytest.mark.parametrize("name", sorted(paper_tables()))
def test_every_value_of_the_paper_is_found_by_what_it_is_of(name: str) -> None:
    for row in paper_table(name).rows:
        for (data, memory, measure), value in row.values.items():
            assert reported(row.method, row.recipe, data, memory)[measure] == value
        assert paper_name(row.method, row.recipe)


def test_what_the_paper_does_not_have_has_no_value_and_no_name() -> None:
    assert not reported("onpro", None, "cifar10", 123)
    assert not reported("mine", None, "cifar10", 200)
    assert not reported("onpro", "without-ope", "cifar10", 200)
    assert paper_name("mine") is None
