"""A mistake of the user: one sentence that says what to do, status 2, nothing left behind."""

import io
import sys
from pathlib import Path

import pytest
from PIL import Image

from tests.cli.conftest import Command

ER = ["run", "er", "--data", "tiny", "--limit-per-class", "4", "--device", "cpu", "--out", "out"]
ONPRO = ["run", "onpro", *ER[2:]]

MISTAKES: dict[str, tuple[list[str], str]] = {
    "unknown command": (["rum"], "no command 'rum'; did you mean 'run'?"),
    "command that is an option": (["--vers"], "no command '--vers'"),
    "unknown method": (["run", "onproo"], "no method 'onproo'; did you mean 'onpro'?"),
    "method in capitals": (["run", "ER"], "no method 'ER'; did you mean 'er'?"),
    "method after options": (["run", "--data", "tiny", "er"], "comes first: onpro run er, then"),
    "position for an option": (
        ["table", "--nam", "1"],
        "no option '--nam'; see onpro table --help.",
    ),
    "position as an option": (["resume", "--runs", "x"], "no option '--runs'"),
    "empty method": (["run", ""], "no method ''"),
    "unknown wrapper": (["run", "er-rott"], "no wrapper 'rott'; did you mean 'rot'?"),
    "method like a wrapped one": (["run", "er-ace"], "no method 'er-ace'; did you mean 'erace'?"),
    "wrapper without a method": (["run", "rot"], "onpro run er-rot, or onpro run rot --base er"),
    "wrapper of a wrapper": (["run", "kd", "--base", "rot"], "no method 'rot'"),
    "method that cannot be wrapped": (["run", "gdumb-rot"], "rot cannot wrap gdumb"),
    "option of a wrapper": ([*ER, "--rotations", "4"], "classes use onpro run er-rot."),
    "option of a wrapper that does not fit": (
        ["run", "gdumb", *ER[2:], "--rotations=4"],
        "no option '--rotations'",
    ),
    "wrapper as a recipe": ([*ER, "--recipe", "rotation"], "use onpro run er-rot."),
    "other wrapper as a recipe": (
        [*ER, "--recipe", "distillation"],
        "er has no recipe 'distillation'; for distillation of features use onpro run er-kd.",
    ),
    "unknown data set": ([*ER, "--data", "digts"], "no data set 'digts'; did you mean 'digits'?"),
    "unknown option": ([*ER, "--memori", "50"], "no option '--memori'; did you mean '--memory'?"),
    "option of another method": ([*ER, "--feedback", "0.1"], "no option '--feedback'"),
    "unknown option of a list": (["methods", "--jsn"], "did you mean '--json'?"),
    "short option": ([*ER, "-x"], "-x"),
    "stray argument": ([*ER, "onpro"], "unexpected argument 'onpro'"),
    "stray argument of a list": (["datasets", "cifar10"], "unexpected argument 'cifar10'"),
    "graphs on a CPU": ([*ER, "--engine", "graph"], "is on the cpu: take auto or eager."),
    "empty stream": ([*ER, "--stream", ""], "there is no stream ''. Known: blurry"),
    "stream without a value": ([*ER, "--stream"], "--stream takes 1 value"),
    "too many tasks": (
        [*ER, "--stream", "random", "--batch-size", "20"],
        "too many for a stream of 2 steps: take fewer, or smaller batches.",
    ),
    "unknown recipe": ([*ONPRO, "--recipe", "witout-ope"], "did you mean 'without-ope'?"),
    "recipe of another method": ([*ER, "--recipe", "without-ope"], "no recipe of er"),
    "negative memory": ([*ER, "--memory", "-5"], "at least 1 image, not -5"),
    "no memory": ([*ER, "--memory", "0"], "at least 1 image, not 0"),
    "memory of one": ([*ER, "--memory", "1"], "a memory of 1 image is smaller"),
    "memory below a batch": ([*ER, "--memory", "5"], "smaller than a batch of 10"),
    "memory without bounds": ([*ER, "--memory", "100000000000000"], "does not fit"),
    "no seeds": ([*ER, "--seeds", "0"], "seeds must be from 1 to 10000, not 0"),
    "too many at once": ([*ER, "--at-once", "33"], "--at-once takes 1 to 32"),
    "negative seed": ([*ER, "--seed", "-1"], "seed must be at least 0"),
    "seed without bounds": ([*ER, "--seed", "9" * 30], "below 2^63"),
    "more tasks than classes": ([*ER, "--tasks", "7"], "6 classes make 1 to 6 tasks, not 7"),
    "no tasks": ([*ER, "--tasks", "0"], "1 to 6 tasks, not 0"),
    "empty batches": ([*ER, "--batch-size", "0"], "batch size must be at least 1, not 0"),
    "limit of none": ([*ER, "--limit-per-class", "0"], "limit per class must be at least 1"),
    "no image size": ([*ER, "--image-size", "0"], "between 1 and 1024 pixels, not 0"),
    "folder without a path": ([*ER, "--data", "folder"], "written as folder:PATH"),
    "missing folder": ([*ER, "--data", "folder:nowhere"], "nowhere does not exist"),
    "empty folder": ([*ER, "--data", "folder:empty"], "0 class folders but needs at least 2"),
    "folder of one class": ([*ER, "--data", "folder:one"], "1 class folder but needs at least 2"),
    "text for an image": (
        [*ER, "--data", "folder:text"],
        ".png cannot be read (it is damaged, or not an image); replace or remove it.",
    ),
    "file for a folder": (
        [*ER, "--out", "file"],
        "cannot write in file: file is a file; choose another folder.",
    ),
    "too many threads": ([*ER, "--threads", "99999"], "threads on this machine, not 99999"),
    "figure without a name": (["figure"], "name a figure and run folders"),
    "figure without runs": (["figure", "accuracy"], "name a figure and run folders"),
    "figure in a missing folder": (
        ["figure", "accuracy", "empty", "--out", "none/a.png"],
        "cannot write none/a.png: there is no folder none.",
    ),
    "figure of an unknown format": (
        ["figure", "accuracy", "empty", "--out", "a.doc"],
        "cannot save a figure as a.doc: end it in .png, .pdf or .svg.",
    ),
    "report in a missing folder": (
        ["report", "empty", "--out", "none/a.md"],
        "cannot write none/a.md: there is no folder none.",
    ),
    "unknown format": (
        ["report", "empty", "--format", "pdf"],
        "--format takes csv, html, json, latex, markdown or text, not 'pdf'",
    ),
    "two reports": (
        ["report", "empty", "--coverage", "--leaderboard"],
        "--leaderboard and --coverage are different reports: choose one.",
    ),
    "values after tasks for programs": (
        ["report", "empty", "--by-task", "--out", "tasks.csv"],
        "--by-task is for tables as text or Markdown, not for csv: leave it out.",
    ),
    "values after tasks of a comparison": (
        ["report", "empty", "--by-task", "--compare"],
        "--by-task is for tables as text or Markdown, not for --compare: leave it out.",
    ),
    "page of a leaderboard": (
        ["report", "empty", "--leaderboard", "--format", "html"],
        "a page has no --leaderboard",
    ),
    "streams in LaTeX": (["report", "empty", "--streams", "--format", "latex"], "not latex"),
    "folder of runs to resume": (
        ["resume", "runs"],
        "runs is not the folder of a run: it has no config.json; name runs in it, such as runs/*.",
    ),
    "training images only": (
        [*ER, "--data", "folder:split"],
        "has a folder train but no folder test; add it, or give folder:",
    ),
    "folder below a file": ([*ER, "--out", "file/a/b"], "cannot write in file/a/b"),
    "missing data folder": (
        [*ER, "--data", "cifar10", "--data-dir", "nowhere"],
        "nowhere does not exist; create it",
    ),
    "no number": ([*ER, "--memory", "ten"], "--memory takes INT, not 'ten'"),
    "no whole number": ([*ER, "--memory", "1.5"], "--memory takes INT, not '1.5'"),
    "no number or none": ([*ER, "--tasks", "two"], "--tasks takes INT, not 'two'"),
    "no decimal": ([*ONPRO, "--feedback", "a"], "--feedback takes FLOAT, not 'a'"),
    "too few numbers": ([*ONPRO, "--betas", "0.9"], "--betas takes 2 values; see"),
    "invalid choice": ([*ER, "--device", "tpu"], "--device takes auto, cpu or cuda, not 'tpu'"),
    "invalid rotations": ([*ONPRO, "--rotations", "3"], "--rotations takes 1, 4 or 16, not '3'"),
    "missing value": ([*ER, "--memory"], "onpro: --memory takes 1 value; see onpro run er"),
    "switch with a value": ([*ER, "--json=3"], "3"),
    "unknown encoder": ([*ER, "--encoder", "slm"], "did you mean 'slim'?"),
    "unknown augmentation": ([*ER, "--augmentation", "ocmm"], "did you mean 'ocm'?"),
    "learning rate of nothing": ([*ER, "--learning-rate", "0"], "learning rate must be above 0"),
    "learning rate without bounds": ([*ER, "--learning-rate", "inf"], "must be finite"),
    "embedding without bounds": (
        ["run", "cope", *ER[2:], "--embedding", "9" * 20],
        "embedding must be finite and at most 1e9",
    ),
    "unknown encoder where no memory is used": (
        ["run", "pass", *ER[2:], "--encoder", "slm"],
        "did you mean 'slim'?",
    ),
    "share above 1": ([*ONPRO, "--feedback", "1.5"], "feedback must be between 0 and 1, not 1.5"),
    "share below 0": ([*ONPRO, "--feedback", "-0.5"], "between 0 and 1, not -0.5"),
    "odd size to be rotated": ([*ONPRO, "--image-size", "7", "--rotations", "16"], "7"),
    "projection too wide": ([*ONPRO, "--projection", "4096"], "wider than the encoder's 160"),
}


