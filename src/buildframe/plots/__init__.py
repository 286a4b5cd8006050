"""Pictures of builds and jobs: `frame, ax=None -> Axes`.

Durations are minutes here, and nowhere else. Without `ax` a new figure is made, of a size that fits, on white
ground; on Axes that are given, the ink is dark or bright as their ground asks for. A frame with nothing to show gives
an Axes that says so. A missing column, or times without a zone, raise BadInput. Names come from outside, so
they are drawn as they are, never read as formulas; long ones lose their middle, and two names never look alike. Signs
that the fonts lack are boxes, until `rcParams["font.sans-serif"]` lists a font that has them.
"""

from __future__ import annotations

from buildframe.plots.board import flaky_board
from buildframe.plots.commits import flips
from buildframe.plots.ecdf import distribution
from buildframe.plots.hours import queue_times_by_hour
from buildframe.plots.load import concurrency, queue_depth
from buildframe.plots.look import shortened
from buildframe.plots.one_build import timeline
from buildframe.plots.steps import step_times, time_spent
from buildframe.plots.success import success_trend
from buildframe.plots.trend import duration_trend

__all__ = [
    "concurrency",
    "distribution",
    "duration_trend",
    "flaky_board",
    "flips",
    "queue_depth",
    "queue_times_by_hour",
    "shortened",
    "step_times",
    "success_trend",
    "time_spent",
    "timeline",
]
