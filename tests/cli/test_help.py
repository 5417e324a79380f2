"""`--help` fits a terminal and says of every setting what its default is and whose."""

import ast
import inspect
import re
import subprocess
import sys
import textwrap
from dataclasses import asdict, fields
from itertools import pairwise
from typing import get_type_hints

import pytest

from onpro._version import __version__
from onpro.cli import COMMANDS, figure
from onpro.cli.outlines import FOLDER, default_settings, read
from onpro.cli.parsing import CHECKPOINT_EVERY
from onpro.data import sources
from onpro.figures import FIGURES
from onpro.figures.arrivals import stream
from onpro.methods import Settings, methods, recipes, settings_for, wrappers
from onpro.streams import stream_kinds
from onpro.training import checkpoint
from tests.cli.conftest import Command

HELPS = [
    ["--help"],
    ["-h"],
    [],
    *([command, "--help"] for command in COMMANDS),
    *(["run", name, "--help"] for name in methods()),
    *(["run", "er", "--stream", kind, "--help"] for kind in stream_kinds()),
    ["table", "--stream", "i-blurry", "--help"],
    ["run", "er-rot", "--help"],
    ["run", "rot", "--help"],
    ["run", "onpro", "--data", "imagenet100", "--recipe", "without-projector", "--help"],
]
PROVENANCE = ("paper", "official code", "port", "ours")


def docstrings(settings: type[Settings]) -> dict[str, str]:
    """What is written below each field, the fields of base classes among them."""
    found: dict[str, str] = {}
    for cls in reversed(settings.__mro__[:-1]):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        assert isinstance(tree, ast.ClassDef)
        for field, below in zip(tree.body, tree.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
            ):
                found[field.target.id] = " ".join(str(below.value.value).split())
    return found


def words(text: str) -> str:
    """The text in one line, without frames."""
    return " ".join(re.sub(r"^[│|]|[│|]$", " ", text, flags=re.MULTILINE).split())


@pytest.mark.parametrize("arguments", HELPS, ids=" ".join)
def test_help_fits_80_columns(onpro: Command, arguments: list[str]) -> None:
    answer = onpro(*arguments)
    assert answer.status == 0
    assert not answer.err
    assert max(map(len, answer.out.splitlines())) <= 80


@pytest.mark.parametrize("arguments", HELPS, ids=" ".join)
def test_help_is_without_clutter(onpro: Command, arguments: list[str]) -> None:
    text = words(onpro(*arguments).out)
    assert "options options" not in text
    assert "{None}" not in text
    assert not re.search(r"default[^()]*: (None|''|)\)", text)
    assert not re.search(r"(?<!\.)\.\.(?!\.)", text)


def test_usage(onpro: Command) -> None:
    usages = {
        ("run",): "run [METHOD]",
        ("run", "er"): "run er",
        ("resume",): "resume RUN...",
        ("table",): "table [NAME]",
        ("sweep",): "sweep FILE",
        ("methods",): "methods",
        ("recipes",): "recipes [METHOD]",
        ("figure",): "figure NAME RUN...",
        ("pack",): "pack FILE RUN...",
        ("bench",): "bench [METHOD...]",
    }
    for command, usage in usages.items():
        first = onpro(*command, "--help").out.splitlines()[0]
        assert first == f"usage: onpro {usage} [OPTIONS]"


def test_essential_options_come_first_and_settings_last(onpro: Command) -> None:
    options = re.findall(r"^\W{0,2}(--[a-z][\w-]*)", onpro("run", "er", "--help").out, re.MULTILINE)
    assert options[:6] == ["--data", "--memory", "--recipe", "--seed", "--seeds", "--out"]
    assert options[-1] == "--replay-batch"


def test_defaults_are_those_of_the_data_set_and_the_recipe(onpro: Command) -> None:
    def said(*arguments: str) -> str:
        return words(onpro("run", *arguments, "--help").out)

    assert "(default on digits: slim; else resnet18, from the paper)" in said()
    assert "(default on digits: 0.005; else 0.0005, from the paper)" in said()
    assert "(default on digits: slim; else resnet18, from the paper)" in said("er")
    assert "(default: resnet18, from the paper)" in said("er", "--data", "cifar10")
    tuned = said("er", "--data", "cifar10", "--recipe", "tuned")
    assert "(default on cifar10 with recipe tuned: adam; else sgd)" in tuned
    assert "(default on folder: slim;" in said("er", "--data", "folder:somewhere")
    assert "(default on digits: slim;" in said("er-rot")


@pytest.mark.parametrize(
    "mistake",
    [
        ["--memory"],
        ["--memori", "3"],
        ["--recipe", "x"],
        ["--rotations", "4"],
        ["--stream", "x"],
        ["--blur", "3"],
    ],
)
def test_help_is_given_beside_a_mistake(onpro: Command, mistake: list[str]) -> None:
    answer = onpro("run", "er", *mistake, "--help")
    assert answer.status == 0
    assert answer.out.startswith("usage: onpro run er ")
    assert not answer.err


