"""`onpro bench [METHOD…]`: measure how fast steps are and where their time goes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from onpro.cli.parsing import parse
from onpro.cli.signals import importing
from onpro.errors import UserError


@dataclass(frozen=True)
class Command:
    """What to measure."""

    methods: tyro.conf.Positional[tuple[str, ...]] = ()
    """Names of methods or files of yours, such as ./my_method.py, or all. (default: onpro)"""

    like: str = "cifar10"
    """Data set that gives settings, classes, tasks and the size of images; its images are not
    loaded."""

    data: str = ""
    """Data set to load; measures instead how long steps wait for its images, over STEPS steps of
    its stream."""

    data_dir: Path | None = None
    """Folder of data sets, also for downloads. (default: $ONPRO_DATA, else the user's cache)"""

    recipe: str | None = None
    """A named variation of the methods."""

    memory: str = "200"
    """Numbers of past images that may be stored, comma-separated."""

    classes: str = ""
    """Numbers of classes, comma-separated. (default: that of the data set)"""

    tasks: int | None = None
    """Number of tasks. (default: that of the data set)"""

    image_size: int | None = None
    """Side of the images in pixels. (default: that of the data set)"""

    batch_size: int = 10
    """Number of images that arrive together."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto is a GPU if there is one."""

    precision: Literal["auto", "fp32", "tf32", "fp16", "bf16"] = "auto"
    """Precision of the network; auto is bf16 on a GPU, fp32 on a CPU."""

    engine: Literal["auto", "eager", "compile", "graph"] = "auto"
    """How steps are computed, as in onpro run."""

    threads: int | None = None
    """CPU threads. (default: 1, as in onpro run)"""

    compare: str = ""
    """Comma-separated engines to measure in turn, such as eager,graph, with their ratios."""

    steps: int = 20
    """Steps in a block, which is timed as a whole."""

    repeats: int = 3
    """Number of blocks; the median counts."""

    json: bool = False
    """Print all figures as JSON on the last line of standard output, all else on standard error."""

    save: Path | None = None
    """File for the figures as JSON, with hardware and versions."""

    show: tuple[Path, ...] = ()
    """Measure nothing: print such files as tables in Markdown."""


def main(arguments: Sequence[str]) -> int:
    """Measure what the arguments ask for, or show what was measured."""
    about = (
        "Measure how long a training step takes, and where its time goes.\n\n"
        "Steps of the first, second and last task, with a full memory and random images."
    )
    options = parse(Command, arguments, command="onpro bench", about=about)
    if "--show" in arguments and not options.show:
        raise UserError("name at least one file that onpro bench --save has written: --show FILE.")
    with importing():
        from onpro.cli.measuring import carry_out, measure_waiting, table_of

    if options.show:
        print("\n\n".join(map(table_of, options.show)))
        return 0
    if options.data:
        measure_waiting(options)
    else:
        carry_out(options)
    return 0