@pytest.fixture(autouse=True)
def _things_to_trip_over(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for folder in ("one/cat", "text/cat", "text/dog", "split/train/cat", "runs/er"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("a.png", "b.png"):
        Image.new("RGB", (8, 8)).save(tmp_path / "one" / "cat" / name)
        (tmp_path / "text" / "cat" / name).write_text("a cat")
        (tmp_path / "text" / "dog" / name).write_text("a dog")
    (tmp_path / "runs" / "er" / "config.json").touch()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_in_one_sentence(onpro: Command, tmp_path: Path, mistake: str) -> None:
    arguments, sentence = MISTAKES[mistake]
    before = sorted(tmp_path.rglob("*"))
    answer = onpro(*arguments)
    assert answer.status == 2
    assert len(answer.err.splitlines()) == 1, answer.err
    assert answer.err.startswith("onpro: ")
    assert sentence in answer.err
    assert answer.err.strip().endswith((".", "?"))
    assert sorted(tmp_path.rglob("*")) == before, "something was left behind"


def test_a_gpu_that_is_not_there(onpro: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    answer = onpro(*ER, "--device", "cuda")
    assert answer.status == 2
    assert answer.err == "onpro: no CUDA device is available here: use --device cpu or auto.\n"


def test_with_json_a_mistake_prints_no_json(onpro: Command) -> None:
    answer = onpro(*ER, "--json", "--memory", "5")
    assert answer.status == 2
    assert not answer.out


@pytest.mark.parametrize("columns", ["40", "200"])
def test_the_sentence_does_not_depend_on_the_terminal(
    onpro: Command, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert onpro(*ER, "--memory", "ten").err == (
        "onpro: --memory takes INT, not 'ten'; see onpro run er --help.\n"
    )


def test_the_sentence_does_not_depend_on_what_the_terminal_can_draw(
    onpro: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    answer = onpro(*ER, "--memory", "ten")
    assert "--memory takes INT, not 'ten'" in answer.err


def test_a_damaged_result_is_told_and_repaired_by_a_fresh_run(
    onpro: Command, tmp_path: Path
) -> None:
    assert onpro(*ER).status == 0
    (result,) = tmp_path.glob("out/*/result.json")
    result.write_text("{")
    answer = onpro(*ER)
    assert answer.status == 2
    assert "result.json cannot be read" in answer.err
    assert onpro(*ER, "--fresh").status == 0
