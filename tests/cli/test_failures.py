"""What is said of several runs that failed."""

from collections.abc import Sequence
from typing import Any

import pytest

from onpro.cli import training
from onpro.errors import UserError
from onpro.experiments.executors import JobResult, RunRequest
from onpro.methods import settings_for
from onpro.runs import RunConfig


@pytest.mark.parametrize("kinds", [["failed", "failed"], ["failed", "defect"]])
def test_a_mistake_of_the_user_is_told_once_if_all_runs_have_it(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
    capsys: pytest.CaptureFixture[str],
    kinds: Sequence[Any],
) -> None:
    settings = settings_for("er", "tiny")
    runs = [
        RunRequest(tmp_path / str(seed), RunConfig("er", settings, data="tiny", seed=seed))
        for seed in range(2)
    ]
    failures = {
        run.folder: JobResult(kind, "no good.") for run, kind in zip(runs, kinds, strict=True)
    }
    monkeypatch.setattr(training, "train_many", lambda *_: failures)

    def train() -> int:
        return training.train_and_show(runs, object(), "slurm", as_json=False)  # type: ignore[arg-type] # not used

    if kinds[1] == "failed":
        with pytest.raises(UserError, match=r"no good\."):
            train()
    else:
        assert train() == 1
        assert "2 runs failed" in capsys.readouterr().err
