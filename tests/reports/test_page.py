"""What is in a page, before any browser opens it."""

import json
import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from onpro.experiments.experiment import CUE_MEASURES
from onpro.experiments.grouping import found
from onpro.reports import Picture, page
from onpro.reports.html import content
from onpro.runs import Finished
from onpro.runs.reading import read_runs
from tests.reports.made_up import many, result, save

ROOT = Path(__file__).parents[2]
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{script}} & é"


class Elements(HTMLParser):
    """The elements of a page, and the text inside scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][0] == "script" and data.strip():
            self.scripts.append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def embedded(text: str) -> Any:
    return json.loads(Elements(text).scripts[0])


@pytest.fixture(scope="module")
def stored() -> list[Finished]:
    return read_runs([ROOT / "results" / "cifar10.jsonl"])


def test_all_sections_are_there_and_nothing_is_fetched(stored: list[Finished]) -> None:
    text = page(found(stored))
    elements = Elements(text)
    sections = {section["id"] for section in elements.named("section")}
    assert sections == {
        *("results", "accuracy", "forgetting", "matrices", "confusion", "time", "runs"),
        *("classes", "memory", "cues", "pictures"),
    }
    headings = {section["aria-labelledby"] for section in elements.named("section")}
    assert headings <= {heading.get("id") for heading in elements.named("h2")}
    assert len(elements.scripts) == 2
    assert not re.search(r"https?://(?!www\.w3\.org)", text)
    assert all("src" not in script for script in elements.named("script"))
    assert [link["href"] for link in elements.named("link")] == ["data:,"]
    assert "{{" not in text.replace(elements.scripts[0], "")


def test_numbers_are_those_of_the_runs(stored: list[Finished]) -> None:
    experiments = embedded(page(found(stored)))["experiments"]
    assert sum(e["n"] for e in experiments) == len(stored)
    (onpro,) = [e for e in experiments if (e["name"], e["memory"]) == ("onpro", 200)]
    ends = [
        run.result["average_accuracy"]
        for run in stored
        if (run.result["method"], run.result["memory"]) == ("onpro", 200)
    ]
    assert onpro["n"] == len(ends)
    assert onpro["accuracy"][:2] == pytest.approx([mean(ends), stdev(ends)], abs=0.01)
    assert onpro["paper"] == {"accuracy": [65.5, 1.0], "forgetting": [17.6, 1.4]}
    assert onpro["curve"][0][-1] == pytest.approx(onpro["accuracy"][0])
    assert onpro["curve"][1][-1] == pytest.approx(onpro["accuracy"][1])
    assert onpro["curve"][2][-1] == pytest.approx(onpro["accuracy"][2])
    assert sum(onpro["forgotten"][0]) / 5 == pytest.approx(onpro["forgetting"][0], abs=0.01)
    assert [len(row) for row in onpro["matrix"]["rows"]] == [1, 2, 3, 4, 5]
    assert [sum(row) for row in onpro["confusion"]["rows"]] == pytest.approx([100] * 10, abs=0.5)


def test_the_spread_of_the_paper_is_explained_as_in_the_documentation(
    stored: list[Finished],
) -> None:
    said = "a standard deviation, while (its|the) official code prints 95 % intervals"
    assert re.search(said, page(found(stored)))
    assert re.search(said, (ROOT / "docs" / "experiments.md").read_text())


def test_settings_and_versions_of_every_run_are_there(stored: list[Finished]) -> None:
    data = embedded(page(found(stored)))
    assert ["learning_rate", "0.0005"] in data["settings"]
    assert sum(len(e["runs"]) for e in data["experiments"]) == len(stored)
    run = data["experiments"][0]["runs"][0]
    assert len(run) == len(data["runColumns"]) + 1
    conditions = dict(data["conditions"][run[-1]])
    assert conditions["gpu"] == "NVIDIA H200"
    assert conditions["torch"] == "2.11.0+cu130"


def test_one_page_is_as_another(stored: list[Finished]) -> None:
    assert page(found(stored)) == page(found(stored))


def test_what_run_files_say_cannot_become_markup(tmp_path: Path) -> None:
    hostile = result() | {
        "method": HOSTILE,
        "data": HOSTILE,
        "recipe": HOSTILE,
        "precision": HOSTILE,
        "classes": [f"{HOSTILE} {k}" for k in range(6)],
        "versions": {"torch": HOSTILE, "python": HOSTILE, HOSTILE: [HOSTILE]},
        "hardware": {"gpu": HOSTILE},
        "device": HOSTILE,
    }
    run = save(tmp_path, hostile | {"method": "safe"}, settings={HOSTILE: HOSTILE})
    run = Finished(run.folder, hostile)
    text = page(found([run]), skipped=[HOSTILE])
    calm = page(found([Finished(run.folder, result())]))
    assert Elements(text).found == Elements(calm).found
    data = embedded(text)
    assert data["experiments"][0]["data"] == HOSTILE
    assert data["skipped"] == [HOSTILE]
    assert [HOSTILE, HOSTILE] in data["settings"]


def test_the_policy_names_the_script_and_the_style(stored: list[Finished]) -> None:
    metas = Elements(page(found(stored))).named("meta")
    (policy,) = [m["content"] for m in metas if m.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert len(re.findall(r"'sha256-[\w+/=]{44}'", policy)) == 2
    assert "unsafe" not in policy


def test_a_single_run_has_no_spread() -> None:
    (experiment,) = content(found([Finished(Path("a-1"), result())]))["experiments"]
    assert experiment["accuracy"][1:] == [None, None]
    assert len(experiment["curve"]) == 1


def test_runs_without_their_settings_are_shown(tmp_path: Path) -> None:
    whole, damaged = save(tmp_path, result()), save(tmp_path, result(seed=1))
    (damaged.folder / "config.json").write_text("[")
    (experiment,) = content(found([whole, damaged]))["experiments"]
    assert experiment["n"] == 2
    (experiment,) = content(found([damaged]))["experiments"]
    assert experiment["settings"] == []


def test_settings_that_differ_between_seeds_are_all_named(tmp_path: Path) -> None:
    runs = [save(tmp_path, result(seed=s), settings={"where": f"disk {s}"}) for s in range(2)]
    assert ("where", "disk 0; disk 1") in content(found(runs))["settings"]


def test_classes_are_matched_by_name_whatever_their_order() -> None:
    counts = [[8, 2, 0], [0, 9, 1], [3, 0, 7]]
    turned = [[7, 0, 3], [1, 9, 0], [0, 2, 8]]
    runs = [
        Finished(Path(f"x-s{seed}-1"), result(seed=seed, classes=3, confusion=c) | {"classes": k})
        for seed, (c, k) in enumerate([(counts, ["a", "b", "c"]), (turned, ["c", "b", "a"])])
    ]
    data = content(found(runs))
    confusion = data["experiments"][0]["confusion"]
    assert data["labels"][confusion["labels"]] == ("a", "b", "c")
    assert confusion["rows"] == [[80, 20, 0], [0, 90, 10], [30, 0, 70]]


def test_runs_of_different_length_are_averaged_where_they_meet() -> None:
    runs = [Finished(Path(f"x-s{t}-1"), result(seed=t, tasks=t, classes=t)) for t in (2, 3)]
    (experiment,) = content(found(runs))["experiments"]
    assert len(experiment["curve"][0]) == 3
    assert experiment["curve"][1][2] is None
    assert len(experiment["matrix"]["rows"]) == 3


def test_large_confusion_matrices_are_folded_and_still_add_up() -> None:
    run = Finished(Path("x-1"), result(classes=250))
    data = content(found([run]))
    confusion = data["experiments"][0]["confusion"]
    labels = data["labels"][confusion["labels"]]
    assert confusion["group"] == 3
    assert len(labels) == len(confusion["rows"]) == 84
    assert labels[0] == "class 0 … class 2"
    assert labels[-1] == "class 249"
    assert [sum(row) for row in confusion["rows"]] == pytest.approx([100] * 84, abs=3)


def test_long_texts_are_cut() -> None:
    run = Finished(Path("x-1"), result(data="d" * 10**6, versions={"torch": "t" * 10**6}))
    assert len(page(found([run]))) < 200_000


def test_two_thousand_runs_stay_small() -> None:
    runs = many(runs=2000, seeds=1, tasks=10, classes=50)
    assert len(page(found(runs))) < 10_000_000


def noted(classes: int, evaluations: int, **more: Any) -> dict[str, Any]:
    """A result that has noted its classes at each evaluation."""
    accuracy = [
        [50.0 if k <= 2 * e + 1 else None for k in range(classes)] for e in range(evaluations)
    ]
    content = [[3 if k <= 2 * e + 1 else 0 for k in range(classes)] for e in range(evaluations)]
    return result(classes=classes, **more) | {"class_accuracy": accuracy, "memory_content": content}


def test_classes_and_memory_over_time_are_means_over_the_runs() -> None:
    runs = [Finished(Path("a"), noted(6, 3)), Finished(Path("b"), noted(6, 3, seed=1))]
    runs[1].result["class_accuracy"][2][0] = 100.0
    (experiment,) = content(found(runs))["experiments"]
    shown, stored = experiment["byClass"], experiment["stored"]
    assert shown["columns"] == ["1", "2", "3"]
    assert shown["rows"][0] == [50, 50, 75]
    assert shown["rows"][5] == [None, None, 50]
    assert stored["rows"][5] == [0, 0, 3]
    assert shown["group"] == 1


def test_classes_in_other_orders_are_numbered() -> None:
    runs = [Finished(Path("a"), noted(6, 3)), Finished(Path("b"), noted(6, 3, seed=1))]
    runs[1].result["classes"] = runs[1].result["classes"][::-1]
    data = content(found(runs))
    (experiment,) = data["experiments"]
    assert data["labels"][experiment["stored"]["labels"]] == tuple("123456")


def test_many_classes_and_evaluations_are_folded() -> None:
    curve = [{"step": k, "images": 10 * k, "accuracy": 1.0} for k in range(1, 251)]
    run = Finished(Path("a"), noted(1000, 250) | {"curve": curve})
    (experiment,) = content(found([run]))["experiments"]
    shown = experiment["stored"]
    assert (len(shown["rows"]), len(shown["rows"][0]), shown["group"]) == (100, 100, 10)
    assert shown["columns"][-1] == "2,500"


def test_runs_that_have_not_noted_their_classes_have_no_such_map() -> None:
    older = result() | {"memory_content": [[], [1] * 6, [1] * 6]}  # resumed by this version
    for run in (result(), older):
        (experiment,) = content(found([Finished(Path("a"), run)]))["experiments"]
        assert not {"byClass", "stored"} & experiment.keys()


def test_columns_are_tasks_also_where_some_are_left_out() -> None:
    run = Finished(Path("a"), noted(6, 150, tasks=150))
    (experiment,) = content(found([run]))["experiments"]
    assert experiment["stored"]["at"] == "after task"
    assert experiment["stored"]["columns"][-1] == "150"


def test_the_measures_of_cues_are_those_of_results() -> None:
    """The script names no measure that the page's data do not have."""
    listed = (files("onpro.reports") / "assets" / "page.js").read_text()
    shown = re.search(r"const CUES = \{(.*?)\};", listed, flags=re.DOTALL)
    assert shown
    names = re.findall(r"(\w+): \"", shown[1])
    assert "reliance" in names
    assert set(names) <= set(CUE_MEASURES)


def test_pictures_are_embedded() -> None:
    experiments = found([Finished(Path("a"), result())])
    assert embedded(page(experiments))["pictures"] == []
    picture = Picture(HOSTILE, HOSTILE, b"PNG")
    (shown,) = embedded(page(experiments, pictures=[picture]))["pictures"]
    assert shown == {"title": HOSTILE, "about": HOSTILE, "src": "data:image/png;base64,UE5H"}
