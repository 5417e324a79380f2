"""Tables and pages of experiments."""

from onpro.reports.html import Picture, page
from onpro.reports.streams import by_stream
from onpro.reports.tables import comparisons, results

__all__ = ["Picture", "by_stream", "comparisons", "page", "results"]
