"""Plot what makes the mean wall time of builds differ between two periods."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from buildframe import metrics
from buildframe.formatting import format_count, format_duration, format_percent, label_steps
from buildframe.guards.arguments import checked_frames
from buildframe.metrics.columns import column
from buildframe.metrics.queues import name_queues
from buildframe.plots import theme
from buildframe.plots.groups import check_key
from buildframe.plots.layout import count_rows_that_fit, font_points, is_narrow, width_beside
from buildframe.plots.scope import describe_two_scopes
from buildframe.plots.units import show_durations

_MOST_CHARACTERS = 40
_ENDS = 4
"""Rows for the means before and after, and for the contributions that are not shown: those that grew and shrank."""


@checked_frames
def explain(
    before: pd.DataFrame,
    after: pd.DataFrame,
    ax: Axes | None = None,
    by: str | list[str] | None = None,
    tail: float | None = None,
    top: int = 10,
    tz: str = "UTC",
    title: str | None = None,
    *,
    allow_reversed: bool = False,
) -> Axes:
    """
    Plot what makes the mean wall time of builds differ, as a waterfall chart from before to after.

    Parameters
    ----------
    before : pandas.DataFrame
        Segments of the earlier builds, from `metrics.time_ledger`.
    after : pandas.DataFrame
        Segments of the later builds. No build may be in both.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default a new figure is created.
    by : str or list of str, optional
        Columns of groups whose shares may have changed, as in `metrics.explain`.
    tail : float, optional
        Share of the slowest builds to explain, as in `metrics.explain`. By default all builds count.
    top : int, default 10
        Maximum number of contributions, at least 1. Two bars show the sums of the others that grew and shrank.
    tz : str, default "UTC"
        Time zone of the days on which builds were created, as in `metrics.explain`.
    title : str, optional
        Title. By default it says what is shown.
    allow_reversed : bool, default False
        Accept ledgers whose times overlap, or whose `before` is later, as in `metrics.explain`.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on. Durations are in seconds.

    Raises
    ------
    BadInput
        As for `metrics.explain`, or if `top` is below 1.

    See Also
    --------
    time_spent : Steps by total machine time.
    buildframe.metrics.explain : The numbers of this plot.

    Notes
    -----
    Notable contributions come first, then the largest others, which are pale. The others have a third of the bars at
    least, because they can be most of the difference. A thin line is the 95 % interval of a contribution, drawn at the
    end of its bar. The note says if builds had not ended, so that no side has their time.

    Examples
    --------
    >>> ledger = metrics.time_ledger(ci.builds(created_from="14d"), ci.jobs(created_from="14d"))
    >>> is_recent = ledger["build_created_at"] >= ledger["build_created_at"].max() - pd.Timedelta(7, "D")
    >>> ax = plots.explain(ledger[~is_recent], ledger[is_recent])
    >>> ax.get_xlabel()
    'mean wall time'
    """
    theme.check_positive(top=top)
    which = "builds" if tail is None else f"the slowest {format_percent(tail)} of builds"
    heading, scope = f"Mean wall time of {which}", "" if title is not None else describe_two_scopes(before, after, tz)
    if not all(column(ledger, "build_id").notna().any() for ledger in (before, after)):
        with theme.themed_axes(ax, 9, 3) as ax:
            return theme.show_message(ax, "A difference needs builds before and after.", title or heading, scope)
    for key in by if isinstance(by, list) else [by]:
        check_key(before, key, "by")
    rows = metrics.explain(before, after, by, tail, tz, allow_reversed=allow_reversed)
    rows = rows.assign(name=_names(rows))
    walls = rows.attrs["before_s"], rows.attrs["after_s"]
    names = _labels(rows)
    each = theme.row_height(names.head(top), 0.3, _MOST_CHARACTERS)
    with theme.themed_axes(ax, 9, 1.7 + each * (min(top, len(rows)) + _ENDS)) as ax:
        _draw_bars(ax, _bars(rows, max(count_rows_that_fit(ax, top + _ENDS) - _ENDS, 1), *walls, is_narrow(ax)), names)
        ax.set(xlabel="mean wall time")
        show_durations(ax, "x")
        heading += f": {_describe_change(walls[1] - walls[0])}"
        notable = f"{rows['notable'].sum():,} of {format_count(len(rows), 'contribution')} notable"
        is_partial = rows.attrs["n_open_before"] or rows.attrs["n_open_after"]
        omitted = "; builds that have not ended are not counted" if is_partial else ""
        theme.decorate(ax, title or heading, f"{notable}; line: 95 % interval{omitted}", "x", scope)
    return ax


def _describe_change(seconds: float) -> str:
    size = format_duration(abs(seconds))
    return "unchanged" if size == format_duration(0) else f"{size} {'longer' if seconds > 0 else 'shorter'}"


def _bars(rows: pd.DataFrame, top: int, before: float, after: float, is_short: bool) -> pd.DataFrame:
    """Return label, start, end, interval of the end and kind of each bar, from the top of the plot down."""
    is_notable = rows["notable"].astype(bool)
    chosen = rows[is_notable].head(top - top // 3 if len(rows) > top else top)
    rest = rows.drop(chosen.index)
    shown = pd.concat([chosen, rest.head(top - len(chosen))]).sort_values("notable", ascending=False, kind="stable")
    change = rows["change_s"].drop(shown.index)
    parts = [("up", "grew", change[change > 0]), ("down", "shrank", change[change < 0])]
    sums = pd.DataFrame(
        [
            (f"{len(part):,} {short}" if is_short else f"{format_count(len(part), 'other')} that {how}", part.sum())
            for short, how, part in parts
            if len(part)
        ],
        columns=["label", "change"],
    )
    seconds = shown[["change_s", "low_s", "high_s"]].set_axis(["change", "low", "high"], axis=1)
    bars = pd.concat([seconds.assign(label=_labels(shown), strong=shown["notable"].astype(bool)), sums])
    start = before + bars["change"].cumsum().shift(1, fill_value=0)
    bars = bars.assign(
        start=start, end=start + bars["change"], low=start + bars["low"], high=start + bars["high"],
        strong=bars["strong"].eq(True),
    )  # fmt: skip
    ends = pd.DataFrame([("before", before, before), ("after", after, after)], columns=["label", "start", "end"])
    ends = ends.assign(low=np.nan, high=np.nan, strong=False)
    return pd.concat([ends.iloc[:1], bars, ends.iloc[1:]], ignore_index=True)


def _names(rows: pd.DataFrame) -> pd.Series[str]:
    """Return the step of each row, or the queue of waits."""
    return label_steps(rows["step"], rows.get("pipeline")).fillna(name_queues(rows))


def _labels(rows: pd.DataFrame) -> pd.Series[str]:
    """Return "group / pipeline / name (kind)", without what all rows share."""
    names = rows["name"]
    kinds = rows["kind"].str.replace("_", " ").fillna("share of builds")
    labels = (names + " (" + kinds + ")").fillna(kinds)
    columns = list(rows)
    groups = columns[: columns.index("effect")] if "effect" in rows else []
    for name in dict.fromkeys(["pipeline", *groups]):
        labels = theme.prefix_if_several(labels, rows[name].astype("str"))
    return labels


def _draw_bars(ax: Axes, rows: pd.DataFrame, names: pd.Series[str]) -> None:
    ax.use_sticky_edges = False
    y = np.arange(len(rows))[::-1]
    change = (rows["end"] - rows["start"]).to_numpy(np.float64)
    colors = np.where(change > 0, theme.ORANGE, theme.BLUE)
    is_total = rows["label"].isin(["before", "after"]).to_numpy()
    for place, size, start, color, strong in zip(y, change, rows["start"], colors, rows["strong"], strict=True):
        ax.barh(place, size, left=start, height=0.62, color=color, alpha=1 if strong else 0.45, linewidth=0)
    known = rows["low"].notna().to_numpy()
    ax.hlines(y[known], rows["low"][known], rows["high"][known], color=theme.text_color(), linewidth=1)
    ends = rows["end"].to_numpy(np.float64)
    ax.vlines(ends[:-1], y[1:] - 0.31, y[:-1] + 0.31, color=theme.GRAY, linewidth=0.8)
    ax.plot(ends[is_total], y[is_total], "D", color=theme.text_color(), markersize=6)
    texts = [
        format_duration(end) if total else f"{'+' if size >= 0 else '−'}{format_duration(abs(size))}"
        for end, size, total in zip(ends, change, is_total, strict=True)
    ]
    reach = rows[["start", "end", "high"]].max(axis=1)
    for place, at, text, total in zip(y, reach, texts, is_total, strict=True):
        ax.annotate(text, (at, place), (8 if total else 5, 0), textcoords="offset points", va="center",
                    fontsize=font_points(9))  # fmt: skip
    theme.label_rows(ax, y, rows["label"], _MOST_CHARACTERS, among=names)
    beside = min(font_points(75) / width_beside(ax, _MOST_CHARACTERS), 0.35)
    ax.margins(x=max(0.12, beside / (1 - 2 * beside)))
