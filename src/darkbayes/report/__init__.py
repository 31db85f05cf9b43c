"""Tables, figures and pages, made from results files only."""

from darkbayes.report.page import write_figure, write_report
from darkbayes.report.tables import made_by, markdown, markdown_table, measured, number, pivot, terminal

__all__ = [
    "made_by",
    "markdown",
    "markdown_table",
    "measured",
    "number",
    "pivot",
    "terminal",
    "write_figure",
    "write_report",
]
