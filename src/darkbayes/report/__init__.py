"""Tables, figures and pages, made from results files only."""

from darkbayes.report.page import write_figure, write_report
from darkbayes.report.tables import markdown, pivot, terminal

__all__ = ["markdown", "pivot", "terminal", "write_figure", "write_report"]
