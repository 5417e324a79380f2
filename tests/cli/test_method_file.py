"""A method in a file of one's own: run, resumed, swept and tabled like any other."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onpro.errors import UserError
from onpro.methods import load_file, registry
from onpro.methods.method_file import resolve
from onpro.runs import read_config
from tests.cli.conftest import Command
from tests.cli.own_files import (
    forget,
    goes_on,
    interrupt,
    needs_its_file,
    nothing_imported,
    result,
)

TINY = ["--data", "tiny", "--limit-per-class", "6", "--device", "cpu", "--out", "out"]

HEAD = """
from dataclasses import dataclass

from torch.nn.functional import cross_entropy

from onpro.memory.reservoir import reservoir_batch
from onpro.methods import Context, Method, ReplaySettings, Terms, register
from onpro.streams import Batch
"""

METHOD = '''

@dataclass(frozen=True)
class {cls}Settings(ReplaySettings):
    """Settings of {name}."""

    smoothing: float = 0.1
    """Share of each label that is spread over all classes (default ours)."""


@register(
    "{name}",
    {cls}Settings,
    title="Only replay",
    paper="an example",
    year=2026,
    memory="images, batch reservoir",
    inference="linear head",
    images_per_step="64",
)
class {cls}(Method[{cls}Settings]):
    """Store the batch, then learn from the memory alone."""

    def __init__(self, settings: {cls}Settings, context: Context) -> None:
        super().__init__(settings, context)
        self.network = self.make_network()
        self.optimizer = settings.make_optimizer(self.network.parameters())
        self.memory = self.make_memory()

    def learn(self, batch: Batch) -> Terms:
        """One step on stored images."""
        reservoir_batch(self.memory, batch.images, batch.labels, self.random["memory"])
        terms = self.terms(self.sample_replay(self.settings.replay_batch))
        self.minimise(terms)
        return terms

    def terms(self, samples) -> Terms:
        """CE of augmented images."""
        logits = self.network.logits(self.augment(samples.images))
        smoothing = self.settings.smoothing
        return {{"ce": cross_entropy(logits, samples.labels, label_smoothing=smoothing)}}
'''

WRAPPER = """
from dataclasses import dataclass

from onpro.methods import Labelled, Settings, Terms, Wrapper, register_wrapper


@dataclass(frozen=True)
class HalfSettings(Settings):
    part: float = 0.5


@register_wrapper(
    "half", HalfSettings, title="Half", paper="an example", year=2026, images_per_step="as many"
)
class Half(Wrapper[HalfSettings]):
    def terms(self, *samples: Labelled) -> Terms:
        return {name: self.settings.part * term for name, term in super().terms(*samples).items()}
