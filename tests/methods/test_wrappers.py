"""Wrapped methods: distillation, and rotated copies as classes of their own."""

import pickle
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from onpro.augment import Normalise, rotations
from onpro.errors import UserError
from onpro.methods import Context, method, settings_for, wrappers
from onpro.training.check import (
    Property,
    a_class_can_be_dropped,
    labels_may_come_in_any_order,
    predicting_changes_nothing,
    resuming_changes_nothing,
    unannounced_classes_and_boundaries_work,
)
from tests.methods.learners import DATA, batches, learner, refused, stepper, watch

ROTATED = {"rotations": 4}
QUICK = {"optimizer": "adam", "learning_rate": 5e-3}
TAUGHT = {"teacher_rate": 0.1, "teacher_weight": 2.0}
ADDED: list[tuple[str, dict[str, Any]]] = [
    ("mkd", TAUGHT),
    ("chain", {}),
    ("ccldc", {}),
    ("gwm", {}),
]
"""Wrappers that add a loss of new and replayed images."""
OTHERS = [
    *(
        (f"{base}-rot", ROTATED)
        for base in ("aser", "erace", "gsa", "gss", "mir", "mose", "pcr", "scr")
    ),
    *(
        (f"{base}-kd", {})
        for base in (
            "aser",
            "derpp",
            "dvc",
            "erace",
            "gsa",
            "gss",
            "hpcr",
            "mir",
            "mose",
            "pcr",
            "scr",
        )
    ),
    ("er-rot-kd", ROTATED),
]
FASTER = {"learning_rate": 5e-3}
SMALL = {"projection": 16, **FASTER}
PEERS = [
    ("er-chain", QUICK),
    ("er-ccldc", QUICK),
    ("er-gwm", QUICK),
    ("er-mkd-repeat", {**QUICK, **TAUGHT, "repeats": 2}),
    ("hpcr-balanced", FASTER),
    ("onpro-chain-mkd", {**SMALL, **ROTATED, **TAUGHT}),
    ("er-compressed-ccldc", QUICK),
]
COMBINED = [
    *((f"{base}-{name}", {**QUICK, **more}) for base in ("derpp", "erace") for name, more in ADDED),
    *((f"{base}-{name}", {**FASTER, **more}) for base in ("gsa", "hpcr") for name, more in ADDED),
    *((f"mose-{name}", {**SMALL, **more}) for name, more in ADDED),
    ("onpro-repeat", {**SMALL, **ROTATED, "repeats": 2}),
    ("onpro-chain-gwm", {**SMALL, **ROTATED}),
    *((f"onpro-{name}", {**SMALL, **ROTATED, **TAUGHT}) for name in ("mkd-gwm", "mkd-ccldc")),
]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("er-rot", ROTATED),
        ("dvc-rot", ROTATED),
        ("er-kd", {}),
        ("er-kd-rot", ROTATED),
        ("er-mkd", QUICK),
        ("er-repeat", {}),
        ("er-balanced", {}),
        ("er-mirror", {}),
        ("gdumb-mirror", {}),
        ("icarl-balanced-mirror", {}),
        ("icarl-compressed", {}),
        ("er-calibrated", {}),
        ("er-compressed", {}),
        *(pytest.param(*other, marks=pytest.mark.thorough) for other in PEERS),
        *(pytest.param(*other, marks=pytest.mark.slow) for other in [*OTHERS, *COMBINED]),
    ],
)
@pytest.mark.parametrize(
    "holds",
    [
        resuming_changes_nothing,
        labels_may_come_in_any_order,
        predicting_changes_nothing,
        unannounced_classes_and_boundaries_work,
        a_class_can_be_dropped,
    ],
)
def test_wrapped_methods_have_the_properties_of_a_method(
    name: str, changes: dict[str, Any], holds: Property
) -> None:
    cls = method(name)
    holds(cls, cls.settings_type(**{"encoder": "slim", **changes}))


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "changes"), COMBINED)
def test_combinations_can_be_resumed(name: str, changes: dict[str, Any]) -> None:
    cls = method(name)
    resuming_changes_nothing(cls, cls.settings_type(**{"encoder": "slim", **changes}))


@pytest.mark.parametrize("wrapper", sorted({*wrappers()} - {"mirror"}))
def test_a_wrapper_refuses_a_method_that_it_cannot_change(wrapper: str) -> None:
    with pytest.raises(UserError, match=f"{wrapper} cannot wrap gdumb.*take .*er"):
        method(f"gdumb-{wrapper}")


@pytest.mark.parametrize("name", ["cope", "gdumb", "icarl", "pass"])
def test_what_leaves_the_loss_alone_does_not_ask_for_it(name: str) -> None:
    assert method(f"{name}-mirror")
    for changed in (f"{name}-kd", f"{name}-mirror-kd"):
        with pytest.raises(UserError, match="whose loss is not available apart from its step"):
            method(changed)


