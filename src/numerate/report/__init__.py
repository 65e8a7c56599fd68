"""From stored runs and published numbers to tables, pictures and one self-contained page."""

from numerate.report.comparison import Cell, Comparison, Layout, Order, PublishedTest, comparison
from numerate.report.environment import environment
from numerate.report.figures import figure, overview, save
from numerate.report.html import Claim, Notes, html, write_html, write_report
from numerate.report.metrics import ARITHMETIC, SOLVED_AT, SPARSITY, SUCCESS, Measured, Metric, arithmetic
from numerate.report.page import Page, Picture, TextTable, write_page
from numerate.report.tables import csv_text, records, terminal_table, write_csv
from numerate.results.outcome import judge

__all__ = [
    "ARITHMETIC",
    "SOLVED_AT",
    "SPARSITY",
    "SUCCESS",
    "Cell",
    "Claim",
    "Comparison",
    "Layout",
    "Measured",
    "Metric",
    "Notes",
    "Order",
    "Page",
    "Picture",
    "PublishedTest",
    "TextTable",
    "arithmetic",
    "comparison",
    "csv_text",
    "environment",
    "figure",
    "html",
    "judge",
    "overview",
    "records",
    "save",
    "terminal_table",
    "write_csv",
    "write_html",
    "write_page",
    "write_report",
]
