"""Find when durations or failure rates changed, the levels around that, and the suspects."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_names
from buildframe.metrics.change_search import Change, find_changes
from buildframe.metrics.clustering import (
    Level,
    Segments,
    estimate_rate,
    find_median_ranks,
    subtract,
)
from buildframe.metrics.columns import TEXT, Floats, Integers, first_and_last
from buildframe.metrics.commit_search import Runs, find_commit_changes
from buildframe.metrics.daily_scores import (
    DAY,
    FAILED,
    GROUP,
    HITS,
    ROWS,
    Unit,
    build_columns,
    number_column,
    read_known_rows,
    score_groups,
)
from buildframe.metrics.discoveries import are_notable
from buildframe.metrics.durations import RowMetric, wall_time
from buildframe.metrics.group_summaries import spark_keys, summarize_groups
from buildframe.metrics.grouping import By, as_key_list, find_groups, join_keys, number_groups
from buildframe.metrics.input_frames import Frame, RowGroups, column_names
from buildframe.metrics.measured_rows import limits_in_spark
from buildframe.metrics.outcomes import failed
from buildframe.metrics.ranked_groups import RankedGroups
from buildframe.metrics.time_buckets import Buckets
from buildframe.metrics.validation import check_states
from buildframe.terminal import show

_TIME, _UNIT = "time", "unit"

_P_OF_GROUP = "p of the group"
"""Column of the probability of a group as clear if nothing changed; NaN if it was not searched."""


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
        Builds or jobs: pandas, Polars (eager or lazy), DuckDB relation or PySpark. Needs the column
        `at` and the columns that `of` needs. Uses `branch`, `commit` and `number` (of jobs
        `build_number`) if present.
    of : row metric or str, default wall_time
        What may have changed: a duration (a row metric such as `run_time`, or a column of
        timedeltas or of seconds, `..._s`), or `metrics.failed` for the share of builds or jobs that
        failed.
    by : str, function or list of these, optional
        Keys that define the groups, as in `percentiles`. By default all rows form one group.
    at : str, default "created_at"
        Column of timestamps that assigns rows to days and orders commits.
    tz : str, default "UTC"
        Time zone of the days.
    unit : {"day", "commit"}, default "day"
        What is compared. "commit" is for short histories of `metrics.failed` with several runs per
        commit, such as the hours since a branch turned red.

    Returns
    -------
    pandas.DataFrame
        One row per change, ordered by key and time, null keys last. Groups without a change have no
        row. After the keys:

        ================= ================== ===================================================
        at                datetime64[us, tz] midnight of the first new day; with `unit="commit"`
                                             the time of the first row of the first new commit
        at_low            datetime64[us, tz] lower end of the 95 % interval of `at`
        at_high           datetime64[us, tz] upper end of the 95 % interval of `at`
        p50_before_s      float64            median in seconds, from the change before
        p50_after_s       float64            median in seconds, up to the change after this one
        p50_change_s      float64            `p50_after_s - p50_before_s`
        p50_change_low_s  float64            lower end of the 95 % interval of the change; NaN
                                             with too few rows
        p50_change_high_s float64            upper end of the 95 % interval of the change
        days_before       Int64              days with rows; with `unit="commit"` the column is
                                             `commits_before`
        days_after        Int64              the same after the change
        n_before          Int64              rows; with `unit="commit"` runs
        n_after           Int64              the same after the change
        p                 float64            probability of a change as clear if nothing changed
        notable           boolean            the group remains significant among all groups
        number_before     Int64              last build before `at_low`; null if unknown
        branch_before     str                its branch
        commit_before     str                its commit
        number_after      Int64              first build from `at_high` on; null if unknown
        branch_after      str                its branch
        commit_after      str                its commit
        ================= ================== ===================================================

        For `metrics.failed` the levels are `rate_before`, `rate_after`, `rate_change`,
        `rate_change_low` and `rate_change_high`, shares between 0 and 1.

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, a duration is infinite, `of`, `tz` or
        `unit` is invalid, or `unit="commit"` is used with a duration.

    See Also
    --------
    percentile_change : Compare two periods that you choose.
    trend : Percentiles over time.
    failed : Classify single builds or jobs.

    Notes
    -----
    *Days.* Rows of a day depend on each other, so days are compared. The score of a day is the mean
    of its rows' normal scores, which depend on ranks only, so outliers have little influence. The
    search takes the split in two that explains most, or else the inner segment that does (circular
    binary segmentation [1]_), and repeats in the parts. Both must be clearer than in shuffles of
    whole days. At least two days lie on each side. Of series in which nothing changed, 5 % have a
    change. If days depend on each other, more have one although the search allows for it: 11 % at a
    correlation of .3 from day to day, and 21 % at .6. A change is found on its second day at the
    earliest.

    *Intervals.* That of `at` holds days with 95 % of the posterior probability. That of the size
    takes `at` as known, so changes that are barely significant are smaller than estimated. Of the
    changes found in simulations in which days differ, they contain the time in 93 to 99 % and the
    size in 90 to 99 %; if days correlate by .6, in 86 and 84 %. Censored rows are left out.

    *Groups.* `p` is about one group: the share of shuffles as clear as the clearest change, or for
    others as clear between their neighbors, if that is more. If none of 9,999 is, it comes from how
    fast the probability falls in the clearest 200 [4]_. Of failure rates it is at least the share
    of all orders that separate the same days: of 28 days, two at an end have .007, and seven
    .000002. `notable` is True for groups of which at most 5 % are found by chance among all groups
    of the frame [2]_.

    *Commits.* The rate of failures before and after each commit is compared with a single rate,
    over all possible rates (Beta-binomial model, as in LUCI's analysis of tests [3]_). A job that
    was retried counts as one run that failed, and its last attempt counts as a retry. `p` is an
    upper bound. Rows without a commit are left out. Runs of a commit are taken as independent: if
    they correlate by .3, 7 % of the histories in which nothing changed have a change. In
    simulations the interval of `at` contains the commit of a found change in 94 to 100 %, and in 89
    % with ten runs per commit that correlate by .1. Intervals of the size allow for such runs.

    *Suspects.* The builds and commits from those before to those after contain the cause with 95 %
    probability. A cause in the middle of a day may lie in the day before.

    References
    ----------
    .. [1] Olshen, A. B., et al. (2004). Biostatistics 5, 557-572.
    .. [2] Benjamini, Y., and Hochberg, Y. (1995). Journal of the Royal Statistical Society B 57,
       289-300.
    .. [3] Changepoint analysis in LUCI, https://chromium.googlesource.com/infra/luci/luci-go.
    .. [4] Knijnenburg, T. A., et al. (2009). Bioinformatics 25, i161-i168.

    Examples
    --------
    >>> timed = builds.assign(wall_s=metrics.wall_time(builds).dt.total_seconds())
    >>> ages = [pd.Timedelta(7 * week, "D") for week in range(4)]
    >>> weeks = [timed.assign(created_at=timed["created_at"] + age) for age in ages]
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
        message = "unit='commit' compares failure rates. Use of=metrics.failed, or unit='day'."
        raise BadInput(message)
    if of is failed:
        check_states(frame, "state")
    by = spark_keys(frame, by)
    limits = limits_in_spark(frame, of, [at])
    search = functools.partial(_search_groups, of, by, at, tz, unit, limits)
    return _select_changes(summarize_groups(frame, search, by), by)


class _FoundChanges(NamedTuple):
    """Changes of all groups, in order: the number of their group, and where they lie in `units`.

    `units` has a row per group and day, or group and commit, with the columns `GROUP` and `ROWS`,
    and `HITS` for failure rates. `segment` is the number of the segment between changes to which
    each unit belongs, -1 if its group has no change. `inflation` is how many times larger variances
    are because units depend on each other, and `p_of_groups` is the probability of each group.
    """

    units: pd.DataFrame
    segment: Integers
    group: Integers
    at: Integers
    low: Integers
    high: Integers
    p: Floats
    inflation: Floats
    p_of_groups: Floats

    @property
    def before(self) -> Integers:
        """Number of the segment before each change; the one after it is the next."""
        return self.segment[self.at] - 1

    def to_segments(self, hits: Integers) -> Segments:
        """Return the counts of units in segments; `hits` has those of each unit."""
        is_changed = self.segment >= 0
        n = self.units[ROWS].to_numpy(np.float64)[is_changed]
        n_segments = int(self.segment.max(initial=-1)) + 1
        hits_of_changed = hits[is_changed].astype(np.float64)
        return Segments(self.segment[is_changed], n, hits_of_changed, n_segments)


def _search_groups(
    of: RowMetric | str,
    by: By,
    at: str,
    tz: str,
    unit: Unit,
    limits: Sequence[tuple[int, int]] | None,
    frame: Frame,
) -> pd.DataFrame:
    """Return the changes of each group, or a row without a time if it has none.

    They have the column `_P_OF_GROUP`, from which follows which are notable among all groups.
    """
    rows = read_known_rows(frame, of, by, at, build_columns(column_names(frame)), unit)
    limits = limits or [first_and_last(rows.columns[at].to_numpy(np.int64))]
    buckets = Buckets.between(limits, "1D", tz)
    if unit == "commit":
        changes, codes = _search_commits(rows, at)
        first_times = changes.units["first"].to_numpy(np.int64)
        times = pd.DatetimeIndex(first_times.view("M8[us]"), tz="UTC").tz_convert(buckets.edges.tz)
    else:
        changes, codes = _search_days(rows, buckets.numbers_of(rows.columns[at].to_numpy(np.int64)))
        times = buckets.edges[changes.units[DAY].to_numpy(np.int64)].as_unit("us")
    columns: dict[str, Any] = {
        "at": times[changes.at],
        "at_low": times[changes.low],
        "at_high": times[changes.high],
    }
    columns |= _compare_rates(changes) if of is failed else _compare_medians(rows, codes, changes)
    columns |= _count_rows(changes, unit)
    columns |= {"p": changes.p, "notable": pd.array([pd.NA] * len(changes.p), "boolean")}
    columns |= _name_builds(rows, codes, changes.low - 1, at, unit, "before")
    columns |= _name_builds(rows, codes, changes.high, at, unit, "after")
    return _join_groups(rows.keys, changes, pd.DataFrame(columns))


def _join_groups(keys: pd.DataFrame, changes: _FoundChanges, columns: pd.DataFrame) -> pd.DataFrame:
    """Return the changes with the keys of their groups, and a row for a group without a change."""
    groups = pd.DataFrame({GROUP: range(len(keys)), _P_OF_GROUP: changes.p_of_groups})
    table = groups.merge(columns.assign(**{GROUP: changes.group}), how="left", on=GROUP)
    return join_keys(keys.take(table.pop(GROUP).to_numpy()).reset_index(drop=True), table)


def _select_changes(table: pd.DataFrame, by: By) -> pd.DataFrame:
    """Return the changes of all groups, and which groups remain significant among all."""
    key_names = list(table.columns[: len(as_key_list(by))])
    codes, _ = find_groups(table, key_names)
    p_of_groups = table.pop(_P_OF_GROUP).groupby(codes).first()
    table["notable"] = pd.array(are_notable(p_of_groups)[codes], "boolean")
    return table[table["at"].notna()].reset_index(drop=True)


def _search_days(rows: RowGroups, day: Integers) -> tuple[_FoundChanges, Integers]:
    """Return the changes of days, and the unit to which each row belongs."""
    scored = score_groups(rows, day)
    is_rate = FAILED in rows.columns
    searches = [find_changes(series, is_rate=is_rate) for series in scored.series]
    p_of_groups = [np.nan if search is None else search.p for search in searches]
    inflation = [1.0 if search is None else search.inflation for search in searches]
    found = [[] if search is None else search.changes for search in searches]
    return _number_changes(scored.days, scored.edges, found, p_of_groups, inflation), scored.codes


def _search_commits(rows: RowGroups, at: str) -> tuple[_FoundChanges, Integers]:
    """Return the changes of commits, and the unit to which each row belongs."""
    commits, codes = _count_commits(rows, at)
    edges = np.searchsorted(commits[GROUP], np.arange(len(rows.keys) + 1))
    counts = commits[[ROWS, HITS, "retried", "failed_again"]].to_numpy(np.int64).T
    found = []
    p_of_groups = []
    for start, stop in itertools.pairwise(edges):
        changes, p = find_commit_changes(Runs(*counts[:, start:stop]))
        found.append(changes)
        p_of_groups.append(p)
    return _number_changes(commits, edges, found, p_of_groups, [1.0] * len(found)), codes


def _count_commits(rows: RowGroups, at: str) -> tuple[pd.DataFrame, Integers]:
    """Count the runs of each commit of each group, and how they ended, in order of first times.

    Returns also the number of each row's commit among these.
    """
    columns = rows.columns
    keys = pd.DataFrame({GROUP: rows.codes, "commit": columns["commit"].array})
    codes, commits = number_groups(keys)
    has_failed = columns[FAILED].to_numpy(bool)
    was_retried = np.zeros(len(columns), bool)
    if "retries_count" in columns:
        was_retried = (columns["retries_count"] > 0).to_numpy(bool, na_value=False)
    commits[ROWS] = np.bincount(codes, minlength=len(commits))
    flags = {
        HITS: has_failed | was_retried,
        "retried": was_retried,
        "failed_again": has_failed & was_retried,
    }
    for name, is_counted in flags.items():
        commits[name] = np.bincount(codes[is_counted], minlength=len(commits))
    commits["first"] = columns[at].groupby(codes).min()
    order = np.lexsort((commits["first"], commits[GROUP]))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return commits.take(order).reset_index(drop=True), rank[codes]


def _number_changes(
    units: pd.DataFrame,
    edges: Integers,
    found: Sequence[Sequence[Change]],
    p_of_groups: Sequence[float],
    inflation: Sequence[float],
) -> _FoundChanges:
    """Return the changes of each group as rows of all units.

    `edges` are the first units of groups.
    """
    n_changes = [len(changes) for changes in found]
    group = np.repeat(np.arange(len(found)), n_changes)
    table = np.array(list(itertools.chain(*found)), np.float64).reshape(-1, len(Change._fields))
    p = table[:, 3]
    first = edges[group]
    at, low, high = first + table[:, :3].T.astype(np.int64)
    return _FoundChanges(
        units=units,
        segment=_number_segments(units[GROUP].to_numpy(np.int64), group, at),
        group=group,
        at=at,
        low=low,
        high=high,
        p=p,
        inflation=np.array(inflation, np.float64)[group],
        p_of_groups=np.array(p_of_groups, np.float64),
    )


def _number_segments(group_of_unit: Integers, changed_groups: Integers, at: Integers) -> Integers:
    """Return the number of the segment of each unit.

    One begins with each changed group, and with each change.
    """
    is_changed = np.isin(group_of_unit, changed_groups)
    begins = np.diff(group_of_unit, prepend=-1) != 0
    begins[at] = True
    return np.where(is_changed, np.cumsum(begins & is_changed) - 1, -1)


def _compare_rates(changes: _FoundChanges) -> dict[str, Floats]:
    """Return the columns with the rates before and after each change, and the difference."""
    segments = changes.to_segments(changes.units[HITS].to_numpy())
    rate = segments.total(segments.hits) / segments.total(segments.n)
    before = changes.before
    size_before, size_after = segments.sizes(before, changes.inflation)
    return _describe_levels(
        "rate",
        "",
        estimate_rate(rate[before], size_before),
        estimate_rate(rate[before + 1], size_after),
    )


def _compare_medians(rows: RowGroups, codes: Integers, changes: _FoundChanges) -> dict[str, Floats]:
    """Return the columns with the medians before and after each change, and the difference.

    `codes` is the unit to which each row belongs.
    """
    chosen = np.flatnonzero((changes.segment >= 0)[codes])
    codes = codes[chosen]
    values = rows.columns["value"].to_numpy(np.float64)[chosen]
    segment = changes.segment[codes]
    keys = pd.DataFrame(index=range(int(segment.max(initial=-1)) + 1))
    ranked = RankedGroups(RowGroups(pd.DataFrame({"value": values}), segment, keys))
    n = ranked.n
    n_rows = n.astype(np.float64)
    median = ranked.values_at(np.column_stack([(n + 1) // 2, n // 2 + 1])).mean(axis=1)
    hits = np.bincount(codes[values <= median[segment]], minlength=len(changes.segment))
    before = changes.before
    after = before + 1
    sizes = changes.to_segments(hits).sizes(before, changes.inflation)
    ranks = np.zeros((len(n), 4), np.int64)
    ranks[before, :2] = find_median_ranks(n_rows[before], sizes[0])
    ranks[after, 2:] = find_median_ranks(n_rows[after], sizes[1])
    ends = ranked.values_at(ranks)
    return _describe_levels(
        "p50",
        "_s",
        Level(median[before], *ends[before, :2].T),
        Level(median[after], *ends[after, 2:].T),
    )


def _describe_levels(name: str, suffix: str, before: Level, after: Level) -> dict[str, Floats]:
    change = subtract(after, before)
    return {
        f"{name}_before{suffix}": before.value,
        f"{name}_after{suffix}": after.value,
        f"{name}_change{suffix}": change.value,
        f"{name}_change_low{suffix}": change.low,
        f"{name}_change_high{suffix}": change.high,
    }


def _count_rows(changes: _FoundChanges, unit: Unit) -> dict[str, Any]:
    """Return the columns with the numbers of units and rows before and after each change."""
    before = changes.before
    counts = changes.to_segments(np.zeros(len(changes.units), np.int64))
    columns: dict[str, Any] = {}
    for name, totals in ((f"{unit}s", counts.total()), ("n", counts.total(counts.n))):
        columns[f"{name}_before"] = pd.array(totals[before].astype(np.int64), "Int64")
        columns[f"{name}_after"] = pd.array(totals[before + 1].astype(np.int64), "Int64")
    return columns


def _name_builds(
    rows: RowGroups,
    codes: Integers,
    units: Integers,
    at: str,
    unit: Unit,
    side: Literal["before", "after"],
) -> dict[str, Any]:
    """Return columns that name a build of each of these days or commits.

    Before a change it is the last one, after a change the first. `codes` is the unit to which each
    row belongs.
    """
    is_searched = np.zeros(int(codes.max(initial=-1)) + 1, bool)
    is_searched[units] = True
    chosen = np.flatnonzero(is_searched[codes])
    names = build_columns(rows.columns)
    builds = rows.columns[names].take(chosen).rename(columns={number_column(names): "number"})
    builds = builds.reindex(columns=["number", "branch", "commit"])
    builds = builds.astype({"number": "Int64", "branch": TEXT, "commit": TEXT})
    builds[_TIME] = rows.columns[at].to_numpy(np.int64)[chosen]
    builds[_UNIT] = codes[chosen]
    if unit == "commit":
        number = "max" if side == "before" else "min"
        named = builds.groupby(_UNIT).agg({"number": number, "branch": "min", "commit": "min"})
    else:
        builds = builds.sort_values([_TIME, "number"], kind="stable")
        keep: Literal["first", "last"] = "last" if side == "before" else "first"
        named = builds.drop_duplicates(_UNIT, keep=keep).set_index(_UNIT)
    named = named.reindex(units)
    return {f"{name}_{side}": named[name].array for name in ("number", "branch", "commit")}
