"""Many runs: experiments, the paper's tables, sweeps, statistics, executors."""

from onpro.experiments.statistics import Summary, summarise

__all__ = ["Summary", "summarise"]
