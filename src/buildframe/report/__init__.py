"""Report what changed in CI compared with the period before, as an HTML page, Markdown and Parquet files."""

from buildframe.report.content import Finding, Report, Verdict
from buildframe.report.measurements import Measurements
from buildframe.report.page import render, summary
from buildframe.report.periods import Period
from buildframe.report.store_reader import read

__all__ = ["Finding", "Measurements", "Period", "Report", "Verdict", "read", "render", "summary"]


def __dir__() -> list[str]:
    return __all__
