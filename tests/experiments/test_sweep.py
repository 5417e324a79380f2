"""Grids of the user's own: every combination once, every mistake with its line."""

from pathlib import Path

import pytest

from onpro.errors import UserError
from onpro.experiments.experiment import Setup
from onpro.experiments.plan import Place, plan
from onpro.experiments.sweep import read_sweep


def sweep(tmp_path: Path, text: str) -> list[Setup]:
    path = tmp_path / "sweep.toml"
    path.write_text(text)
    return read_sweep(path)


def names(setups: list[Setup]) -> list[str]:
    return [one.name for one in plan(setups, Path("nowhere"), Place()).experiments]


def test_one_run_needs_only_a_method(tmp_path: Path) -> None:
    (only,) = sweep(tmp_path, '[[runs]]\nmethod = "er"')
    assert only == Setup("er", "digits", 100, (0,))


def test_a_grid_is_every_combination(tmp_path: Path) -> None:
    found = sweep(
        tmp_path,
        """
        [[runs]]
        method = ["er", "onpro"]
        data = ["tiny", "digits"]
        memory = [20, 40, 60]
        seeds = 5
        """,
    )
    assert {(e.method, e.data, e.memory) for e in found} == {
        (method, data, memory)
        for method in ("er", "onpro")
        for data in ("tiny", "digits")
        for memory in (20, 40, 60)
    }
    assert len(found) == 12
    assert {e.seeds for e in found} == {(0, 1, 2, 3, 4)}


def paper(tmp_path: Path, text: str) -> dict[str, tuple[float, float]]:
    """The paper's values beside the only experiment of a file."""
    (only,) = plan(sweep(tmp_path, text), tmp_path, Place()).experiments
    return dict(only.paper)


def test_an_experiment_of_the_paper_stands_beside_its_values(tmp_path: Path) -> None:
    run = '[[runs]]\nmethod = "er"\ndata = "cifar10"\nmemory = 200'
    assert paper(tmp_path, run) == {"accuracy": (20.9, 0.9), "forgetting": (62.9, 1.0)}


def test_what_the_paper_did_not_run_has_no_value_of_it(tmp_path: Path) -> None:
    base = '[[runs]]\nmethod = "onpro"\ndata = "cifar10"\nmemory = 200\n'
    for more in ('recipe = "without-ope"', "settings.replay_batch = 32", "limit_per_class = 5"):
        assert not paper(tmp_path, base + more)


def test_a_variant_of_the_paper_stands_beside_its_values(tmp_path: Path) -> None:
    run = '[[runs]]\nmethod = "onpro"\ndata = "cifar10"\nmemory = 100\nrecipe = "without-ope"'
    assert paper(tmp_path, run) == {"accuracy": (53.1, 1.4), "forgetting": (24.7, 2.0)}


def test_recipes_and_the_method_itself(tmp_path: Path) -> None:
    found = sweep(tmp_path, '[[runs]]\nmethod = "onpro"\nrecipe = ["none", "without-ope"]')
    assert [one.recipe for one in found] == [None, "without-ope"]
    assert names(found) == ["onpro", "onpro (without-ope)"]


def test_settings_are_a_grid_too(tmp_path: Path) -> None:
    found = sweep(
        tmp_path,
        """
        [[runs]]
        method = "onpro"
        data = "tiny"

        [runs.settings]
        learning_rate = [0.001, 1]
        betas = [0.9, 0.99]
        mixup = false
        rotations = [1, 4]
        """,
    )
    assert [dict(e.settings) for e in found] == [
        {"learning_rate": rate, "betas": (0.9, 0.99), "mixup": False, "rotations": rotations}
        for rate in (0.001, 1.0)
        for rotations in (1, 4)
    ]
    assert names(found)[0] == "onpro, learning_rate=0.001, rotations=1, mixup=False"


def test_a_default_that_is_written_out_makes_no_other_experiment(tmp_path: Path) -> None:
    found = sweep(
        tmp_path,
        """
        [common]
        method = "er"

        [[runs]]
        seeds = 2

        [[runs]]
        seeds = [1, 4]
        tasks = 5
        settings = { learning_rate = 0.1 }

        [[runs]]
        settings = { learning_rate = 1 }

        [[runs]]
        settings = { learning_rate = 1.0 }
        """,
    )
    assert [(dict(one.settings), one.seeds) for one in found] == [
        ({}, (0, 1, 4)),
        ({"learning_rate": 1.0}, (0,)),
    ]


