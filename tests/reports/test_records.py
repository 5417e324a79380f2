"""Tables for papers and for other programs."""

import csv
import io
from pathlib import Path

import pytest

from onpro.reports import comma_separated, latex
from onpro.runs import Finished
from tests.reports.made_up import result


def runs() -> list[Finished]:
    lasts = {"onpro": (50.0, 60.0), "er": (20.0,)}
    return [
        Finished(
            Path(f"{method}-cifar10-m200-s{seed}-0123abcd"),
            result(method, seed, average_forgetting=90.0 - last)
            | {"accuracy": [[90.0, None], [last, 80.0]], "config": {"settings": {}}},
        )
        for method, values in lasts.items()
        for seed, last in enumerate(values)
    ]


def test_latex_is_a_tabular_with_rules() -> None:
    text = latex(runs())
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1
    assert all(rule in text for rule in (r"\toprule", r"\midrule", r"\bottomrule"))
    (row,) = [line for line in text.splitlines() if "onpro &" in line]
    assert r"67.5 $\pm$ 3.5" in row
    assert r"65.5 $\pm$ 1.0" in row
    widths = {line.count("&") for line in text.splitlines() if line.endswith(r"\\")}
    assert len(widths) == 1


def test_latex_sets_special_letters_as_text() -> None:
    run = Finished(Path("x-1"), result("my_method & 100%", recipe="a\nb\\c"))
    text = latex([run])
    assert r"my\_method \& 100\% (a b\textbackslash{}c)" in text


def test_csv_is_read_back() -> None:
    rows = list(csv.DictReader(io.StringIO(comma_separated(runs()))))
    assert [row["method"] for row in rows] == ["onpro", "er"]
    assert float(rows[0]["accuracy_mean"]) == 67.5
    assert float(rows[0]["accuracy_sd"]) == pytest.approx(3.5355339)
    assert float(rows[0]["accuracy_ci95"]) == pytest.approx(31.7655, abs=1e-3)
    assert float(rows[0]["paper_accuracy_mean"]) == 65.5
    assert rows[0]["seeds"] == "0, 1"
    assert rows[1]["accuracy_sd"] == ""


def test_runs_on_part_of_the_data_are_not_set_beside_the_paper(tmp_path: Path) -> None:
    folder = tmp_path / "onpro-cifar10-m200-s0-0123abcd"
    folder.mkdir()
    (folder / "config.json").write_text('{"limit_per_class": 50}')
    (row,) = csv.DictReader(io.StringIO(comma_separated([Finished(folder, result("onpro"))])))
    assert row["paper_accuracy_mean"] == ""
    assert row["by_hand"] == "limit_per_class=50"
