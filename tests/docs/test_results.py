"""The tables in the documentation are what the program prints of the stored runs."""

import re
from dataclasses import asdict
from pathlib import Path
from statistics import mean

import pytest

from onpro.cli import main
from onpro.experiments import Summary
from onpro.experiments.coverage import coverage
from onpro.experiments.experiment import Experiment
from onpro.experiments.grouping import digest_of, found, stream_name
from onpro.experiments.plan import Place, configurations, plan
from onpro.experiments.published import published
from onpro.experiments.statistics import accuracy_curve
from onpro.experiments.sweep import read_sweep
from onpro.experiments.tables import TITLES, paper_tables
from onpro.methods import method, settings_for
from onpro.methods.settings import PRETRAINED
from onpro.reports.formats import with_spread
from onpro.reports.tables import seed_ranges
from onpro.runs.config_file import parse_config
from onpro.runs.packing import pack
from onpro.runs.reading import identity_of, read_runs
from onpro.text import written

ROOT = Path(__file__).parents[2]
PAGES = [
    str(path.relative_to(ROOT))
    for path in sorted((*ROOT.glob("docs/**/*.md"), *ROOT.glob("results/**/*.md")))
    if "<!-- onpro report " in path.read_text()
]
FILES = sorted((ROOT / "results").rglob("*.jsonl"))
BLOCK = re.compile(r"<!-- onpro report (.*?) -->\n(.*?)<!-- end -->", flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_stored_results_and_pages_agree(
    page: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    blocks = BLOCK.findall((ROOT / page).read_text())
    assert blocks
    for arguments, shown in blocks:
        assert main(["report", *arguments.split()]) == 0
        assert shown.strip() == capsys.readouterr().out.strip(), f"run: onpro report {arguments}"


def test_the_index_lists_the_cells_of_the_stored_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["report", "results", "--coverage", "--format", "csv"]) == 0
    index = (ROOT / "results/index.csv").read_text()
    assert index == capsys.readouterr().out, "run: uv run python results/update.py"


def test_the_coverage_page_says_why_cells_differ() -> None:
    page = (ROOT / "docs/coverage.md").read_text()
    reasons = page[page.index("\n## Why cells differ\n") :]
    cells = coverage(found(read_runs([ROOT / "results"])))
    for cell in cells:
        if cell.status == "differs":
            title = "OnPro" if cell.row.method == "onpro" else cell.row.title
            title = "-Rot" if title.endswith("-Rot") else title
            assert f"**{title}**" in reasons, cell


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_stored_files_are_as_the_command_packs_them(file: Path, tmp_path: Path) -> None:
    """They have no absolute path and no run twice, and a new run changes one line."""
    packed = tmp_path / file.name
    pack(packed, [file])
    assert packed.read_bytes() == file.read_bytes(), "run: onpro pack"


def test_the_runs_on_streams_are_complete() -> None:
    runs = read_runs([ROOT / "results/streams"])
    wanted = read_sweep(ROOT / "results/streams/streams.toml")
    place = Place(device="cpu", precision="fp32")
    planned = {config.identity for one in wanted for config in configurations(one, place)}
    assert {run.result["identity"] for run in runs} == planned
    kinds = {(run.result["method"], stream_name(run.configuration)) for run in runs}
    assert len(kinds) == 14 * 7
    for run in runs:
        assert run.config
        assert sum(map(sum, run.result["confusion"])) == 355


def test_stored_runs_are_complete() -> None:
    files = sorted((ROOT / "results").glob("cifar*.jsonl"))
    assert len(files) > 1
    for run in read_runs(files):
        assert run.config
        assert run.result["steps"] == 5000
        assert sum(map(sum, run.result["confusion"])) == 10000


def test_stored_runs_are_experiments_of_today() -> None:
    """Further seeds join them, whatever settings a method has got or lost since."""
    for run in read_runs(FILES):
        assert digest_of(run) == parse_config(run.config).experiment


def test_the_table_of_the_readme_is_that_of_the_stored_runs() -> None:
    page = (ROOT / "README.md").read_text()
    table = page[page.index("\n## Results\n") : page.index("\n**Speed.**")]
    titles = {
        ("Relay, ours", "cifar10"): "relay",
        ("Relay, ours", "cifar100"): "relay-calibrated",
        ("Relay, compressed memory", "cifar10"): "relay-compressed (many-stored)",
        ("Relay, compressed memory", "cifar100"): "relay-compressed-calibrated",
        **dict.fromkeys([("ER + MKD (`er-mkd`)", f"cifar{n}") for n in (10, 100)], "er-mkd"),
        **dict.fromkeys([("DER++", f"cifar{n}") for n in (10, 100)], "derpp"),
    }
    places = [("cifar10", 100), ("cifar10", 200), ("cifar10", 500)]
    places += [("cifar100", 500), ("cifar100", 1000), ("cifar100", 2000)]
    names = ("cifar10", "cifar100", "cifar10-newer", "cifar100-newer")
    stored = {
        (one.name, one.data, one.memory): accuracy(one)
        for one in found(read_runs([ROOT / f"results/{name}.jsonl" for name in names]))
    }
    shown = {}
    for title, row in re.findall(r"^\| ([^|]+?) \|(.*)\|$", table, flags=re.MULTILINE):
        for place, cell in zip(places, row.split("|"), strict=True):
            if cited := re.match(r" ([\d.]+(?: ± [\d.]+)?) \((\d+)\)", cell):
                shown[titles.get((title, place[0]), title.lower()), *place] = cited.groups()
    assert len(shown) > 25
    for key, numbers in shown.items():
        measured = stored[key]
        assert numbers == (with_spread(measured.mean, measured.deviation), str(measured.n)), key


def onpro(memory: int, recipe: str | None = None) -> Experiment:
    """Return its runs on CIFAR-10."""
    (only,) = (
        one
        for one in found(read_runs([ROOT / "results/cifar10.jsonl"]))
        if (one.method, one.memory, one.recipe) == ("onpro", memory, recipe)
    )
    return only


def accuracy(experiment: Experiment) -> Summary:
    summary = experiment.summary("accuracy")
    assert summary
    return summary


OFFICIAL = {
    (100, 3): (66.9, 66.8),
    (100, 4): (57.7, 61.2),
    (200, 3): (69.7, 68.8, 73.9, 72.1, 68.7, 69.6),
    (200, 4): (60.5, 59.7, 65.4, 66.7, 60.6, 63.0),
    (200, 5): (63.1, 63.9, 61.7, 64.7),
    (500, 3): (75.5, 74.2),
    (500, 4): (71.9, 72.7),
}
"""Average accuracy of OnPro's official implementation, by memory and tasks seen."""


@pytest.mark.parametrize(("memory", "tasks"), OFFICIAL)
def test_onpro_keeps_up_with_its_official_implementation(memory: int, tasks: int) -> None:
    experiment, official = onpro(memory), OFFICIAL[memory, tasks]
    assert len(experiment.runs) >= 3
    ours = mean(accuracy_curve(run.result["accuracy"])[tasks - 1] for run in experiment.runs)
    gap = ours - mean(official)
    assert gap > -3
    shown = f"{written(ours, '.1f')} ({written(gap, '+.1f')})".replace("-", "−")
    cells = [str(memory), str(tasks), ", ".join(map(str, official))]
    cells += [written(mean(official), ".1f"), shown]
    assert f"| {' | '.join(cells)} |" in (ROOT / "docs/results.md").read_text()


@pytest.mark.parametrize("recipe", ["baseline", "without-apf", "without-ope"])
def test_onpro_loses_by_an_ablation(recipe: str) -> None:
    ablation = accuracy(onpro(100, recipe))
    assert ablation.n >= 2
    assert ablation.mean < accuracy(onpro(100)).mean


def test_precisions_of_onpro_agree() -> None:
    """Over the same three seeds the means differ by less than the seeds of one precision do."""
    stored = read_runs(
        [ROOT / f"results/{name}.jsonl" for name in ("cifar10", "cifar10-precision")]
    )
    compared = [
        run
        for run in stored
        if (run.result["method"], run.result["memory"]) == ("onpro", 200)
        and run.result["seed"] in range(3)
    ]
    experiments = found(compared)
    assert {one.detail for one in experiments} == {"tf32", "fp16", "bf16"}
    assert all(seed_ranges(one) == "0–2" for one in experiments)
    summaries = list(map(accuracy, experiments))
    means = [one.mean for one in summaries]
    assert max(means) - min(means) < max(one.deviation or 0.0 for one in summaries)


def test_the_frameworks_defaults_are_compared_with_the_paper() -> None:
    page = (ROOT / "docs/results.md").read_text()
    section = page.split("## The baselines with the framework's defaults")[1].split("<!--")[0]
    rows = re.findall(r"^\| (\w+) \| (\d.*) \|$", section, flags=re.MULTILINE)
    names = {title: name for name, title in TITLES.items()}
    files = [ROOT / f"results/cifar10{kind}.jsonl" for kind in ("-original", "")]
    original, described = (
        {one.method: one for one in found(read_runs([file])) if one.memory == 200} for file in files
    )
    for title, cells in rows:
        name = names[title]
        of_paper = described[name].paper
        expected: list[str] = []
        for measure in ("accuracy", "forgetting"):
            expected.append(written(of_paper[measure][0], ".1f"))
            for one in (original[name], described[name]):
                summary = one.summary(measure)
                assert summary
                expected.append(with_spread(summary.mean, summary.deviation))
        assert cells.split(" | ") == expected, title
    assert {names[title] for title, _ in rows} == original.keys()


def test_the_runs_with_the_frameworks_defaults_are_those_of_their_sweep() -> None:
    setups, place = read_sweep(ROOT / "results/original.toml"), Place()
    assert not plan(setups, ROOT / "results", place).problems()
    stored = read_runs(sorted((ROOT / "results").glob("cifar*-original.jsonl")))
    wanted = {config.identity for one in setups for config in configurations(one, place)}
    assert {identity_of(run.config) for run in stored} <= wanted


@pytest.mark.parametrize("name", ["er", "gdumb", "gss", "mir"])
def test_the_recipe_tuned_is_the_winner_of_its_search(name: str) -> None:
    runs = [run for run in read_runs([ROOT / "results/tuned"]) if run.result["method"] == name]
    best = max(found(runs), key=lambda one: accuracy(one).mean)
    assert seed_ranges(best) == "100, 101"
    won = best.runs[0].config["settings"]
    assert won | PRETRAINED == asdict(settings_for(name, "cifar10", "tuned"))


def test_the_search_is_complete() -> None:
    """What is stored is what the file asks for, no more and no less."""
    requests = read_sweep(ROOT / "results/tuned/search.toml")
    asked = plan(requests, ROOT / "results/tuned", Place(precision="bf16"))
    assert not asked.left()
    assert len(asked.runs()) == len(read_runs([ROOT / "results/tuned"]))


def test_the_campaign_knows_the_stored_runs_and_every_cell_of_the_papers_tables() -> None:
    setups = read_sweep(ROOT / "results/campaign.toml")
    planned = plan(setups, ROOT / "results", Place(precision="bf16"))
    assert not planned.problems()
    assert [run for run in planned.runs() if run.state == "done"]

    def cell(name: str, recipe: str | None, data: str, memory: int) -> tuple[str | int | None, ...]:
        return name, recipe or None, data, memory if method(name).keeps_images else None

    wanted = {cell(one.method, one.recipe, one.data, one.memory) for one in setups}
    tables = [made for name, made in paper_tables().items() if name != "tableA2"]
    cells = {
        cell(row.method, row.recipe, data, memory)
        for made in tables
        for row in made.rows
        for data, memory in made.places
        if data != "tinyimagenet"
    }
    assert cells <= wanted


def test_the_stored_runs_of_newer_methods_are_those_of_their_sweep() -> None:
    setups, place = read_sweep(ROOT / "results/newer.toml"), Place(precision="bf16")
    assert not plan(setups, ROOT / "results", place).problems()
    stored = read_runs([ROOT / f"results/cifar{n}-newer.jsonl" for n in (10, 100)])
    wanted = {config.identity for one in setups for config in configurations(one, place)}
    assert {identity_of(run.config) for run in stored} <= wanted


@pytest.mark.parametrize(
    ("title", "name"), [("CIFAR-10", "relay"), ("CIFAR-100", "relay-calibrated")]
)
def test_relay_is_compared_with_the_best_published_values(title: str, name: str) -> None:
    page = (ROOT / "docs/methods/relay.md").read_text()
    row = re.search(
        rf"^\| {title}, best published \|(.*)\|\n\|.*?\|(.*)\|$", page, flags=re.MULTILINE
    )
    assert row
    data = title.lower().replace("-", "")
    stored = {
        one.memory: accuracy(one)
        for one in found(read_runs([ROOT / f"results/{data}-newer.jsonl"]))
        if (one.method, one.recipe, one.by_hand) == (name, None, ())
    }
    cells = ([cell.strip() for cell in cells.split("|")] for cells in row.groups())
    for memory, best, difference in zip((100, 200, 500, 1000, 2000, 5000), *cells, strict=True):
        if memory not in stored:
            assert best == difference == "–"
            continue
        known = [one.mean for one in published() if (one.data, one.memory) == (data, memory)]
        assert best == written(max(known), ".1f")
        assert difference == f"{stored[memory].mean - float(best):+.1f}"


def test_the_trials_of_the_search_can_be_planned() -> None:
    setups = read_sweep(ROOT / "results/search.toml")
    planned = plan(setups, ROOT / "results", Place(precision="bf16"))
    assert not planned.problems()
    cells = {(one.data, one.memory) for one in setups}
    assert cells == {("cifar100", 1000), ("cifar10", 200), ("tinyimagenet", 2000)}
    assert all(("validation", 0.1) in one.stream for one in setups)
