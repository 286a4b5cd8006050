"""Plot builds and jobs with Matplotlib.

Each function takes a DataFrame, computes a summary with `buildframe.metrics`, draws it, and returns the Axes. It sends
no requests and does not change the frame. All share these arguments, if they make sense:

- `ax`: Axes to draw on; by default a new figure.
- `by`: the groups that are distinguished by color.
- `col`, `row`: small multiples with shared axes, one plot for each group, side by side or one below the other. The
  function then returns an array of Axes.
- `title`: replaces the title, which contains the pipeline, branch and period, or how many there are.
- `tz`: time zone of all times.
- `top`: how many groups are shown; the note counts the others.

Axes of durations are in seconds, and their ticks have the unit that suits them. They are logarithmic if groups would
else be too small to see. If the frame has nothing to show, the Axes contain a sentence.

Plots use the settings of Matplotlib that you changed, such as `figure.figsize`, `figure.dpi`, `font.family` or a style
sheet: they are dark after `plt.style.use("dark_background")`. Small multiples have the width of `figure.figsize`. Sizes
of texts are relative to `font.size`.

Names are drawn literally, not as formulas. Long names lose their middle, or what they have in common with others. A
character that the font does not have is drawn in an installed font that has it, or else as a box.

`explore` is the exception: it returns a widget for notebooks, and takes no Axes.

In the examples, `ci` is a workspace such as `bf.sandbox()`.
"""

from __future__ import annotations

from buildframe.plots.agents import agents_needed
from buildframe.plots.build_timeline import timeline
from buildframe.plots.commits import commit_grid, flips
from buildframe.plots.contention import contention
from buildframe.plots.distribution import distribution
from buildframe.plots.duration_trend import duration_trend
from buildframe.plots.explanation import explain
from buildframe.plots.explore import explore
from buildframe.plots.flake_scores import flake_scores
from buildframe.plots.flaky_board import flaky_board
from buildframe.plots.hours import queue_times_by_hour
from buildframe.plots.ledger import time_ledger
from buildframe.plots.leverage import leverage
from buildframe.plots.load import concurrency, queue_depth
from buildframe.plots.month_calendar import calendar
from buildframe.plots.objective import objective
from buildframe.plots.step_graph import step_graph
from buildframe.plots.steps import step_times, time_spent
from buildframe.plots.success import success_trend
from buildframe.plots.survival import survival
from buildframe.plots.trend import trend

__all__ = [
    "agents_needed", "calendar", "commit_grid", "concurrency", "contention", "distribution", "duration_trend",
    "explain", "explore", "flake_scores", "flaky_board", "flips", "leverage", "objective", "queue_depth",
    "queue_times_by_hour", "step_graph", "step_times", "success_trend", "survival", "time_ledger",
    "time_spent", "timeline", "trend",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
