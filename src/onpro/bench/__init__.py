"""Time of a step and of its parts, measured on random images."""

from onpro.bench.data_wait import waiting
from onpro.bench.measure import Measure, bench, document
from onpro.bench.peak import matrix_peak

__all__ = ["Measure", "bench", "document", "matrix_peak", "waiting"]
