"""`onpro figure NAME RUN…`: draw a figure from finished runs, or of a stream."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from onpro.cli.parsing import parse, whole_numbers
from onpro.cli.printing import print_table
from onpro.cli.signals import importing
from onpro.cli.stream_options import check_stream_options, chosen_kind, command_with, stream_of
from onpro.errors import UserError, unknown
from onpro.streams import Disjoint, StreamKind
from onpro.text import visible

if TYPE_CHECKING:
    from onpro.runs import RunConfig
    from onpro.streams import ClassIncremental

LOG = logging.getLogger(__name__)

FIGURES = {
    "accuracy": "Average accuracy on the tasks seen so far, after each task (Fig. 4a).",
    "attention": "Where networks look: GradCAM++ on test images (Figs. 1, A1; `--x last|fine`).",
    "compute": "Accuracy against time or images, with the Pareto front (`--x seconds|images`).",
    "confusion": "Share of each class's test images predicted as each class, at the end (Fig. 4b).",
    "features": "Features of test images (Figs. 3, A2; `--after TASKS`, `--x tsne|pca`).",
    "forgetting": "Average forgetting of the tasks seen so far, after each task.",
    "matrix": "Accuracy on each task after each task.",
    "memory": "Number of images of each class in the memory, at each evaluation.",
    "paper": "Accuracy, or another measure, beside the paper's values (`--measure`).",
    "prototypes": "Similarity of online and global prototypes over the stream (Fig. 5).",
    "replay": "Accuracy and training time against the size of the replay batch (Fig. A3).",
    "shortcut": "Accuracy with true, wrong and no cue, reliance on cues and following of them.",
    "stream": "Share of each class along a stream, a heat map for each stream.",
    "sweep": "Any measure against any setting (`--x SETTING --measure MEASURE`).",
    "time": "Training time and images per second of each experiment (Fig. A4).",
}
"""Figures and the first lines of their docstrings: importing them takes seconds."""

USED_BY = {
    "x": ("attention", "compute", "features", "sweep"),
    "measure": ("paper", "sweep"),
    "after": ("features",),
}
"""Figures that an option is for, of those that not all figures have."""

WITHOUT_RUNS = ("stream", "data", "tasks", "class_order", "seed", "evaluations")
"""Options of a stream that is drawn without runs."""

MOST_STREAMS = 8
"""Streams in one figure."""


@dataclass(frozen=True)
class FigureOptions:
    """What to draw, from what, to where."""

    name: tyro.conf.Positional[str] = field(
        default="",
        metadata={
            "metavar": "NAME",
            "help": f"Name of the figure: {', '.join(FIGURES)}; see --list.",
        },
    )

    runs: tyro.conf.Positional[tuple[Path, ...]] = field(default=(), metadata={"metavar": "RUN..."})
    """Run folders, packed files, or folders that contain them at any depth; stream needs none."""

    list: bool = False
    """List the figures."""

    out: Path | None = None
    """File to write, whose ending gives the format (png, pdf, svg), or a folder for NAME.png.
    (default: NAME.png)"""

    width: Literal["column", "page"] = "page"
    """Width for a column (3.35 inches) or a page (6.9 inches) of a paper."""

    x: str = ""
    """Horizontal axis of sweep (a setting) or compute (seconds or images), how features are
    projected (tsne or pca), or which maps attention is drawn on (last or fine)."""

    measure: str = "accuracy"
    """Vertical axis of sweep: accuracy, forgetting, incremental, anytime, last, seconds, or one of
    a shortcut, such as reliance. For paper: accuracy or forgetting."""

    after: str = ""
    """For features: comma-separated tasks after which to show them, of runs with --keep-model
    tasks. (default: the last)"""

    stream: str = "disjoint"
    """For stream without runs: a name that `onpro streams` lists, or a file of yours,
    ./my_stream.py. Its settings are further options."""

    data: str = "digits"
    """For stream without runs: the data set."""

    data_dir: Path | None = None
    """Folder of data sets, also for downloads. (default: $ONPRO_DATA, else the user's cache)"""

    tasks: int | None = None
    """For stream without runs: the number of tasks. (default: that of the data set)"""

    class_order: Literal["natural", "random"] = "natural"
    """For stream without runs: the order in which classes arrive."""

    seed: int = 0
    """For stream without runs: its seed."""

    evaluations: int = 0
    """For stream without runs: the number of evaluations at equal distances."""

    def check(self) -> None:
        """Raise UserError for a figure that does not exist and options that it does not use."""
        if self.name and self.name not in FIGURES:
            raise unknown("figure", self.name, FIGURES)
        if not self.name or (self.name != "stream" and not self.runs):
            raise UserError(
                "name a figure and run folders: onpro figure accuracy runs; see --list."
            )
        for one in fields(self):
            users = USED_BY.get(one.name, (self.name,))
            if one.name in WITHOUT_RUNS and self.runs:
                users = ("stream without runs",)
            if self.name not in users and getattr(self, one.name) != one.default:
                option = f"--{one.name.replace('_', '-')}"
                named = f"figure{'s' if len(users) > 1 else ''} {', '.join(users)}"
                raise UserError(f"{option} is for the {named}: leave it out.")


Command = command_with(Disjoint, options=FigureOptions)


def main(arguments: Sequence[str]) -> int:
    """Draw the figure."""
    about = "Draw a figure from finished runs, or of a stream."
    kind = chosen_kind(arguments)
    command = command_with(kind, options=FigureOptions)
    check_stream_options(kind, command, arguments)
    parsed = parse(command, arguments, command="onpro figure", about=about)
    options = parsed.options
    if options.list:
        print_table(["name", "what"], [[name, what] for name, what in FIGURES.items()])
        return 0
    options.check()
    with importing():
        from onpro.experiments.grouping import found
        from onpro.figures import draw, draw_streams, require_savable
        from onpro.figures.style import Options
        from onpro.runs.reading import read_runs

    path = _file(options.out or Path(), options.name)
    require_savable(path)
    after = tuple(whole_numbers("after", options.after)) if options.after else ()
    chosen = Options(options.width, options.x, options.measure, options.data_dir, after)
    if options.name == "stream":
        configs = _configs_of(options.runs, options.data_dir)
        streams = _streams(configs or [_config(options, stream_of(parsed, kind))])
        draw_streams(streams, path, chosen)
    else:
        draw(options.name, found(read_runs(options.runs)), path, chosen)
    print(f"saved {visible(str(path))}")
    return 0


def _file(path: Path, name: str) -> Path:
    """Return the file to write: NAME.png in a folder; without an ending a PNG."""
    if path.is_dir():
        return path / f"{name}.png"
    return path if path.suffix else path.with_suffix(".png")


def _config(options: FigureOptions, kind: StreamKind) -> "RunConfig":
    """Return a run with the stream that the options ask for; its method does not matter."""
    from onpro.methods import settings_for
    from onpro.runs import RunConfig

    return RunConfig(
        method="er",
        settings=settings_for("er", options.data),
        data=options.data,
        data_dir=options.data_dir,
        stream=kind,
        tasks=options.tasks,
        class_order=options.class_order,
        seed=options.seed,
        evaluations=options.evaluations,
    )


def _configs_of(paths: Sequence[Path], data_dir: Path | None) -> "list[RunConfig]":
    """Return the configurations of runs, finished or not."""
    from onpro.runs import read_config, read_runs
    from onpro.runs.config_file import parse_config

    begun = [path for path in paths if (path / "config.json").is_file()]
    others = [path for path in paths if path not in begun]
    runs = read_runs(others) if others else []
    configs = [*map(read_config, begun), *(parse_config(run.config) for run in runs)]
    return [replace(config, data_dir=data_dir or config.data_dir) for config in configs]


def _streams(configs: "Sequence[RunConfig]") -> "dict[str, ClassIncremental]":
    """Return the stream of each run under a title; runs of equal streams have one together.

    If all seeds are too many for a figure, it has the first of each experiment.
    """
    from onpro.runs import SharedImages, make_stream

    titles = {_title(config): replace(config, device="cpu") for config in configs}
    if len(titles) > MOST_STREAMS:
        firsts: dict[str, RunConfig] = {}
        for config in sorted(titles.values(), key=lambda config: config.seed):
            firsts.setdefault(_title(replace(config, seed=0)), config)
        if len(firsts) > MOST_STREAMS:
            raise UserError(
                f"these runs have {len(firsts)} different streams: "
                f"name fewer, at most {MOST_STREAMS}."
            )
        LOG.warning("left out: all seeds but the first of each stream, %d in all", len(titles))
        titles = {_title(config): config for config in firsts.values()}
    images = SharedImages()
    return {title: make_stream(config, images(config)) for title, config in titles.items()}


def _title(config: "RunConfig") -> str:
    """Return what tells a stream from others."""
    limit = config.limit_per_class
    parts = [
        f"{config.data}, {config.stream}",
        *([f"{config.tasks} tasks"] if config.tasks is not None else []),
        *(["classes in random order"] if config.class_order == "random" else []),
        *([f"{limit} images per class"] if limit is not None else []),
        *([f"{config.validation:g} held out"] if config.validation else []),
        *([f"batches of {config.batch_size}"] if config.batch_size != 10 else []),
        *([f"{config.evaluations} evaluations"] if config.evaluations else []),
    ]
    return ", ".join([*parts, f"seed {config.seed}"])
