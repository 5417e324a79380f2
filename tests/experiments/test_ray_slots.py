"""How many runs fit into a Ray cluster, without Ray."""

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from onpro.errors import UserError
from onpro.experiments.executors.ray import Ray

Machine = dict[str, float]
Cluster = Callable[..., SimpleNamespace]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Makes a module that answers as Ray does for a cluster of such machines."""

    def make(*machines: Machine, gone: int = 0) -> SimpleNamespace:
        def nodes() -> list[dict[str, Any]]:
            count = len(module.machines) - module.gone
            return [
                {"Alive": number < count, "Resources": machine}
                for number, machine in enumerate(module.machines)
            ]

        module = SimpleNamespace(
            machines=machines,
            gone=gone,
            nodes=nodes,
            init=lambda **_: None,
            remote=lambda **_: lambda function: function,
            shutdown=lambda: None,
        )
        monkeypatch.setitem(sys.modules, "ray", module)
        return module

    return make


SMALL: Machine = {"CPU": 2.0}
GPUS: Machine = {"CPU": 16.0, "GPU": 2.0}


@pytest.mark.parametrize(
    ("machines", "needs", "runs"),
    [
        ([SMALL] * 4, {"cpus": 1}, 8),
        ([SMALL] * 4, {"cpus": 2}, 4),
        ([{"CPU": 3.0}] * 4, {"cpus": 2}, 4),
        ([SMALL] * 3 + [{"CPU": 8.0}], {"cpus": 4}, 2),
        ([GPUS, SMALL], {"cpus": 1}, 2),
        ([GPUS, SMALL], {"cpus": 1, "at_once": 4}, 8),
        ([GPUS], {"cpus": 1, "at_once": 1}, 2),
        ([GPUS], {"cpus": 4, "at_once": 4}, 4),
        ([GPUS, SMALL], {"cpus": 1, "device": "cpu"}, 18),
        ([{"GPU": 4.0}, GPUS], {"cpus": 1}, 2),
        ([SMALL] * 4, {"cpus": 2, "workers": 3}, 3),
    ],
)
def test_runs_fit_into_single_machines(
    cluster: Cluster, machines: list[Machine], needs: dict[str, Any], runs: int
) -> None:
    cluster(*machines)
    assert Ray(**needs).slots() == runs


@pytest.mark.parametrize(
    ("machines", "needs"),
    [
        ([SMALL] * 4, {"cpus": 4}),
        ([SMALL, {"GPU": 1.0}], {"cpus": 1}),
        ([SMALL], {"device": "cuda"}),
    ],
)
def test_a_run_that_fits_into_no_machine_is_refused(
    cluster: Cluster, machines: list[Machine], needs: dict[str, Any]
) -> None:
    cluster(*machines)
    with pytest.raises(UserError, match="which no machine of the Ray cluster has"):
        Ray(**needs)


def test_machines_come_and_go(cluster: Cluster) -> None:
    module = cluster(SMALL, SMALL, gone=1)
    executor = Ray()
    assert executor.slots() == 2
    module.gone = 0
    assert executor.slots() == 4
