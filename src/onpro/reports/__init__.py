"""What people read: tables and pages of finished runs."""

from onpro.reports.page import page
from onpro.reports.records import comma_separated, latex
from onpro.reports.streams import by_stream
from onpro.reports.table import comparisons, report

__all__ = ["by_stream", "comma_separated", "comparisons", "latex", "page", "report"]
