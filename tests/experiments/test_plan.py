"""What is there, what is left, what cannot be run, and how long it will take."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from onpro.errors import UserError
from onpro.experiments.estimate import Estimates, time_briefly
from onpro.experiments.experiment import Pairs, Setup
from onpro.experiments.plan import Place, Plan, configurations, plan
from onpro.experiments.tables import paper_table
from onpro.methods import settings_for
from onpro.runs import RunConfig, prepare, run
from onpro.runs.files import locked
from onpro.runs.result import machine
from onpro.runs.status import progress
from onpro.training import EvaluationEvent, StepEvent, Trainer
from tests.tiny_runs import sealed

STREAM = (("limit_per_class", 8),)
PLACE = Place("cpu")


def er(seeds: int = 3, *, settings: Pairs = (), stream: Pairs = STREAM) -> Setup:
    return Setup("er", "tiny", 20, tuple(range(seeds)), settings=settings, stream=stream)


def planned(out: Path, *setups: Setup) -> Plan:
    return plan(setups, out, PLACE)


class Stop:
    """Ends a run in the middle of its second task."""

    def on_step(self, step: StepEvent) -> None:
        if step.task == 1:
            raise KeyboardInterrupt

    def on_evaluation(self, evaluated: EvaluationEvent) -> None:
        pass


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run (seed 0) and one that was interrupted (seed 1)."""
    folder = tmp_path_factory.mktemp("runs")
    first, second, _ = configurations(er(), PLACE)
    run(first, folder)
    with pytest.raises(KeyboardInterrupt):
        run(second, folder, listeners=[Stop()], checkpoint_every=0)
    return folder


def test_runs_are_done_unfinished_or_missing(out: Path) -> None:
    (experiment,) = planned(out, er()).experiments
    assert [r.state for r in experiment.planned] == ["done", "unfinished", "missing"]
    assert [run.result["seed"] for run in experiment.runs] == [0]
    assert experiment.name == "er, limit_per_class=8"


def test_what_was_begun_comes_first_then_seed_by_seed(out: Path) -> None:
    other = er(settings=(("learning_rate", 0.05),))
    left = planned(out, er(), other).left()
    assert [(c.seed, c.settings == settings_for("er", "tiny")) for c in left] == [
        (1, True),
        (0, False),
        (1, False),
        (2, True),
        (2, False),
    ]


def test_a_finished_run_in_a_renamed_folder_is_done(tmp_path: Path) -> None:
    (config,) = configurations(er(1), PLACE)
    run(config, tmp_path).folder.rename(tmp_path / "my best run")
    (only,) = planned(tmp_path, er(1)).experiments
    assert [r.state for r in only.planned] == ["done"]
    assert [r.folder.name for r in only.runs] == ["my best run"]


@pytest.mark.parametrize("older", [False, True])
def test_a_finished_run_is_found_one_folder_further_down(tmp_path: Path, older: bool) -> None:
    (config,) = configurations(er(1), PLACE)
    done = run(config, tmp_path / "cifar")
    if older:  # a version whose runs had no identity
        file = done.folder / "config.json"
        values = json.loads(file.read_text())
        file.write_text(json.dumps({k: v for k, v in values.items() if k != "identity"}))
    (only,) = planned(tmp_path, er(1)).experiments
    assert [r.state for r in only.planned] == ["done"]


def test_a_run_in_other_hands_is_running(out: Path) -> None:
    config = list(configurations(er(), PLACE))[1]
    with locked(out / config.folder):
        assert [r.state for r in planned(out, er()).experiments[0].planned][1] == "running"
        assert config in planned(out, er()).left(), "it is waited for"


def test_other_settings_are_other_runs(out: Path) -> None:
    for other in (
        er(settings=(("learning_rate", 0.05),)),
        er(stream=(("limit_per_class", 9),)),
        replace(er(), memory=30),
    ):
        assert [r.state for r in planned(out, other).runs()] == ["missing"] * 3


def test_experiments_share_runs_of_equal_settings(out: Path) -> None:
    twice = planned(out, er(), er(5, settings=(("learning_rate", 0.1),)))
    assert [r.state for r in twice.runs()] == ["done", "unfinished"] + ["missing"] * 3
    assert len(twice.left()) == 4


def test_a_variant_that_is_the_method_itself_shares_its_runs() -> None:
    parts = [
        paper_table(name).narrowed(methods=[part], data=["cifar10"], memory=[200])
        for name, part in (("tableA5", "alpha-0.25"), ("table4", "onpro"), ("table1", "onpro"))
    ]
    titles = {row.title for part in parts for row in part.rows}
    assert titles == {"α = 0.25", "Random", "APF", "OnPro"}
    configs = [
        config
        for part in parts
        for setup in part.setups()
        if setup.recipe != "random-mixup"
        for config in configurations(setup, PLACE)
    ]
    assert len(configs) == 5 + 15 + 15
    assert len({config.folder for config in configs}) == 15