def test_pairs_of_numbers_can_be_a_grid(tmp_path: Path) -> None:
    text = '[[runs]]\nmethod = "onpro"\nsettings = { betas = [[0.9, 0.99], [0.9, 0.999]] }'
    assert [dict(e.settings)["betas"] for e in sweep(tmp_path, text)] == [(0.9, 0.99), (0.9, 0.999)]


def test_common_values_hold_where_nothing_else_is_said(tmp_path: Path) -> None:
    found = sweep(
        tmp_path,
        """
        [common]
        data = "tiny"
        memory = 20
        seeds = [3, 5]
        limit_per_class = 8
        settings = { encoder = "slim" }

        [[runs]]
        method = "er"

        [[runs]]
        method = "er"
        memory = 40
        settings = { learning_rate = 0.05 }
        """,
    )
    first, second = found
    assert (first.data, first.memory, first.seeds) == ("tiny", 20, (3, 5))
    assert first.stream == (("limit_per_class", 8),)
    assert (second.memory, second.stream) == (40, first.stream)
    assert dict(second.settings) == {"encoder": "slim", "learning_rate": 0.05}
    assert names(found) == [
        "er, limit_per_class=8",
        "er, learning_rate=0.05, limit_per_class=8",
    ]


def test_what_is_asked_for_twice_is_run_once(tmp_path: Path) -> None:
    found = sweep(
        tmp_path,
        '[[runs]]\nmethod = "er"\nseeds = 2\n[[runs]]\nmethod = ["onpro", "er"]\nseeds = [1, 4]',
    )
    assert [(e.method, e.seeds) for e in found] == [("er", (0, 1, 4)), ("onpro", (1, 4))]