"""

ONE = HEAD + METHOD.format(cls="OnlyReplay", name="only-replay")
TWO = ONE + METHOD.format(cls="Another", name="another")


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "_WRAPPERS", dict(registry._WRAPPERS))
    with nothing_imported(monkeypatch, registry, "_METHODS"):
        yield
    registry._wrapped.cache_clear()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my_method.py"
    path.write_text(ONE)
    return path


def test_it_runs_with_its_settings_as_options(onpro: Command, file: Path, tmp_path: Path) -> None:
    said = result(onpro("run", "./my_method.py", *TINY, "--smoothing", "0.2", "--json"))
    assert said["method"] == "only-replay"
    config = json.loads((tmp_path / said["run"] / "config.json").read_text())
    assert config["method"] == "only-replay"
    assert config["settings"]["smoothing"] == 0.2
    assert config["method_file"] == str(file)
    text = " ".join(onpro("run", "./my_method.py", "--help").out.split())
    assert "--smoothing" in text
    assert "spread over all classes" in text


@pytest.mark.parametrize("chosen", ["another", "Another", "only-replay-kd"])
def test_one_of_several_is_chosen_by_its_name_or_class(
    onpro: Command, file: Path, chosen: str
) -> None:
    file.write_text(TWO)
    said = result(onpro("run", f"./my_method.py:{chosen}", *TINY, "--json"))
    assert said["method"] == chosen.lower()


@pytest.mark.usefixtures("file")
def test_its_steps_can_be_measured(onpro: Command) -> None:
    data = ["--like", "tiny", "--classes", "4", "--tasks", "2", "--memory", "20"]
    brief = ["--steps", "1", "--repeats", "1", "--device", "cpu"]
    said = onpro("bench", "./my_method.py", *data, *brief)
    assert said.status == 0, said.err
    assert "only-replay, memory of 20 images" in said.out


@pytest.mark.parametrize("also", ["", ONE], ids=["alone", "beside a method"])
def test_a_file_may_have_a_wrapper_of_any_method(
    onpro: Command, file: Path, tmp_path: Path, also: str
) -> None:
    file.write_text(also + WRAPPER)
    said = result(onpro("run", "./my_method.py:er-half", *TINY, "--part", "0.1", "--json"))
    assert said["method"] == "er-half"
    config = json.loads((tmp_path / said["run"] / "config.json").read_text())
    assert config["settings"]["part"] == 0.1
    assert config["method_file"] == str(file)


@pytest.mark.parametrize("name", ["", ":half", ":er-kd"])
def test_a_file_with_a_wrapper_alone_needs_a_method(onpro: Command, file: Path, name: str) -> None:
    file.write_text(WRAPPER)
    answer = onpro("run", f"./my_method.py{name}", *TINY)
    assert answer.status == 2
    assert "name a method that it wraps, as in my_method.py:er-half." in answer.err


def test_a_changed_file_is_another_run(onpro: Command, file: Path, tmp_path: Path) -> None:
    first = result(onpro("run", "my_method.py", *TINY, "--json"))
    assert result(onpro("run", "my_method.py", *TINY, "--json")) == first
    file.write_text(ONE.replace('{"ce":', '{"cross-entropy":'))
    second = result(onpro("run", "my_method.py", *TINY, "--json"))
    assert second["run"] != first["run"]
    assert '"cross-entropy"' in (tmp_path / second["run"] / "events.jsonl").read_text()


@pytest.fixture
def interrupted(
    onpro: Command, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A run that was stopped, as a process finds it that has not imported the file yet."""
    folder = interrupt(
        onpro, ["run", "my_method.py", *TINY], tmp_path / "out", monkeypatch, after=4
    )
    forget(registry._METHODS, "only-replay", "another")
    return folder


def test_an_interrupted_run_goes_on(onpro: Command, interrupted: Path) -> None:
    goes_on(onpro, interrupted, ["run", "my_method.py", *TINY])


def test_a_run_whose_file_is_gone_or_changed_is_refused(
    onpro: Command, interrupted: Path, file: Path
) -> None:
    needs_its_file(onpro, interrupted, file)


def test_predict_imports_the_file(onpro: Command, file: Path, tmp_path: Path) -> None:
    from PIL import Image

    said = result(onpro("run", "my_method.py", *TINY, "--json"))
    Image.new("RGB", (8, 8)).save(tmp_path / "black.png")
    forget(registry._METHODS, "only-replay", "another")
    (found,) = json.loads(onpro("predict", said["run"], "black.png", "--json").out)
    assert found["file"] == "black.png"


@pytest.mark.parametrize("name", ["features", "attention"])
def test_figures_import_the_file(onpro: Command, file: Path, tmp_path: Path, name: str) -> None:
    said = result(onpro("run", "my_method.py", *TINY, "--json"))
    forget(registry._METHODS, "only-replay", "another")
    answer = onpro("figure", name, said["run"], "--out", "figure.png")
    assert answer.status == 0, answer.err
    assert (tmp_path / "figure.png").is_file()


