"""Compare three methods on one stream, with several seeds each, and plot the result.

    python examples/compare_methods.py                     # ER, ER-ACE and SCR on digits, 3 seeds
    python examples/compare_methods.py --seeds 5 --data cifar10

Runs are kept in a folder, so that what is finished is not trained again. The table has mean and
standard deviation of the accuracy at the end; the figure shows the accuracy after each task.
"""
# ruff: noqa: T201 # an example may print

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from onpro.errors import UserError
from onpro.experiments import Summary
from onpro.experiments.grouping import found
from onpro.figures import draw
from onpro.methods import settings_for
from onpro.runs import Finished, RunConfig, run

METHODS = ("er", "erace", "scr")


def main(
    methods: Sequence[str] = METHODS,
    data: str = "digits",
    memory: int = 100,
    seeds: int = 3,
    out: Path = Path("runs"),
    figure: Path = Path("comparison.png"),
) -> dict[str, Summary]:
    """Train all methods with all seeds, print a table, draw the figure, return the summaries."""
    runs: list[Finished] = []
    for seed in range(seeds):
        for method in methods:
            settings = settings_for(method, data)
            config = RunConfig(method, settings, data=data, memory=memory, seed=seed)
            out.mkdir(parents=True, exist_ok=True)
            runs.append(run(config, out))
            accuracy = runs[-1].result["average_accuracy"]
            print(f"{method}, seed {seed}: {accuracy:.1f} %", flush=True)
    experiments = found(runs)
    draw("accuracy", experiments, figure)
    summaries = {one.method: one.summary("accuracy") for one in experiments}
    print(f"\n{data}, memory {memory}: average accuracy at the end")
    known = {method: summary for method, summary in summaries.items() if summary}
    for method, summary in sorted(known.items(), key=lambda item: -item[1].mean):
        spread = "" if summary.deviation is None else f" ± {summary.deviation:.1f}"
        print(f"{method:>12}  {summary.mean:.1f}{spread} % ({summary.n} runs)")
    print(f"drawn in {figure}")
    return known


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--memory", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--figure", type=Path, default=Path("comparison.png"))
    torch.set_num_threads(1)  # as the command does: equal results on any number of cores
    given = vars(parser.parse_args())
    try:
        main(**given)
    except UserError as error:
        sys.exit(f"compare_methods: {error}")
