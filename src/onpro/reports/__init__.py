"""Tables and pages of experiments."""

from onpro.reports.page import page
from onpro.reports.tables import comparisons, results

__all__ = ["comparisons", "page", "results"]
