"""Digests of short CPU runs of every method and recipe, to show that a change of code changes none.

    uv run python -m tests.methods.digests write FILE      # before the change
    uv run python -m tests.methods.digests compare FILE    # after it, on the same machine

Other processors and versions of torch round differently, so a file is good for one machine.
"""

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from onpro.augment import Normalise
from onpro.data.tiny import tiny
from onpro.methods import Context, method, methods, recipes, settings_for
from onpro.streams import ClassIncremental
from onpro.training.stepper import Stepper

DATA = tiny(classes=6, train_per_class=40, test_per_class=10)
WRAPPED = ("er-rot", "aser-rot", "scr-rot", "dvc-rot", "er-kd")


def digest(name: str, recipe: str | None, *, announced: bool) -> str:
    """Return a digest of every loss, prediction and weight, and of the memory, of a run."""
    settings: Any = replace(settings_for(name, "tiny", recipe), encoder="slim")
    if hasattr(settings, "epochs"):
        settings = replace(settings, epochs=min(settings.epochs, 4))
    context = Context(
        DATA.image_shape,
        Normalise(DATA.mean, DATA.std),
        num_classes=6 if announced else None,
        memory=30,
        seed=3,
    )
    stepper = Stepper(method(name)(settings, context))
    learner, found = stepper.method, hashlib.sha256()
    for batch in ClassIncremental(DATA, 3, seed=1):
        terms = stepper.step(batch if announced else replace(batch, task=None))
        for term in sorted(terms):
            found.update(term.encode() + terms[term].numpy().tobytes())
    stepper.finish_task()
    found.update(learner.scores(DATA.test.images).numpy().tobytes())
    for tensor in (*learner.network.state_dict().values(), learner.memory.images):
        found.update(tensor.contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


def digests() -> dict[str, str]:
    """Return the digests of all methods and recipes, with and without announced tasks."""
    torch.set_num_threads(1)
    variations = [(name, recipe) for name in methods() for recipe in (None, *recipes(name))]
    variations += [(name, None) for name in WRAPPED]
    return {
        f"{name} {recipe or ''} {'announced' if announced else 'growing'}": digest(
            name, recipe, announced=announced
        )
        for name, recipe in variations
        for announced in (True, False)
    }


def main(command: str, file: str) -> int:
    """Write the digests to a file, or compare them with those in it."""
    path, now = Path(file), digests()
    if command == "write":
        path.write_text(json.dumps(now, indent=1) + "\n")
        return 0
    before = json.loads(path.read_text())
    changed = sorted(key for key in before.keys() & now.keys() if before[key] != now[key])
    sys.stdout.write("\n".join(changed) + f"\n{len(changed)} of {len(before)} changed\n")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