MISTAKES: dict[str, tuple[str, int, str]] = {
    "syntax": ('[[runs]]\nmethod = "er\n', 2, "expected TOML"),
    "syntax at the end": ("[[runs]]\nmemory = [1,\n", 2, "expected TOML"),
    "unknown table": ('[grid]\n[[runs]]\nmethod = "er"', 1, "no table 'grid'"),
    "unknown key": ('[[runs]]\nmetod = "er"', 2, "no key 'metod'; did you mean 'method'?"),
    "unknown key of the second": (
        '[[runs]]\nmethod = "er"\n\n[[runs]]\nmethod = "er"\n# memori\nmemori = 5',
        7,
        "no key 'memori'; did you mean 'memory'?",
    ),
    "unknown common key": ('[common]\nx = 1\n[[runs]]\nmethod = "er"', 2, "no key 'x'"),
    "setting as a key": (
        '[[runs]]\nmethod = "er"\nlearning_rate = 0.1',
        3,
        "learning_rate is a setting of methods: write settings.learning_rate.",
    ),
    "no method": ("[common]\nmemory = 20\n\n[[runs]]\nseeds = 2", 4, "say which method"),
    "unknown method": ('[[runs]]\nmethod = "err"', 2, "no method 'err'; did you mean 'er'?"),
    "one unknown method of a list": (
        '[[runs]]\nmethod = [\n  "er",\n  "onproo",\n]',
        4,
        "no method 'onproo'; did you mean 'onpro'?",
    ),
    "unknown data set": ('[[runs]]\nmethod = "er"\ndata = "digts"', 3, "did you mean 'digits'?"),
    "unknown common data set": (
        '[common]\ndata = "digts"\n[[runs]]\nmethod = "er"',
        2,
        "did you mean 'digits'?",
    ),
    "unknown recipe": (
        '[[runs]]\nmethod = "onpro"\nrecipe = "witout-ope"',
        3,
        "no recipe of onpro 'witout-ope'; did you mean 'without-ope'?",
    ),
    "recipe of another method": (
        '[[runs]]\nmethod = ["onpro", "er"]\nrecipe = "without-ope"',
        3,
        "no recipe of er 'without-ope'",
    ),
    "unknown setting": (
        '[[runs]]\nmethod = "er"\n[runs.settings]\nlearning_rat = 0.1',
        4,
        "no setting of er 'learning_rat'; did you mean 'learning_rate'?",
    ),
    "unknown setting, dotted": (
        '[[runs]]\nmethod = "er"\nsettings.learning_rat = 0.1',
        3,
        "did you mean 'learning_rate'?",
    ),
    "unknown setting, inline": (
        '[[runs]]\nmethod = "er"\nsettings = { encoder = "slim", rat = 0.1 }',
        3,
        "no setting of er 'rat'",
    ),
    "text for a number": (
        '[[runs]]\nmethod = "er"\nsettings.learning_rate = "fast"',
        3,
        "learning_rate takes a number, or a list of such, not 'fast'",
    ),
    "text among numbers": (
        '[[runs]]\nmethod = "er"\nmemory = [\n20,\n"big",\n]',
        5,
        "memory takes a whole number, or a list of such, not 'big'",
    ),
    "half a memory": ('[[runs]]\nmethod = "er"\nmemory = 20.5', 3, "a whole number"),
    "true for a number": ('[[runs]]\nmethod = "er"\nmemory = true', 3, "a whole number"),
    "number for a text": ("[[runs]]\nmethod = 5", 2, "method takes a text in quotes"),
    "not a choice": (
        '[[runs]]\nmethod = "er"\nclass_order = "odd"',
        3,
        "class_order takes 'natural' or 'random'",
    ),
    "not a choice of a setting": (
        '[[runs]]\nmethod = "onpro"\nsettings.rotations = [1, 3]',
        3,
        "rotations takes 1 or 4 or 16, or a list of such, not 3",
    ),
    "too few numbers": (
        '[[runs]]\nmethod = "onpro"\nsettings.betas = [0.9]',
        3,
        "betas takes [a number, a number]",
    ),
    "empty list": ('[[runs]]\nmethod = "er"\nmemory = []', 3, "not []"),
    "no seeds": ('[[runs]]\nmethod = "er"\nseeds = 0', 3, "seeds takes a number of runs"),
    "text for seeds": ('[[runs]]\nmethod = "er"\nseeds = "all"', 3, "or a list of seeds"),
    "a seed that is none": ('[[runs]]\nmethod = "er"\nseeds = [-1]', 3, "seed must be at least 0"),
    "more tasks than classes": (
        '[[runs]]\nmethod = "er"\ntasks = [5, 99]',
        3,
        "10 classes make 1 to 10 tasks, not 99",
    ),
    "memory below a batch": ('[[runs]]\nmethod = "er"\nmemory = 5', 3, "smaller than a batch"),
    "a value that cannot work": (
        '[[runs]]\nmethod = "er"\n[[runs]]\nmethod = "er"\nsettings.learning_rate = -1.0',
        5,
        "learning rate must be above 0",
    ),
    "one of many that cannot work": (
        '[[runs]]\nmethod = "er"\nmemory = [20, 40]\nsettings.learning_rate = [\n0.1,\n-1.0,\n]',
        6,
        "learning rate must be above 0",
    ),
    "values that do not go together": (
        '[[runs]]\nmethod = "er"\nmemory = -5\nsettings.learning_rate = -1.0',
        1,
        "must",
    ),
    "a word without quotes": (
        "[[runs]]\nmethod = er",
        2,
        "invalid value in 'method = er'; expected TOML, where text stands in quotes",
    ),
    "settings that are none": ('[[runs]]\nmethod = "er"\nsettings = 3', 3, "must be a table"),
    "runs that are none": ("runs = 3", 1, "write [[runs]]"),
    "one table of runs": ('[runs]\nmethod = "er"', 1, "write [[runs]]"),
    "common that is none": ('common = 3\n[[runs]]\nmethod = "er"', 1, "write [common]"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, mistake: str) -> None:
    text, line, sentence = MISTAKES[mistake]
    with pytest.raises(UserError) as told:
        sweep(tmp_path, text)
    assert str(told.value).startswith(f"{tmp_path / 'sweep.toml'}, line {line}: "), told.value
    assert sentence in str(told.value)
    assert str(told.value).endswith((".", "?"))


@pytest.mark.parametrize("text", ["", "# nothing", "[common]\nmemory = 20"])
def test_a_file_without_runs_is_a_mistake(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match="asks for no runs"):
        sweep(tmp_path, text)


def test_a_file_may_begin_with_the_mark_of_windows(tmp_path: Path) -> None:
    (one,) = sweep(tmp_path, '\ufeff[[runs]]\nmethod = "er"\n')
    assert one.method == "er"


def test_a_missing_or_unreadable_file_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no file"):
        read_sweep(tmp_path / "nothing.toml")
    with pytest.raises(UserError, match="cannot be read"):
        read_sweep(tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="no text in UTF-8"):
        read_sweep(tmp_path / "binary.toml")