def test_a_refusal_suggests_only_what_can_be_wrapped() -> None:
    with pytest.raises(UserError) as refused:
        method("gdumb-rot")
    for base in str(refused.value).partition("take ")[2].rstrip(".").split(", "):
        assert method(f"{base}-rot").about.name == f"{base}-rot"


def test_a_wrapper_refuses_a_method_that_has_its_setting() -> None:
    with pytest.raises(UserError, match="rot cannot wrap er-rot, which has its own rotations"):
        method("er-rot-rot")


@pytest.mark.parametrize("name", ["er-mirror-mirror", "er-balanced-mkd-balanced"])
def test_a_wrapper_without_settings_wraps_a_method_once(name: str) -> None:
    with pytest.raises(UserError, match="which has it already: take"):
        method(name)


@pytest.mark.parametrize("name", ["er-rut", "rot", "-rot", "errr-rot"])
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"no method|no wrapper"):
        method(name)


def test_a_wrapped_method_takes_the_values_of_its_base() -> None:
    settings: Any = settings_for("dvc-rot", "cifar100", "original")
    assert settings.agreement_weight == 4.0
    assert settings.augmentation == "dvc"
    assert settings.rotations == 16


def test_settings_of_a_wrapped_method_can_be_sent_to_another_process() -> None:
    settings = settings_for("er-rot", "digits")
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_each_rotation_of_a_class_is_a_class() -> None:
    learned = learner("er-rot", rotations=16, augmentation="none")
    assert learned.network.classifier.out_features == 64
    assert learned.network.classes == 4
    batch = batches(1)[0]
    network = deepcopy(learned.network)
    losses = []
    for q, block in enumerate(rotations(learned.normalise(batch.images), 16).split(10)):
        for image, label in zip(block, batch.labels.tolist(), strict=True):
            losses.append((image, 16 * label + q))
    images = torch.stack([image for image, _ in losses])
    logits = network.logits(images)
    expected = cross_entropy(logits, torch.tensor([output for _, output in losses]))
    terms = stepper(learned).step(batch)
    torch.testing.assert_close(terms["new"], expected.detach())


def test_new_and_replayed_images_are_rotated_and_then_augmented() -> None:
    learned = learner("er-rot", rotations=4)
    forwards = watch(learned)
    for batch in batches(2):
        stepper(learned).step(batch)
    assert [len(f.images) for f in forwards] == [40, 40, 40]
    first = learned.normalise(batches(1)[0].images)
    assert not torch.equal(forwards[0].images, rotations(first, 4))


def test_images_that_are_not_rotated_are_predicted() -> None:
    learned = learner("er-rot", rotations=4)
    stepper(learned).step(batches(1)[0])
    network = deepcopy(learned.network).eval()
    images = learned.normalise(DATA.test.images)
    logits = network.logits(images).detach()
    scores = learned.scores(DATA.test.images)
    torch.testing.assert_close(scores, logits[:, [0, 4, 8, 12]])


def test_outputs_keep_their_meaning_when_classes_appear() -> None:
    learned = learner("er-rot", rotations=4, num_classes=None)
    for batch in batches(10):
        stepper(learned).step(replace(batch, task=None))
    before = learned.network.classifier.weight.detach().clone()
    assert before.shape[0] == 8
    learned.grow(4)
    assert learned.network.classifier.out_features == 16
    assert torch.equal(learned.network.classifier.weight[:8].detach(), before)


def test_a_class_is_given_up_in_all_its_rotations() -> None:
    learned = learner("er-rot", rotations=4)
    for batch in batches(3):
        stepper(learned).step(batch)
    before = learned.network.classifier.weight.detach().clone()
    learned.forget(1)
    changed = (learned.network.classifier.weight.detach() != before).any(dim=1)
    assert changed.nonzero().flatten().tolist() == [4, 5, 6, 7]


@pytest.mark.parametrize("name", ["er-kd", "icarl", "ocm", "pass"])
def test_neither_teacher_nor_later_ones_know_a_forgotten_class(name: str) -> None:
    changes: dict[str, Any] = {"projection": 16, "rotations": 1} if name == "ocm" else {}
    learned = learner(name, **changes)
    for batch in (*batches(2), *batches(2, start=10)):
        stepper(learned).step(batch)
    teacher = learned.previous if hasattr(learned, "previous") else learned.teacher
    assert teacher.known.tolist()[:2] == [True, True]
    stepper(learned).forget(0)
    assert teacher.known.tolist()[:2] == [False, True]
    stepper(learned).finish_task()
    assert teacher.known.tolist() == [False, True, True, True]


