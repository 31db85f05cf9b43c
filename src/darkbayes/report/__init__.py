"""Tables, figures and pages, made from results files only."""

from darkbayes.report.chains import chains_line
from darkbayes.report.choices import choices_line
from darkbayes.report.page import check_figure, write_bench_figure, write_figure, write_report
from darkbayes.report.tables import made_by, markdown, markdown_table, measured, number, pivot, terminal

__all__ = [
    "chains_line",
    "check_figure",
    "choices_line",
    "made_by",
    "markdown",
    "markdown_table",
    "measured",
    "number",
    "pivot",
    "terminal",
    "write_bench_figure",
    "write_figure",
    "write_report",
]
