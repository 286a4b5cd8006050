"""A report for every night: what changed against the period before, as one HTML page, Markdown and Parquet files."""

from buildframe.report.content import Finding, Report, Verdict
from buildframe.report.facts import Facts
from buildframe.report.page import render, summary
from buildframe.report.periods import Period
from buildframe.report.reading import read

__all__ = ["Facts", "Finding", "Period", "Report", "Verdict", "read", "render", "summary"]
