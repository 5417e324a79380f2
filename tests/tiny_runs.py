"""Runs that take a fraction of a second."""

from onpro.experiments import RunConfig, settings_for

ER = RunConfig(
    method="er",
    settings=settings_for("er", "tiny"),
    data="tiny",
    memory=20,
    limit_per_class=8,
    device="cpu",
)
"""Six steps in three tasks."""
