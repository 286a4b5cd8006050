"""Plot builds and jobs with Matplotlib.

Each function takes a DataFrame and optional Axes, and returns the Axes. It computes a summary with
`buildframe.metrics` and draws it. It sends no requests and does not change the frame.

Durations are in minutes. If the frame has nothing to show, the Axes contain a sentence that says so. New figures have
a white background. On your own Axes, text is dark or light to contrast with the figure's background. Names are drawn
literally, not as formulas. Long names lose their middle and stay distinct. A character that no font has is drawn as a
box; add a font that has it to `rcParams["font.sans-serif"]`.

In the examples, `ci` is a workspace such as `bf.sandbox()`.
"""

from __future__ import annotations

from buildframe.plots.agents import agents_needed
from buildframe.plots.build_timeline import timeline
from buildframe.plots.contention import contention
from buildframe.plots.durations import distribution, queue_times_by_hour
from buildframe.plots.explanation import explain
from buildframe.plots.flakiness import flake_scores, flaky_board, flips
from buildframe.plots.leverage import leverage
from buildframe.plots.load import concurrency, queue_depth
from buildframe.plots.objective import objective
from buildframe.plots.step_graph import step_graph
from buildframe.plots.steps import step_times, time_spent
from buildframe.plots.survival import survival
from buildframe.plots.theme import shortened
from buildframe.plots.trends import duration_trend, success_trend

__all__ = [
    "agents_needed", "concurrency", "contention", "distribution", "duration_trend", "explain", "flake_scores",
    "flaky_board", "flips", "leverage", "objective", "queue_depth",
    "queue_times_by_hour", "shortened", "step_graph", "step_times", "success_trend", "survival", "time_spent",
    "timeline",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