@pytest.mark.parametrize("name", ["features", "attention"])
def test_figures_leave_out_runs_whose_file_has_changed(
    onpro: Command, file: Path, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    result(onpro("run", "my_method.py", *TINY, "--json"))
    file.write_text(ONE.replace('{"ce":', '{"cross-entropy":'))
    result(onpro("run", "my_method.py", *TINY, "--json"))
    forget(registry._METHODS, "only-replay", "another")
    answer = onpro("figure", name, "out", "--out", "figure.png")
    assert answer.status == 0, answer.err
    (message,) = (said for said in caplog.messages if said.startswith("left out: "))
    assert "my_method.py has changed since the run began" in message
    assert (tmp_path / "figure.png").is_file()


@pytest.mark.thorough
def test_sweeps_and_tables_take_it_in_processes_of_their_own(
    onpro: Command, file: Path, tmp_path: Path
) -> None:
    (tmp_path / "sweep.toml").write_text(
        '[[runs]]\nmethod = ["er", "./my_method.py"]\ndata = "tiny"\nmemory = 20\n'
        "limit_per_class = 6\n"
    )
    common = ["--out", "many", "--device", "cpu", "--workers", "2", "--format", "json"]
    answer = onpro("sweep", "sweep.toml", *common)
    assert answer.status == 0, answer.err
    assert "Traceback" not in answer.err
    cells = json.loads(answer.out)["results"]
    assert {cell["method"] for cell in cells} >= {"er", "only-replay"}
    assert all(cell["n"] == 1 for cell in cells)

    part = ["--data", "tiny", "--methods", "er,my_method.py", "--memory", "20", "--seeds", "1"]
    answer = onpro("table", "table1", *part, "--limit-per-class", "6", *common)
    assert answer.status == 0, answer.err
    assert len(list((tmp_path / "many").iterdir())) == 2, "the runs of the sweep"


def test_a_file_that_changes_during_a_sweep_fails_its_runs_with_a_sentence(
    onpro: Command, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onpro.cli import many, training

    (tmp_path / "sweep.toml").write_text('[[runs]]\nmethod = "my_method.py"\ndata = "tiny"\n')
    train = training.train_many

    def edited(*given: Any) -> Any:
        file.write_text("")
        return train(*given)

    monkeypatch.setattr(many, "train_many", edited)
    answer = onpro("sweep", "sweep.toml", "--out", "many", "--device", "cpu")
    assert answer.status == 1
    assert "my_method.py has changed since the run began" in answer.err
    assert "Traceback" not in answer.err


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("x = 1\nclass\n", "line 2: invalid syntax."),
        ("x = 1\n\nprint(nothing)\n", "line 3: NameError: name 'nothing' is not defined."),
        ("import nowhere_to_be_found\n", "line 1: ModuleNotFoundError: No module named 'nowhere"),
        ("raise SystemExit(3)\n", "line 1: SystemExit: 3."),
        (ONE.replace("def learn", "def lern"), "TypeError: OnlyReplay does not define learn."),
        (
            ONE.replace('"only-replay"', '"er"'),
            "ValueError: the name 'er' is already registered: choose another.",
        ),
        ("x = 1\n", " registers no method: put @register(…) above its class."),
        ("\0", "null bytes"),
    ],
)
def test_a_mistake_in_the_file_is_a_sentence_with_its_line(
    onpro: Command, file: Path, content: str, sentence: str
) -> None:
    file.write_text(content)
    answer = onpro("run", "my_method.py", *TINY)
    assert answer.status == 2
    assert answer.err.count("\n") == 1
    assert str(file) in answer.err
    assert sentence in answer.err


def test_a_name_that_cannot_be_resolved_is_a_sentence(
    onpro: Command, file: Path, tmp_path: Path
) -> None:
    file.write_text(TWO)
    for name, sentence in (
        ("missing.py", "there is no file "),
        ("my_method.py", "has several methods, another, only-replay: name one, as in"),
        ("my_method.py:anoter", "there is no method in my_method.py 'anoter'; did you mean"),
        ("my_method.py:er", "there is no method in my_method.py 'er'"),
        ("my_method.py:another-kdd", "there is no wrapper 'kdd'; did you mean 'kd'?"),
        ("my_method.py:another-mkd", "mkd cannot wrap another, whose loss of new and replayed"),
    ):
        answer = onpro("run", name, *TINY)
        assert answer.status == 2
        assert sentence in answer.err
        (tmp_path / "sweep.toml").write_text(f'[[runs]]\nseeds = 1\nmethod = "{name}"\n')
        answer = onpro("sweep", "sweep.toml", "--dry-run")
        assert answer.status == 2
        assert answer.err.startswith("onpro: sweep.toml, line 3: ")
        assert sentence in answer.err


def test_a_file_is_imported_once_by_whatever_path(file: Path, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("")
    file.write_text("import helper\n" + ONE)
    (tmp_path / "link.py").symlink_to(file)
    first = load_file(file)["only-replay"]
    assert load_file(tmp_path / "link.py")["only-replay"] is first
    assert resolve(f"{tmp_path}/../{tmp_path.name}/my_method.py") == "only-replay"
    assert resolve("er") == "er"
    with pytest.raises(UserError, match="cannot be used"):
        load_file("a\0b.py")


def test_a_configuration_is_read_back(onpro: Command, file: Path, tmp_path: Path) -> None:
    said = result(onpro("run", "my_method.py", *TINY, "--json"))
    before = read_config(tmp_path / said["run"])
    forget(registry._METHODS, "only-replay", "another")
    after = read_config(tmp_path / said["run"])
    assert after.identity == before.identity == said["identity"]
    assert after.method_file == before.method_file
