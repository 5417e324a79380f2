"""Runs in packed files: written, merged and read like folders of runs."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onpro.cli import main
from onpro.errors import UserError
from onpro.experiments.experiment import Setup
from onpro.experiments.grouping import found
from onpro.experiments.plan import Place, configurations, plan
from onpro.runs import Finished, RunConfig, finished, read_runs
from onpro.runs.config_file import parse_config
from onpro.runs.packing import pack
from onpro.runs.result import describe
from onpro.runs.schema import checksum
from tests.reports.made_up import result

ER = Setup("er", "digits", 50, (0, 1, 2))


def configs(setup: Setup = ER) -> list[RunConfig]:
    return list(configurations(setup, Place()))


def save(out: Path, config: RunConfig, **more: Any) -> Finished:
    """Write the folder of a run that nobody ran."""
    folder = out / config.folder
    folder.mkdir(parents=True)
    told = {"identity": config.identity, "experiment": config.experiment, "config": config.what()}
    content = result(config.method, config.seed, memory=config.memory, data=config.data)
    content |= told | {"engine": "eager"} | more
    content["checksum"] = checksum(content)
    (folder / "config.json").write_text(json.dumps(describe(config)))
    (folder / "result.json").write_text(json.dumps(content))
    return Finished(folder, content)


@pytest.fixture
def runs(tmp_path: Path) -> list[Finished]:
    return [save(tmp_path / "runs", config) for config in configs()]


def test_a_packed_file_holds_configuration_and_result_of_each_run_in_a_line(
    tmp_path: Path, runs: list[Finished]
) -> None:
    file = tmp_path / "er.jsonl"
    assert pack(file, [tmp_path / "runs"]) == (3, 3)
    assert len(file.read_bytes().splitlines()) == 3
    packed = read_runs([file])
    assert [run.result for run in packed] == [run.result for run in runs]
    assert [run.config for run in packed] == [run.config for run in runs]
    assert [run.folder for run in packed] == [file / run.folder.name for run in runs]


def test_packing_again_changes_nothing(tmp_path: Path, runs: list[Finished]) -> None:
    file = tmp_path / "er.jsonl"
    pack(file, [run.folder for run in runs])
    content = file.read_bytes()
    assert pack(file, [run.folder for run in reversed(runs)]) == (0, 3)
    assert pack(file, [file]) == (0, 3)
    assert file.read_bytes() == content


def test_runs_are_added_to_those_of_a_file(tmp_path: Path, runs: list[Finished]) -> None:
    file, at_once = tmp_path / "er.jsonl", tmp_path / "at-once.jsonl"
    for run in reversed(runs):
        pack(file, [run.folder])
    pack(at_once, [tmp_path / "runs"])
    assert file.read_bytes() == at_once.read_bytes()


def test_another_result_of_a_run_is_refused_unless_it_is_to_replace_the_first(
    tmp_path: Path, runs: list[Finished]
) -> None:
    file = tmp_path / "er.jsonl"
    pack(file, [tmp_path / "runs"])
    content = file.read_bytes()
    again = save(tmp_path / "again", configs()[0], average_accuracy=12.0)
    with pytest.raises(UserError, match="another result of er-digits-m50-s0-"):
        pack(file, [again.folder])
    assert file.read_bytes() == content
    assert pack(file, [again.folder], replace=True) == (1, 3)
    assert read_runs([file])[0].result == again.result


def test_a_run_on_another_engine_is_another_run(tmp_path: Path, runs: list[Finished]) -> None:
    file = tmp_path / "er.jsonl"
    pack(file, [tmp_path / "runs"])
    other = save(tmp_path / "graph", configs()[0], engine="graph")
    assert pack(file, [other.folder]) == (1, 4)
    assert sorted(len(one.runs) for one in found(read_runs([file]))) == [1, 3]


def test_a_damaged_line_is_reported_and_keeps_the_file_from_being_rewritten(
    tmp_path: Path, runs: list[Finished]
) -> None:
    file = tmp_path / "er.jsonl"
    pack(file, [tmp_path / "runs"])
    first, second, third = file.read_text().splitlines()
    changed = second.replace('"steps":5000', '"steps":5001')
    file.write_text("\n".join([first, changed, third[:-20], '{"run":"../x"}', "{}"]) + "\n")
    told: list[str] = []
    assert len(read_runs([file], skipped=lambda _, reason: told.append(reason))) == 1
    expected = ["line 2: .*checksum", "line 3: it cannot be read", *["line .: it holds no run"] * 2]
    for reason, pattern in zip(told, expected, strict=True):
        assert re.match(pattern, reason)
    content = file.read_bytes()
    with pytest.raises(UserError, match="nothing is changed"):
        pack(file, [runs[1].folder])
    assert file.read_bytes() == content


@pytest.mark.parametrize("name", ["../../er", "/er", "..", "", 3])
def test_the_name_of_a_packed_run_is_no_path(
    tmp_path: Path, runs: list[Finished], name: Any
) -> None:
    file = tmp_path / "er.jsonl"
    pack(file, [runs[0].folder])
    file.write_text(json.dumps(json.loads(file.read_text()) | {"run": name}))
    with pytest.raises(UserError, match="no finished run"):
        read_runs([file])


def test_absolute_paths_of_a_run_are_not_stored(tmp_path: Path) -> None:
    config = replace(configs()[0], data_dir=tmp_path / "images")
    command = f"onpro run er --out {tmp_path}/runs --data-dir={tmp_path}/images --seed 0"
    run = save(tmp_path / "runs", config, command=command)
    file = tmp_path / "er.jsonl"
    pack(file, [run.folder])
    assert str(tmp_path) not in file.read_text()
    (packed,) = read_runs([file])
    assert packed.result["command"] == "onpro run er --out runs --data-dir=images --seed 0"
    assert packed.config["data_dir"] is None
    assert pack(file, [run.folder]) == (0, 1)


def test_the_file_of_an_encoders_weights_is_stored_by_its_name(tmp_path: Path) -> None:
    weights: dict[str, Any] = {
        "encoder": "timm:resnet18",
        "encoder_weights": str(tmp_path / "weights.safetensors"),
    }
    config = configs()[0]
    config = replace(config, settings=replace(config.settings, **weights), encoder_sha256="0" * 64)
    run = save(tmp_path / "runs", config)
    file = tmp_path / "er.jsonl"
    pack(file, [run.folder])
    assert str(tmp_path) not in file.read_text()
    (packed,) = read_runs([file])
    assert packed.config["settings"]["encoder_weights"] == "weights.safetensors"
    assert parse_config(packed.config).identity == config.identity


def test_packed_files_are_found_below_a_folder_and_other_files_ignored(
    tmp_path: Path, runs: list[Finished]
) -> None:
    (tmp_path / "results").mkdir()
    pack(tmp_path / "results" / "er.jsonl", [runs[0].folder])
    (tmp_path / "results" / "log.jsonl").write_text('{"event": "start"}\n')
    (tmp_path / "results" / "bench").mkdir()
    (tmp_path / "results" / "bench" / "times.json").write_text("{}")
    told: list[Path] = []
    (run,) = read_runs([tmp_path / "results"], skipped=lambda place, _: told.append(place))
    assert run.result == runs[0].result
    assert not told


def test_a_pattern_selects_runs_of_a_packed_file(tmp_path: Path, runs: list[Finished]) -> None:
    file = tmp_path / "er.jsonl"
    pack(file, [tmp_path / "runs"])
    assert [run.result["seed"] for run in read_runs([file / "*-s[12]-*"])] == [1, 2]
    with pytest.raises(UserError, match="no finished run"):
        read_runs([file / "scr-*"])


def test_finished_runs_of_a_plan_are_found_in_packed_files(
    tmp_path: Path, runs: list[Finished]
) -> None:
    out = tmp_path / "results"
    (out / "deeper").mkdir(parents=True)
    pack(out / "er.jsonl", [runs[0].folder])
    pack(out / "deeper" / "er.jsonl", [runs[1].folder])
    planned = plan([ER], out, Place())
    assert [run.state for run in planned.runs()] == ["done", "done", "missing"]
    done = finished(configs()[1], out)
    assert done
    assert done.result == runs[1].result


def test_the_command_packs_and_other_commands_read(
    tmp_path: Path, runs: list[Finished], capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "er.jsonl"
    assert main(["pack", str(file), str(tmp_path / "runs")]) == 0
    assert capsys.readouterr().out == f"{file}: 3 runs added, 3 in all\n"
    assert main(["report", str(tmp_path / "runs")]) == 0
    of_folders = capsys.readouterr().out
    assert main(["report", str(file)]) == 0
    assert capsys.readouterr().out == of_folders
    assert main(["figure", "accuracy", str(file), "--out", str(tmp_path)]) == 0
    assert (tmp_path / "accuracy.png").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pack"], "name a file and runs"),
        (["pack", "x.jsonl"], "name a file and runs"),
        (["pack", "x.json", "runs"], "must end in .jsonl"),
        (["pack", "gone/x.jsonl", "runs"], "there is no folder gone"),
        (["pack", "x.jsonl", "gone"], "there is no folder or file gone"),
    ],
)
def test_mistakes_are_one_sentence(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err
