"""What people read: tables of finished runs."""

from onpro.reports.table import report

__all__ = ["report"]