def test_what_does_not_exist_is_named_and_left_out(tmp_path: Path) -> None:
    experiments = [
        er(),
        replace(er(), method="nobody"),
        replace(er(), recipe="somehow"),
        replace(er(), data="elsewhere"),
        replace(er(), data="elsewhere", memory=30),
        replace(er(), memory=2),
    ]
    there = planned(tmp_path, *experiments)
    assert [bool(e.planned) for e in there.experiments] == [True] + [False] * 5
    nobody, somehow, elsewhere, small = there.problems()
    assert nobody.startswith("nobody, tiny, M = 20: there is no method 'nobody'")
    assert somehow.startswith("er (somehow), tiny, M = 20: there is no recipe of er 'somehow'")
    assert elsewhere.startswith(
        "er, elsewhere, M = 20; er, elsewhere, M = 30: there is no data set 'elsewhere'"
    )
    assert "smaller than a batch" in small
    assert len(there.left()) == 3


def test_the_whole_of_every_table_can_be_planned(tmp_path: Path) -> None:
    names = ("table2", "tableA1", "tableA2", "tableA4")
    setups = [one for name in names for one in paper_table(name).setups(range(1))]
    there = plan(setups, tmp_path, PLACE)
    assert there.left()
    assert all(bool(e.planned) != bool(e.problem) for e in there.experiments)


def test_a_damaged_result_is_named_and_not_run_again(tmp_path: Path) -> None:
    config = next(configurations(er(1), PLACE))
    run(config, tmp_path)
    path = tmp_path / config.folder / "result.json"
    whole = path.read_text()
    for content in ("{", "{}", json.dumps(json.loads(whole) | {"average_accuracy": "high"})):
        path.write_text(content)
        there = planned(tmp_path, er(1))
        assert [r.state for r in there.runs()] == ["damaged"]
        assert not there.left()
        (problem,) = there.problems()
        assert "result.json" in problem


def test_a_data_set_can_be_left_out(out: Path) -> None:
    there = planned(out, er(), replace(er(), data="digits"))
    without = there.without("tiny", "it is gone.")
    assert {c.data for c in without.left()} == {"digits"}
    assert len(without.experiments[0].values("accuracy")) == 1, "what is done stays"
    assert any("it is gone." in problem for problem in without.problems())


def test_times_come_from_such_runs(out: Path) -> None:
    estimates = Estimates(out)
    first, begun, missing = configurations(er(), PLACE)
    result = json.loads((out / first.folder / "result.json").read_text())
    seconds = result["train_seconds"] + result["eval_seconds"]
    assert estimates.seconds(missing) == pytest.approx(seconds)
    assert 0 <= (estimates.seconds(begun) or 0) < seconds, "a part of it is over"
    assert estimates.seconds(replace(missing, memory=40)) == pytest.approx(seconds)
    for other in (
        replace(missing, method="onpro", settings=settings_for("onpro", "tiny")),
        replace(missing, data="digits"),
        replace(missing, limit_per_class=None),
    ):
        assert estimates.seconds(other) is None
    assert not estimates.hardware
    elsewhere = replace(missing, device="cuda")
    assert estimates.seconds(elsewhere) == pytest.approx(seconds)
    assert estimates.hardware == {machine(result["hardware"])}


def test_runs_of_equal_settings_tell_more_than_others(tmp_path: Path) -> None:
    slow, fast = er(1), er(1, settings=(("replay_batch", 1),))
    for experiment, seconds in ((slow, 50.0), (fast, 10.0)):
        (config,) = configurations(experiment, PLACE)
        path = run(config, tmp_path).folder / "result.json"
        result = json.loads(path.read_text())
        path.write_text(sealed(result, train_seconds=seconds, eval_seconds=0))
    estimates = Estimates(tmp_path)
    (first,), (second,) = configurations(slow, PLACE), configurations(fast, PLACE)
    assert estimates.seconds(replace(first, seed=9)) == 50
    assert estimates.seconds(replace(second, seed=9)) == 10
    assert estimates.seconds(replace(first, memory=99, seed=9)) == 30


@pytest.mark.parametrize("beside", [{"shared_by": None}, {"gpu_processes": 2}])
def test_runs_that_counted_the_time_of_others_are_not_asked(
    beside: dict[str, int | None], tmp_path: Path
) -> None:
    configs = list(configurations(er(2), PLACE))
    paths = [run(config, tmp_path).folder / "result.json" for config in configs]
    for path, seconds in zip(paths, (40.0, 10.0), strict=True):
        changed = json.loads(path.read_text()) | {"train_seconds": seconds, "eval_seconds": 0}
        if seconds == 40:
            changed |= beside
        changed = {name: value for name, value in changed.items() if value is not None}
        path.write_text(sealed(changed))
    missing = replace(configs[0], seed=9)
    assert Estimates(tmp_path).seconds(missing) == 10
    paths[1].unlink()
    assert Estimates(tmp_path).seconds(missing) is None


def test_a_calibration_fills_the_gaps(tmp_path: Path) -> None:
    config = next(configurations(er(stream=()), PLACE))
    estimates = Estimates(tmp_path / "nothing")
    assert estimates.seconds(config) is None
    estimates.calibrate([config, replace(config, seed=1)])
    assert (estimates.seconds(replace(config, seed=5)) or 0) > 0
    assert not list(tmp_path.iterdir()), "nothing is written"


