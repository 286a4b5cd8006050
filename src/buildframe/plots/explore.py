"""Plot builds interactively: people point at builds, open them, and select a period. Loads the widget at first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from buildframe.errors import BadInput, MissingExtra
from buildframe.formatting import format_count
from buildframe.guards.arguments import checked_frames

if TYPE_CHECKING:
    from buildframe.plots.explorer_widget import BuildExplorer

_MOST_BUILDS = 100_000


@checked_frames
def explore(builds: pd.DataFrame) -> BuildExplorer:
    """
    Plot builds as points that people can point at, open, and select by period.

    The plot works in JupyterLab and Voila, without requests to other hosts. It needs the extra `interactive`.

    Parameters
    ----------
    builds : pandas.DataFrame
        At most 100,000 builds with `created_at` and `finished_at`. Uses `fetched_at`, `state`, `blocked`,
        `organization`, `pipeline`, `number`, `branch`, `message` and `web_url` if the frame has them.

    Returns
    -------
    BuildExplorer
        A widget with these members:

        ======================== =======================================================================
        selected                 DataFrame: the builds that were created in the selected period, with
                                 all columns and in the order of `builds`; all builds if there is none
        period                   its first time and the first one after it, in UTC; None if there is none
        observe(f, "selected")   calls `f` with a change, whose `new` is the frame, at each selection
        select(from, to)         selects a period, as a user would; takes times as `created_from` does
        clear()                  selects no period
        summary                  what the plot shows, in a sentence
        ======================== =======================================================================

    Raises
    ------
    BadInput
        If a column is missing, a time has no zone, the rows are jobs, or there are more than 100,000 builds.
    MissingExtra
        If anywidget is not installed.

    See Also
    --------
    distribution : How wall times are distributed, in one or two periods.
    duration_trend : Median and 95th percentile over time.

    Notes
    -----
    A point is at the time of creation and the wall time of a build; color and shape show its state. The wall time has a
    logarithmic scale if the longest is more than 30 times the shortest; builds below 1 s are then drawn at 1 s. A
    build that has not finished, or is blocked, is a triangle at the time for which it was seen. The texts count the
    builds that are not drawn, because they have no duration or no time of creation. `selected` has those without a
    duration, too.

    Point at a build to read its pipeline, number, state, wall time, branch, creation and message; click it to open its
    page if `web_url` is a URL of http or https. Drag to select a period. With the keyboard, arrows move between
    builds, Enter opens one, Shift with an arrow selects a period, and Escape clears it.

    All builds are drawn, or none: above the limit the function raises, because browsers become slow. 50,000 builds are
    about 1.5 MB that are sent to the page. They contain names and messages, which the page shows as text.

    Examples
    --------
    >>> explorer = plots.explore(ci.builds(created_from="14d"))
    >>> explorer.select("2026-10-29", "2026-10-31")
    >>> bool(explorer.selected["created_at"].between(*explorer.period, inclusive="left").all())
    True
    """
    if "build_id" in builds:
        raise BadInput(
            "explore draws builds, but these rows have the column build_id, so they are jobs. Pass builds, such as the "
            "first frame of ws.history(), or draw the jobs by plots.distribution or plots.trend."
        )
    if len(builds) > _MOST_BUILDS:
        raise BadInput(
            f"builds has {format_count(len(builds), 'row')}, but explore draws at most {_MOST_BUILDS:,}. Select a "
            'period, such as builds[builds["created_at"] >= "2026-10-01"], some pipelines, or builds.sample(100_000).'
        )
    try:
        from buildframe.plots.explorer_widget import BuildExplorer
    except ModuleNotFoundError as missing:
        if missing.name == "anywidget":
            raise MissingExtra("plots.explore()", "interactive") from None
        raise
    return BuildExplorer(builds)