def test_features_are_kept_near_those_of_the_network_after_the_last_task() -> None:
    learned = learner("er-kd", float64=True, augmentation="none", replay_batch=200)
    stream = batches(11)
    for batch in stream[:10]:
        assert "distillation" not in stepper(learned).step(batch)
    stepper(learned).finish_task()
    teacher = deepcopy(learned.network).eval()
    student = deepcopy(learned.network)
    parts = [learned.normalise(stream[10].images), learned.normalise(learned.memory.images)]
    distance = torch.stack(
        [(student.features(p) - teacher.features(p)).square().sum() for p in parts]
    )
    before = deepcopy(learned.teacher.network.state_dict())
    images = learned.progress.images
    terms = stepper(learned).step(stream[10])
    expected = 10 * distance.sum().sqrt().detach()  # one norm over both batches, no mean
    torch.testing.assert_close(terms["distillation"], expected)
    torch.testing.assert_close(learned.teacher.network.state_dict(), before, rtol=0, atol=0)
    assert learned.progress.images == images + 2 * 110


@pytest.mark.parametrize("name", ["er-mkd-kd", "er-chain-kd", "relay-kd"])
def test_features_of_a_loss_in_place_of_the_methods_own_are_distilled(name: str) -> None:
    learned = learner(name)
    for batch in (*batches(2), *batches(2, start=10)):
        terms = stepper(learned).step(batch)
    assert terms["distillation"] > 0
    for label in range(4):  # nothing is stored, so nothing is trained
        stepper(learned).forget(label)
    terms = stepper(learned).step(batch)
    assert "distillation" not in terms


@pytest.mark.parametrize(
    ("name", "changes"), [("er-kd", {"distillation": -1.0}), ("er-rot", {"rotations": 3})]
)
def test_a_bad_value_is_refused(name: str, changes: dict[str, Any]) -> None:
    refused(name, *changes, **changes)


@pytest.mark.parametrize(
    ("name", "changes"), [("er-rot", {}), ("er-mkd", {"taught_rotations": 4}), ("relay", {})]
)
def test_images_that_cannot_be_rotated_are_refused(name: str, changes: dict[str, Any]) -> None:
    context = Context((3, 8, 10), Normalise(DATA.mean, DATA.std), num_classes=2)
    settings = method(name).settings_type(**{"encoder": "slim"} | changes)
    with pytest.raises(UserError, match="square"):
        method(name)(settings, context)


@pytest.mark.parametrize("wrapper", ["ccldc", "gwm", "mkd"])
@pytest.mark.parametrize("base", ["derpp", "er", "gsa", "hpcr", "mose"])
def test_no_term_replaces_another(base: str, wrapper: str) -> None:
    """Of a wrapper and its method, and of wrappers."""
    changes: dict[str, Any] = {"projection": 16} if base == "mose" else {}
    plain, both = (learner(name, **changes) for name in (base, f"{base}-{wrapper}"))
    alone = learner(f"er-{wrapper}")
    stream = (*batches(2), *batches(2, start=10))
    names = [set[str](), set[str](), set[str]()]
    for each, found in zip((plain, alone, both), names, strict=True):
        for batch in stream:
            found |= stepper(each).step(batch).keys()
    of_method = names[0] if base != "er" else set()
    assert not of_method & names[1]
    assert names[2] >= of_method | (names[1] - {"ce", "peer_ce"})


@pytest.mark.parametrize("name", ["derpp-rot", "hpcr-rot"])
def test_rotations_refuse_stored_logits(name: str) -> None:
    with pytest.raises(UserError, match="stores the logits"):
        method(name)


@pytest.mark.parametrize(
    "name", ["er-mkd", "er-ccldc", "er-gwm", "gsa-ccldc", "hpcr-gwm", "derpp-mkd", "erace-chain"]
)
def test_a_step_makes_no_generator(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that a GPU records cannot."""
    learned = learner(name)
    train = stepper(learned)
    first, second, third = batches(3)
    train.step(first)
    train.step(second)  # has made all generators there are

    def refuse(*_: Any) -> None:
        raise AssertionError("a generator is made in a step")

    monkeypatch.setattr(torch, "Generator", refuse)
    train.step(third)


@pytest.mark.parametrize(
    ("wrapper", "setting"),
    [("mkd", "taught_rivals"), ("chain", "chain_rivals"), ("gwm", "student_rivals")],
)
@pytest.mark.parametrize(("rivals", "only"), [("task", False), ("none", True)])
def test_labels_of_new_images_reach_the_classifier_unless_left_out(
    wrapper: str, setting: str, rivals: str, only: bool
) -> None:
    changes: dict[str, Any] = {setting: rivals, "projection": 16, "rotations": 4}
    assert learner(f"onpro-{wrapper}", **changes).learns_new_by_replay_only is only