@pytest.mark.parametrize("name", sorted(methods()))
def test_defaults_in_help_are_those_of_a_run(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    asked: list[tuple[str, str | None]] = [(source.name, None) for source in sources()]
    asked += [("cifar100", recipe) for recipe in recipes(name)]
    settings = {of: asdict(settings_for(name, *of)) for of in asked}
    monkeypatch.setattr("onpro.cli.outlines._readable", lambda: True)
    assert {of: asdict(default_settings(name, *of)) for of in asked} == settings


def test_help_fits_a_narrow_terminal(onpro: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert max(map(len, onpro("run", "onpro", "--help").out.splitlines())) <= 40


@pytest.mark.parametrize("name", sorted(methods()))
def test_lines_of_help_are_broken_by_the_terminal_and_not_by_the_source(
    onpro: Command, name: str
) -> None:
    lines = [line.rstrip("│ ") for line in onpro("run", name, "--help").out.splitlines()]
    for line, after in pairwise(lines):
        indented = [re.match(r"\W{20,}(\S+)", part) for part in (line, after)]
        if indented[0] and indented[1]:  # then the next word would not have fitted
            assert len(f"{line} {indented[1][1]}") > 77, line


def test_help_may_be_asked_for_before_the_method(onpro: Command) -> None:
    asked = onpro("run", "--help", "er")
    assert asked == onpro("run", "er", "--help")
    assert asked.out.startswith("usage: onpro run er ")


@pytest.mark.parametrize("name", sorted(wrappers()))
def test_help_of_a_wrapper_says_how_to_use_it(onpro: Command, name: str) -> None:
    answer = onpro("run", name, "--help")
    assert answer == onpro("run", "--help", name)
    assert answer.status == 0
    assert answer.out.startswith(f"usage: onpro run METHOD-{name} [OPTIONS]\n")
    assert f"onpro run {name} --base er" in words(answer.out)
    based = onpro("run", name, "--base", "er", "--help")
    assert based.out.startswith(f"usage: onpro run er-{name} [OPTIONS]\n")


def test_help_lists_every_command(onpro: Command) -> None:
    lines = onpro("--help").out.splitlines()
    for name, about in COMMANDS.items():
        assert any(line.split(maxsplit=1) == [name, about] for line in lines)


def test_the_version(onpro: Command) -> None:
    assert onpro("--version").out == f"onpro {__version__}\n"


@pytest.mark.parametrize("name", sorted(methods()))
def test_help_of_a_method_lists_every_option_with_its_default(onpro: Command, name: str) -> None:
    text = onpro("run", name, "--help").out
    blocks = re.split(r"^\W{0,2}(?=--\w)", text, flags=re.MULTILINE)[1:]
    options = {block.split(maxsplit=1)[0].rstrip(","): block for block in blocks}
    for field in fields(methods()[name].settings_type):
        assert f"--{field.name.replace('_', '-')}" in options
        assert "(default" in options[f"--{field.name.replace('_', '-')}"]
    assert "METHOD is one of" in text


@pytest.mark.parametrize("name", sorted(methods()))
def test_every_setting_says_where_its_default_comes_from(name: str) -> None:
    settings = methods()[name].settings_type
    said = docstrings(settings)
    for field in fields(settings):
        text = said.get(field.name, "")
        assert "default" in text, f"{field.name} does not say what its default is"
        assert any(source in text for source in PROVENANCE), f"{field.name}: whose default?"


def test_recipes_are_listed_whole(onpro: Command) -> None:
    text = onpro("run", "onpro", "--help").out
    assert "without-seen" in text
    assert "alpha-0.25" in text


def test_every_figure_is_named_and_listed(onpro: Command) -> None:
    figures = {**FIGURES, "stream": stream}
    lines = {name: (figures[name].__doc__ or "").splitlines()[0] for name in sorted(figures)}
    assert lines == figure.FIGURES
    assert all(name in onpro("figure", "--help").out for name in figures)


HEAVY = {"torch", "numpy", "scipy", "sklearn", "matplotlib", "PIL"}


def test_help_lists_and_mistakes_in_options_import_nothing_heavy() -> None:
    asked = [[command, "--help"] for command in COMMANDS]
    asked += [
        ["run", "er", "--help"],
        ["methods"],
        ["recipes"],
        ["datasets"],
        ["streams"],
        ["figure", "--list"],
        ["figure", "acuracy", "runs"],
        ["table", "--list"],
        ["table", "table9"],
        ["run", "er", "--stream", "blurry", "--help"],
        ["run", "er", "--stream", "blury"],
        ["--version"],
        ["--help"],
    ]
    asked += [["run", "er", "--memori", "3"], ["run", "rr"]]
    script = f"""
import sys
from onpro.cli import main
for arguments in {asked!r}:
    status = main(arguments)
    loaded = {HEAVY!r} & sys.modules.keys()
    assert not loaded, (arguments, loaded)
    assert status in (0, 2)
"""
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr


def test_what_is_read_in_the_methods_files_is_what_they_register() -> None:
    outlines = read(FOLDER, "register")
    assert list(outlines) == [name for name in methods() if name in outlines]
    own = {name: cls for name, cls in methods().items() if cls.__module__.startswith("onpro.")}
    assert outlines.keys() == own.keys()
    for name, cls in own.items():
        read_in, registered = outlines[name].settings, cls.settings_type
        assert outlines[name].about == asdict(cls.about)
        assert outlines[name].recipes == recipes(name)
        assert get_type_hints(read_in) == get_type_hints(registered)
        assert [(f.name, f.default) for f in fields(read_in)] == [
            (f.name, f.default) for f in fields(registered)
        ]
        assert {f.name: f.metadata["help"] for f in fields(read_in)} == docstrings(registered)
        assert read_in.__doc__ == registered.__doc__


def test_wrappers_are_read_as_they_are_registered() -> None:
    outlines = read(FOLDER, "register_wrapper")
    assert list(outlines) == list(wrappers())
    for name, cls in wrappers().items():
        assert outlines[name].about == asdict(cls.about)
        own = [(f.name, f.default) for f in fields(cls.settings_type)]
        assert [(f.name, f.default) for f in fields(outlines[name].settings)] == own


def test_checkpoints_are_as_frequent_as_the_options_say() -> None:
    assert CHECKPOINT_EVERY == checkpoint.CHECKPOINT_EVERY


def test_no_choice_is_called_none(onpro: Command) -> None:
    assert "--format {text,markdown,latex,csv,json,html}" in onpro("report", "--help").out