@pytest.mark.usefixtures("step_clock")
def test_a_calibration_tells_the_truth_where_all_steps_take_equally_long() -> None:
    config = next(configurations(er(stream=(("batch_size", 5),)), PLACE))
    trainer = prepare(config)
    trainer.run()
    assert trainer.train_seconds == len(trainer.stream)
    assert time_briefly(config) == pytest.approx(trainer.train_seconds)


def test_a_calibration_sees_no_more_than_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int | None] = []

    def noted(config: RunConfig) -> Trainer:
        seen.append(config.limit_per_class)
        return prepare(config)

    monkeypatch.setattr("onpro.experiments.estimate.prepare", noted)
    time_briefly(config_of(limit_per_class=4))
    assert set(seen) == {4}


def config_of(**more: object) -> RunConfig:
    config = next(configurations(er(), PLACE))
    return replace(config, **more)  # type: ignore[arg-type] # as each test needs


def log(folder: Path, *events: object) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


STEP = {"event": "step", "step": 30, "task": 1, "train_seconds": 6.0}
EVALUATION = {
    "event": "evaluation", "step": 20, "task": 0, "accuracy": [80.0], "train_seconds": 4.0,
}  # fmt: skip


def test_progress_is_read_from_the_log(tmp_path: Path) -> None:
    config = config_of()
    assert progress(config, tmp_path) is None
    log(tmp_path / config.folder, EVALUATION, STEP)
    now = progress(config, tmp_path)
    assert now is not None
    assert (now.step, now.task, now.tasks, now.accuracy) == (30, 1, 3, 80.0)
    assert now.seconds_left == pytest.approx(6.0), "30 of 60 steps took 6 seconds"
    log(tmp_path / config.folder, EVALUATION, STEP | {"elapsed_seconds": 24.0})
    now = progress(config, tmp_path)
    assert now is not None
    assert now.seconds_left == pytest.approx(24.0), "with the turns of runs side by side"


def test_before_the_first_evaluation_nobody_knows_how_long(tmp_path: Path) -> None:
    config = config_of()
    log(tmp_path / config.folder, STEP)
    now = progress(config, tmp_path)
    assert now is not None
    assert (now.accuracy, now.seconds_left) == (None, None)


@pytest.mark.parametrize("write", [
    lambda path: path.write_bytes(path.read_bytes() + b'{"event": "st'),
    lambda path: path.write_bytes(b"\xff" * 70000 + b"\n" + path.read_bytes()),
], ids=["a line being written", "a long log"])  # fmt: skip
def test_only_whole_lines_count(tmp_path: Path, write: Callable[[Path], None]) -> None:
    config = config_of()
    log(tmp_path / config.folder, *[EVALUATION] * 500, STEP)
    write(tmp_path / config.folder / "events.jsonl")
    now = progress(config, tmp_path)
    assert now is not None
    assert (now.step, now.accuracy) == (30, 80.0)


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        '"text"',
        "7",
        "{}",
        "[" * 10**4,
        '{"event": "evaluation", "step": 4, "task": 0, "accuracy": [], "train_seconds": 1.0}',
        '{"event": "evaluation", "step": 4, "task": 0, "accuracy": ["x"], "train_seconds": 1.0}',
        '{"event": "evaluation", "step": 4, "task": 0, "train_seconds": 1.0}',
        '{"event": "evaluation", "step": "4", "task": 0, "accuracy": [1], "train_seconds": 1.0}',
        '{"event": "step", "stap": 4, "task": 0, "train_seconds": 1.0}',
        '{"event": "step", "step": 4, "task": null, "train_seconds": 1.0}',
        '{"event": "step", "step": 4, "task": 0, "train_seconds": -1}',
        '{"event": "step", "step": 4, "task": 0, "train_seconds": NaN}',
    ],
)
def test_damaged_lines_are_left_out(tmp_path: Path, line: str) -> None:
    good = '{"event": "step", "step": 3, "task": 0, "train_seconds": 1.5}'
    (config,) = configurations(er(1), PLACE)
    path = tmp_path / config.folder / "events.jsonl"
    path.parent.mkdir()
    path.write_text(f"{good}\n{line}\n")
    found = progress(config, tmp_path)
    assert found is not None
    assert (found.step, found.seconds, found.accuracy) == (3, 1.5, None)


def test_a_pipe_in_the_place_of_a_log_is_not_waited_for(tmp_path: Path) -> None:
    (config,) = configurations(er(1), PLACE)
    (tmp_path / config.folder).mkdir()
    os.mkfifo(tmp_path / config.folder / "events.jsonl")
    assert progress(config, tmp_path) is None


def test_a_real_run_has_progress(out: Path) -> None:
    done = next(configurations(er(), PLACE))
    now = progress(done, out)
    assert now is not None
    assert (now.task, now.step, now.total_steps, now.seconds_left) == (2, 6, 6.0, 0.0)


def test_settings_that_cannot_work_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="learning rate"):
        list(configurations(er(settings=(("learning_rate", -1.0),)), PLACE))
