"""Find when durations or failure rates changed: the days or commits, the levels around them, and the suspects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, get_args

import narwhals as nw
import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_names
from buildframe.metrics.change_levels import Level, Segments, estimate_rate, find_median_ranks, subtract
from buildframe.metrics.change_search import find_changes
from buildframe.metrics.columns import Flags, Floats, Integers
from buildframe.metrics.commit_search import Runs, find_commit_changes
from buildframe.metrics.daily_scores import (
    DAY,
    HITS,
    ROWS,
    Unit,
    group_edges,
    measure_rows,
    number_column,
    number_units,
    score_groups,
    sum_units,
)
from buildframe.metrics.discoveries import are_notable
from buildframe.metrics.durations import RowMetric, wall_time
from buildframe.metrics.engines import expressions
from buildframe.metrics.engines.intervals import AT
from buildframe.metrics.engines.rows import GROUP, Frame, GroupedRows, GroupSums
from buildframe.metrics.grouping import By, join_keys
from buildframe.metrics.outcomes import failed
from buildframe.metrics.time_buckets import Buckets
from buildframe.terminal import show

_FIRST, _CUT, _LIMIT = "first segment", "cut", "limit"
_RETRIED, _FAILED_AGAIN, _NUMBER_BEFORE, _NUMBER_AFTER = "was retried", "failed again", "number before", "number after"


@checked_names
def change_points(
    frame: Frame,
    of: RowMetric | str = wall_time,
    by: By = None,
    at: str = "created_at",
    tz: str = "UTC",
    unit: Unit = "day",
) -> pd.DataFrame:
    """
    Find when a duration or a failure rate changed: any number of changes per group.

    Parameters
    ----------
    frame : DataFrame
        Builds or jobs: pandas, Polars (eager or lazy), DuckDB relation or PySpark. Needs the column `at` and the
        columns that `of` needs. Uses `branch`, `commit` and `number` (of jobs `build_number`) if present.
    of : row metric or str, default wall_time
        What may have changed: a duration (a row metric such as `run_time`, or a column of timedeltas or of seconds,
        `..._s`), or `metrics.failed` for the share of builds or jobs that failed.
    by : str, function or list of these, optional
        Keys that define the groups, as in `percentiles`. By default all rows form one group.
    at : str, default "created_at"
        Column of timestamps that assigns rows to days and orders commits.
    tz : str, default "UTC"
        Time zone of the days.
    unit : {"day", "commit"}, default "day"
        What is compared. "commit" is for short histories of `metrics.failed` with several runs per commit, such as
        the hours since a branch turned red.

    Returns
    -------
    pandas.DataFrame
        One row per change, ordered by key and time, null keys last. Groups without a change have no row. After the
        keys:

        ================================= ================== =======================================================
        at                                datetime64[us, tz] midnight of the first new day; with `unit="commit"` the
                                                             time of the first row of the first new commit
        at_low, at_high                   datetime64[us, tz] 95 % interval of `at`
        p50_before_s, p50_after_s         float64            medians in seconds, from the change before and up to the
                                                             change after this one
        p50_change_s                      float64            `p50_after_s - p50_before_s`
        p50_change_low_s,                 float64            95 % interval of the change; NaN with too few rows
        p50_change_high_s
        days_before, days_after           Int64              days with rows; `commits_...` with `unit="commit"`
        n_before, n_after                 Int64              rows; with `unit="commit"` runs
        p                                 float64            probability of a change as clear if nothing changed
        notable                           boolean            the group remains significant among all groups
        number_before, branch_before,     Int64, str, str    last build before `at_low`; null if unknown
        commit_before
        number_after, branch_after,       Int64, str, str    first build from `at_high` on; null if unknown
        commit_after
        ================================= ================== =======================================================

        For `metrics.failed` the levels are `rate_before`, `rate_after`, `rate_change`, `rate_change_low` and
        `rate_change_high`, shares between 0 and 1.

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, a duration is infinite, `of`, `tz` or `unit` is invalid,
        or `unit="commit"` is used with a duration.

    See Also
    --------
    percentile_change : Compare two periods that you choose.
    trend : Percentiles over time.
    failed : Classify single builds or jobs.

    Notes
    -----
    *Days.* Rows of a day depend on each other, so days are compared. The score of a day is the mean of its rows' normal
    scores, which depend on ranks only, so outliers have little influence. The search takes the split in two that
    explains most, or else the inner segment that does (circular binary segmentation [1]_), and repeats in the parts.
    Both must be clearer than in shuffles of whole days. At least two days lie on each side. Of series in which nothing
    changed, 5 % have a change. If days depend on each other, more have one although the search allows for it: 11 % at a
    correlation of .3 from day to day, and 21 % at .6. A change is found on its second day at the earliest.

    *Intervals.* That of `at` holds days with 95 % of the posterior probability. That of the size takes `at` as known,
    so changes that are barely significant are smaller than estimated. Of the changes found in simulations in which days
    differ, they contain the time in 93 to 99 % and the size in 90 to 99 %; if days correlate by .6, in 86 and 84 %.
    Censored rows are left out.

    *Groups.* `p` is about one group: the share of shuffles as clear as the clearest change, or for others as clear
    between their neighbors, if that is more. If none of 9,999 is, it comes from how fast the probability falls in the
    clearest 200 [4]_. Of failure rates it is at least the share of all orders that separate the same days: of 28 days,
    two at an end have .007, and seven .000002. `notable` is True for groups of which at most 5 % are found by chance
    among all groups of the frame [2]_.

    *Commits.* The rate of failures before and after each commit is compared with a single rate, over all possible rates
    (Beta-binomial model, as in LUCI's analysis of tests [3]_). A job that was retried counts as one run that failed,
    and its last attempt counts as a retry. `p` is an upper bound. Rows without a commit are left out. Runs of a commit
    are taken as independent: if they correlate by .3, 7 % of the histories in which nothing changed have a change. In
    simulations the interval of `at` contains the commit of a found change in 94 to 100 %, and in 89 % with ten runs
    per commit that correlate by .1. Intervals of the size allow for such runs.

    *Suspects.* The builds and commits from those before to those after contain the cause with 95 % probability. A cause
    in the middle of a day may lie in the day before.

    References
    ----------
    .. [1] Olshen, A. B., et al. (2004). Biostatistics 5, 557-572.
    .. [2] Benjamini, Y., and Hochberg, Y. (1995). Journal of the Royal Statistical Society B 57, 289-300.
    .. [3] Changepoint analysis in LUCI, https://chromium.googlesource.com/infra/luci/luci-go.
    .. [4] Knijnenburg, T. A., et al. (2009). Bioinformatics 25, i161-i168.

    Examples
    --------
    >>> timed = builds.assign(wall_s=metrics.wall_time(builds).dt.total_seconds())
    >>> weeks = [timed.assign(created_at=timed["created_at"] + pd.Timedelta(7 * week, "D")) for week in range(4)]
    >>> month = pd.concat(weeks)
    >>> month["wall_s"] += 600 * (month["created_at"] >= "2026-11-11")
    >>> changes = metrics.change_points(month, "wall_s")
    >>> changes[["at", "at_low", "at_high", "days_before", "days_after", "notable"]]
                             at                    at_low                   at_high  days_before  days_after  notable
    0 2026-11-11 00:00:00+00:00 2026-11-11 00:00:00+00:00 2026-11-11 00:00:00+00:00           16          12     True
    >>> changes[["p50_before_s", "p50_after_s", "p50_change_low_s", "p50_change_high_s"]].round(0)
       p50_before_s  p50_after_s  p50_change_low_s  p50_change_high_s
    0         948.0       1546.0             558.0              647.0
    """
    if unit not in get_args(Unit):
        raise BadInput(f"unit={show(unit)} is not a unit of change. Use 'day' or 'commit'.")
    if unit == "commit" and of is not failed:
        raise BadInput("unit='commit' compares failure rates. Use of=metrics.failed, or unit='day'.")
    rows, buckets = measure_rows(frame, of, by, at, tz, unit)
    found = _search_commits(rows) if unit == "commit" else _search_days(rows, is_rate=of is failed)
    columns = _date(found, buckets)
    segments = found.segments()
    if of is failed:
        columns |= _describe_levels("rate", "", _estimate_rates(found, segments))
    else:
        columns |= _describe_levels("p50", "_s", _estimate_medians(rows, found, segments))
    columns |= found.counts(segments, f"{unit}s")
    columns |= _suspects_of_commits(found) if unit == "commit" else _suspects_of_days(rows, found)
    return join_keys(rows.name_keys(found.groups).take(found.place).reset_index(drop=True), pd.DataFrame(columns))


class _Found(NamedTuple):
    """Changes in all groups: a row each of `place` (of its group in `groups`), `at`, `low`, `high` and `p`.

    `units` has a row per group and day or commit, in order. The times of changes are rows of it.
    """

    groups: pd.DataFrame
    units: pd.DataFrame
    place: Integers
    at: Integers
    low: Integers
    high: Integers
    p: Floats
    notable: Flags
    inflation: Floats

    @property
    def before(self) -> Integers:
        """Number of the segment before each change; the one after it is the next."""
        changed, own = np.unique(self.place, return_inverse=True)
        return np.arange(len(self.place)) + own if len(changed) else np.zeros(0, np.int64)

    def is_changed(self) -> Flags:
        """Return which units are those of groups with a change."""
        return np.isin(self.units[GROUP].to_numpy(), self.place)

    def segments(self) -> Segments:
        """Return the segments between changes, of groups that have some."""
        codes, is_changed = self.units[GROUP].to_numpy(), self.is_changed()
        begins = np.diff(codes, prepend=-1) != 0
        begins[self.at] = True
        own = self.units[is_changed]
        hits = own[HITS].to_numpy(np.float64) if HITS in own else np.zeros(len(own))
        segment = np.cumsum(begins[is_changed]) - 1
        return Segments(segment, own[ROWS].to_numpy(np.float64), hits, int(segment.max(initial=-1)) + 1)

    def counts(self, segments: Segments, units: str) -> dict[str, Any]:
        """Return the columns with numbers of units and rows, and how clear each change is."""
        columns: dict[str, Any] = {}
        for name, counts in ((units, segments.total()), ("n", segments.total(segments.n))):
            for side, place in (("before", self.before), ("after", self.before + 1)):
                columns[f"{name}_{side}"] = pd.array(counts[place].astype(np.int64), "Int64")
        return columns | {"p": self.p, "notable": pd.array(self.notable, "boolean")}


def _search_days(rows: GroupedRows, *, is_rate: bool) -> _Found:
    groups, units, series = score_groups(rows, is_rate=is_rate)
    edges = group_edges(units)
    searches = [find_changes(one, is_rate=is_rate) for one in series]
    notable = are_notable([np.nan if search is None else search.p for search in searches])
    each = [[] if search is None else search.changes for search in searches]
    inflation = np.array([1.0 if search is None else search.inflation for search in searches])
    return _place(groups, units, edges, each, notable, inflation)


def _search_commits(rows: GroupedRows) -> _Found:
    available = rows.frame.collect_schema().names()
    runs = rows.frame.filter(~nw.col("commit").is_null())
    runs = runs.filter(~expressions.IS_SUPERSEDED) if "retried" in available else runs
    retried = (nw.col("retries_count") > 0).fill_null(False) if "retries_count" in available else nw.col(HITS) & False
    ends = {AT: "min"} | ({"branch": "min"} if "branch" in available else {})
    if (number := number_column(available)) in available:
        ends |= {_NUMBER_BEFORE: "max", _NUMBER_AFTER: "min"}
        runs = runs.with_columns(**dict.fromkeys((_NUMBER_BEFORE, _NUMBER_AFTER), nw.col(number)))
    runs = runs.with_columns(**{_RETRIED: retried})
    sums = {
        ROWS: nw.lit(1),
        HITS: nw.col(HITS) | nw.col(_RETRIED),
        _RETRIED: nw.col(_RETRIED),
        _FAILED_AGAIN: nw.col(HITS) & nw.col(_RETRIED),
    }
    table = sum_units(replace(rows, frame=runs), "commit", sums, ends)
    groups, units = number_units(rows, table, [AT, "commit"])
    columns = [units[name].to_numpy(np.int64) for name in sums]
    edges = group_edges(units)
    each = [find_commit_changes(Runs(*(one[start:stop] for one in columns))) for start, stop in edges]
    notable = are_notable([p for _, p in each])
    return _place(groups, units, edges, [changes for changes, _ in each], notable, np.ones(len(each)))


def _place(
    groups: pd.DataFrame,
    units: pd.DataFrame,
    edges: Sequence[tuple[int, int]],
    each: Sequence[Sequence[Any]],
    notable: Flags,
    inflation: Floats,
) -> _Found:
    """Return the changes of each group as rows of all units."""
    of_changes = [(place, edges[place][0], change) for place, changes in enumerate(each) for change in changes]
    place = np.array([place for place, _, _ in of_changes], np.int64)
    at, low, high = (
        np.array([start + getattr(change, name) for _, start, change in of_changes], np.int64)
        for name in ("at", "low", "high")
    )
    p = np.array([change.p for _, _, change in of_changes], np.float64)
    return _Found(groups, units, place, at, low, high, p, notable[place], inflation[place])


def _date(found: _Found, buckets: Buckets) -> dict[str, Any]:
    """Return the columns of times: midnights of days, or times of commits."""
    edges = buckets.edges
    if DAY in found.units:
        times = edges[found.units[DAY].to_numpy(np.int64)]
    else:
        times = pd.to_datetime(found.units[AT].to_numpy(np.int64), unit="us", utc=True).tz_convert(edges.tz)
    times = times.as_unit("us")
    return {"at": times[found.at], "at_low": times[found.low], "at_high": times[found.high]}


def _describe_levels(name: str, suffix: str, levels: tuple[Level, Level]) -> dict[str, Floats]:
    before, after = levels
    change = subtract(after, before)
    return {
        f"{name}_before{suffix}": before.value,
        f"{name}_after{suffix}": after.value,
        f"{name}_change{suffix}": change.value,
        f"{name}_change_low{suffix}": change.low,
        f"{name}_change_high{suffix}": change.high,
    }


def _estimate_rates(found: _Found, segments: Segments) -> tuple[Level, Level]:
    before = found.before
    rate = segments.total(segments.hits) / segments.total(segments.n)
    sizes = segments.sizes(before, found.inflation)
    return estimate_rate(rate[before], sizes[0]), estimate_rate(rate[before + 1], sizes[1])


def _estimate_medians(rows: GroupedRows, found: _Found, segments: Segments) -> tuple[Level, Level]:
    if not len(found.place):
        nothing = np.zeros(0)
        return Level(nothing, nothing, nothing), Level(nothing, nothing, nothing)
    before, n = found.before, segments.total(segments.n)
    split = _split_rows(rows, found).select("value", DAY)
    of_segments = pd.DataFrame({GROUP: range(len(n))})
    counts = GroupSums(of_segments[[]], of_segments, pd.DataFrame({"n": n.astype(np.int64)}))
    ranked = split.engine.rank_values(split, counts)
    median = ranked.values_at(np.column_stack([(n + 1) // 2, n // 2 + 1]).astype(np.int64)).mean(axis=1)
    sides = _count_up_to(split, of_segments, median).sizes(before, found.inflation)
    ranks = np.zeros((len(n), 4), np.int64)
    ranks[before, :2] = find_median_ranks(n[before], sides[0])
    ranks[before + 1, 2:] = find_median_ranks(n[before + 1], sides[1])
    ends = ranked.values_at(ranks)
    return Level(median[before], *ends[before, :2].T), Level(median[before + 1], *ends[before + 1, 2:].T)


def _split_rows(rows: GroupedRows, found: _Found) -> GroupedRows:
    """Return the rows of groups with changes, grouped by segment."""
    limited, n_days, n_groups = _with_days_of_groups(rows, found, found.at, 1)
    segment = nw.col(_FIRST)
    for i in range(n_days):
        segment = segment + (nw.col(DAY) >= nw.col(f"{_CUT} {i}")).cast(nw.Int64)
    return _group_by_number(limited.with_columns(**{GROUP: segment}), len(found.at) + n_groups)


def _select_days(rows: GroupedRows, found: _Found, units: Integers) -> GroupedRows:
    """Return the rows of these days of groups, grouped by their place in `units`, which are in order."""
    limited, n_days, _ = _with_days_of_groups(rows, found, units, 0)
    order = nw.col(_FIRST) * 0
    for i in range(n_days):
        order = order + (nw.col(DAY) == nw.col(f"{_CUT} {i}")).cast(nw.Int64) * (i + 1)
    ordered = limited.with_columns(order=order)
    selected = replace(ordered, frame=ordered.frame.filter(nw.col("order") > 0))
    return _group_by_number(selected.with_columns(**{GROUP: nw.col(_FIRST) + nw.col("order") - 1}), len(units))


def _with_days_of_groups(rows: GroupedRows, found: _Found, units: Integers, gap: int) -> tuple[GroupedRows, int, int]:
    """Add columns with these days of each row's group, and how many the groups before have, each with a gap after it.

    Returns also the number of such columns, and that of groups. Rows of other groups are dropped.
    """
    place, day = (found.units[name].to_numpy(np.int64)[units] for name in (GROUP, DAY))
    groups, own = np.unique(place, return_inverse=True)
    order = np.arange(len(own)) - np.searchsorted(own, own)
    days = np.full((order.max(initial=0) + 1, len(groups)), np.iinfo(np.int64).max)
    days[order, own] = day
    first = np.searchsorted(own, np.arange(len(groups))) + gap * np.arange(len(groups))
    values = {_FIRST: first} | {f"{_CUT} {i}": each for i, each in enumerate(days)}
    known = found.groups.iloc[groups].reset_index(drop=True)
    return rows.engine.with_group_values(rows, known, values), len(days), len(groups)


def _group_by_number(rows: GroupedRows, n: int) -> GroupedRows:
    return replace(rows, by=[GROUP], names=[], keys=[pd.DataFrame(index=range(n))])


def _count_up_to(split: GroupedRows, segments: pd.DataFrame, limit: Floats) -> Segments:
    """Count the rows of each day of segments, and as hits those up to a limit."""
    limited = split.engine.with_group_values(split, segments, {_LIMIT: limit})
    days = sum_units(limited, DAY, {ROWS: nw.lit(1), HITS: nw.col("value") <= nw.col(_LIMIT)})
    n, hits = (days[name].to_numpy(np.float64) for name in (ROWS, HITS))
    return Segments(days[GROUP].to_numpy(np.int64), n, hits, len(segments))


def _suspects_of_commits(found: _Found) -> dict[str, Any]:
    """Return the columns with the last build and commit before the interval of each change, and the first after it."""
    units = found.units.reindex(columns=[_NUMBER_BEFORE, _NUMBER_AFTER, "branch", "commit"])
    columns: dict[str, Any] = {}
    for side, place, number in (("before", found.low - 1, _NUMBER_BEFORE), ("after", found.high, _NUMBER_AFTER)):
        columns |= _name_suspects(units.take(place).rename(columns={number: "number"}), side)
    return columns


def _suspects_of_days(rows: GroupedRows, found: _Found) -> dict[str, Any]:
    """Return the columns with the last build and commit before the interval of each change, and the first after it."""
    names = rows.frame.collect_schema().names()
    number = number_column(names)
    names = [name for name in (number, "branch", "commit") if name in names]
    table = pd.DataFrame(columns=[GROUP, AT, *names], dtype="float64")
    days = np.unique(np.concatenate([found.low - 1, found.high]))
    if len(days):
        table = _find_ends(_select_days(rows, found, days).select(AT, *names))
    ordered = table.rename(columns={number: "number"}).reindex(columns=[GROUP, AT, "number", "branch", "commit"])
    ordered = ordered.sort_values([AT, "number"], kind="stable")
    columns: dict[str, Any] = {}
    for side, day, is_duplicated in (
        ("before", found.low - 1, ordered.duplicated(GROUP, keep="last")),
        ("after", found.high, ordered.duplicated(GROUP)),
    ):
        own = ordered[~is_duplicated].set_index(GROUP).reindex(np.searchsorted(days, day))
        columns |= _name_suspects(own, side)
    return columns


def _find_ends(split: GroupedRows) -> pd.DataFrame:
    """Return the first and the last rows of each group."""
    engine, time = split.engine, nw.col(AT)
    limits = engine.collect(split.frame.group_by(GROUP).agg(time.min().alias(_FIRST), time.max().alias(_LIMIT)))
    numbers = limits[[GROUP]].astype(np.int64)
    values = {name: limits[name].to_numpy(np.int64) for name in (_FIRST, _LIMIT)}
    limited = engine.with_group_values(split, numbers, values).frame
    return engine.collect(limited.filter((time == nw.col(_FIRST)) | (time == nw.col(_LIMIT))).drop(_FIRST, _LIMIT))


def _name_suspects(builds: pd.DataFrame, side: str) -> dict[str, Any]:
    typed = builds.astype({"number": "Int64", "branch": "str", "commit": "str"})
    return {f"{name}_{side}": typed[name].array for name in ("number", "branch", "commit")}
