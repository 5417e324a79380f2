"""Every golden value is read by a test, or named here with the reason why it is not.

A test names what it reads in its `golden` mark, and the fixture fails a test that reads less. So
the marks of all tests together say what is read, whichever of them run, in whichever process.
"""

from collections.abc import Iterator
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.golden.values import Golden, all_keys, matching

TESTS = Path(__file__).parents[1]

DEPENDS_ON_THE_PROCESSOR = "float32 of an untrained network; steps64 has it in float64"
UNREAD = {
    "baselines/ocm.first_step.after.*": DEPENDS_ON_THE_PROCESSOR,
    "baselines/ocm.first_step.grad.*": DEPENDS_ON_THE_PROCESSOR,
    "baselines/ocm.later_step.after.*": DEPENDS_ON_THE_PROCESSOR,
    "baselines/ocm.later_step.grad.*": DEPENDS_ON_THE_PROCESSOR,
    "baselines/ocm.later_step.previous_after.*": DEPENDS_ON_THE_PROCESSOR,
    "onpro/first_very_first_step.after.*": DEPENDS_ON_THE_PROCESSOR,
    "onpro/first_very_first_step.grad.*": DEPENDS_ON_THE_PROCESSOR,
    "onpro/later_task_first_step.after.*": DEPENDS_ON_THE_PROCESSOR,
    "onpro/later_task_first_step.grad.*": DEPENDS_ON_THE_PROCESSOR,
}

NOT_ALWAYS_RUN = {"browser", "gpu", "skip", "skipif", "slow", "xfail"}


def parameters(marks: list[pytest.Mark]) -> Iterator[dict[str, Any]]:
    """The parameters of each case of a parametrised test."""
    axes = []
    for mark in marks:
        names, values = mark.args[:2]
        names = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
        axes.append([dict(zip(names, [v] if len(names) == 1 else v, strict=True)) for v in values])
    for choice in product(*axes):
        yield {name: value for part in choice for name, value in part.items()}


def patterns_of(test: Any) -> set[str]:
    """What a test names in its mark, in all its cases, if it is always run."""
    marks: list[pytest.Mark] = getattr(test, "pytestmark", [])
    if NOT_ALWAYS_RUN & {mark.name for mark in marks}:
        return set()
    named = [pattern for mark in marks if mark.name == "golden" for pattern in mark.args]
    cases = list(parameters([mark for mark in marks if mark.name == "parametrize"]))
    return {pattern.format(**case) for pattern in named for case in cases}


def patterns_of_all_tests() -> set[str]:
    patterns = set()
    for file in TESTS.rglob("test_*.py"):
        if "mark.golden(" in file.read_text() and file != Path(__file__):
            module = import_module(".".join(file.relative_to(TESTS.parent).with_suffix("").parts))
            assert not hasattr(module, "pytestmark"), "marks of a whole module are not looked at"
            for name, test in vars(module).items():
                patterns |= patterns_of(test) if name.startswith("test_") else set()
    return patterns


def test_every_key_is_read_or_has_a_reason_not_to_be() -> None:
    unread = all_keys() - matching(patterns_of_all_tests())
    assert unread == matching(UNREAD)


@pytest.mark.golden("onpro/apf_*")
def test_a_test_reads_what_it_names_and_nothing_else(golden: Golden) -> None:
    assert set(golden) == {"onpro/apf_q", "onpro/apf_pair_probability"}
    with pytest.raises(AssertionError, match="not read"):
        golden.assert_all_read()
    with pytest.raises(KeyError, match="golden mark"):
        golden["onpro/ope_loss"]
    dict(golden.group("onpro/apf_"))
    golden.assert_all_read()
