"""Load the models that runs have kept, with the streams of their test images."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from onpro.errors import UserError
from onpro.experiments.experiment import Experiment
from onpro.fitted import MODEL_FILE
from onpro.image_classifier import ImageClassifier
from onpro.methods import method
from onpro.methods.parts.ncm import PredictsNearestMean
from onpro.methods.registry import AnyMethod
from onpro.nn import without_weights
from onpro.runs import RunConfig, SharedImages, make_stream, prepare, read_config
from onpro.runs.folder import RunFolder
from onpro.runs.model import load_network
from onpro.streams import ClassIncremental
from onpro.text import visible

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadedModel:
    """A method as it was after some tasks of its stream, on the CPU."""

    method: AnyMethod
    stream: ClassIncremental
    learned: int
    """Number of tasks learned."""

    @property
    def newest(self) -> set[int]:
        """The classes of the task learned last."""
        return set(self.stream.task_classes[self.learned - 1])

    @property
    def classes(self) -> list[int]:
        """The classes of all tasks learned, in order of arrival."""
        return [label for own in self.stream.task_classes[: self.learned] for label in own]


def load_models(
    experiments: Iterable[Experiment], data_dir: Path | None = None, after: Sequence[int] = ()
) -> Iterator[tuple[Experiment, list[LoadedModel]]]:
    """Yield experiments and their models after some tasks, each from one of its runs.

    Experiments whose images, or whose method's file, are gone are left out with a warning; it is an
    error if all are.

    Args:
        experiments: Those that `lacks_model` says nothing about.
        data_dir: Where data sets are; default: as the run.
        after: Tasks from 1; default: the last.
    """
    images = SharedImages()
    gone: list[str] = []
    found = False
    for one in experiments:
        folder = next(_folders(one))
        try:
            config = read_config(folder)
            config = replace(config, device="cpu", engine="eager", precision="fp32", probe="none")
            config = replace(config, data_dir=data_dir or config.data_dir)
            stream = make_stream(config, images(config))
        except UserError as error:
            gone.append(str(error))
            continue
        found = True
        tasks = after or [stream.num_tasks]
        wrong = [task for task in tasks if not 1 <= task <= stream.num_tasks]
        if wrong:
            raise UserError(f"{one} has tasks 1 to {stream.num_tasks}, not {wrong[0]}.")
        yield (
            one,
            [LoadedModel(_method(folder, config, stream, images, t), stream, t) for t in tasks],
        )
    if gone and not found:
        raise UserError(gone[0])
    for said in gone:
        LOG.warning("left out: %s", visible(said))


def lacks_model(experiment: Experiment) -> str:
    """Return a sentence if no run of an experiment has kept its model, else an empty string."""
    if any(_folders(experiment)):
        return ""
    return (
        f"no run of {experiment} has kept its model: train it again with onpro run and the "
        "options --keep-model end --fresh."
    )


def lacks_scores(experiment: Experiment) -> str:
    """Return a sentence if no network scores the classes, else an empty string.

    Args:
        experiment: One that `lacks_model` says nothing about.
    """
    try:
        config = read_config(next(_folders(experiment)))  # imports the method if it is in a file
    except UserError as error:
        return str(error)
    if not issubclass(method(config.method), PredictsNearestMean):
        return ""
    return f"{experiment} predicts the nearest mean of stored images, not by a network alone."


def _folders(experiment: Experiment) -> Iterator[Path]:
    return (run.folder for run in experiment.runs if (run.folder / MODEL_FILE).exists())


def _method(
    folder: Path, config: RunConfig, stream: ClassIncremental, images: SharedImages, task: int
) -> AnyMethod:
    """Return the method of a run as it was after a task."""
    if task < stream.num_tasks:
        path = RunFolder(folder).network(task)
        if not path.exists():
            raise UserError(
                f"{folder} has not kept its network after task {task}: train it again with onpro "
                "run and the options --keep-model tasks --fresh."
            )
        with without_weights():
            loaded = prepare(config, images(config)).method
        load_network(path, loaded)
        return loaded
    try:
        return ImageClassifier.from_run(folder, device="cpu", precision="fp32").method_
    except (OSError, ValueError) as error:
        raise UserError(f"{str(error).rstrip('.')}.") from error
