"""Explain the difference in mean wall time between two sets of builds by their time ledgers."""

from __future__ import annotations

import datetime as dt
from typing import NamedTuple

import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import Floats, Integers, timestamps
from buildframe.metrics.compared_builds import N_SIDES, ComparedBuilds, read_compared_builds
from buildframe.metrics.day_ledgers import read_day_ledgers
from buildframe.metrics.discoveries import RATE, adjust
from buildframe.metrics.grouping import By, join_keys
from buildframe.metrics.input_frames import Frame, read_columns
from buildframe.metrics.pipeline_jobs import pipeline_keys
from buildframe.metrics.time_buckets import to_zone
from buildframe.metrics.validation import check_order
from buildframe.terminal import show

_MIN_BUILDS = 5
"""With fewer builds on a side there is no interval.

These are builds that are compared, or have the row, unless it is new or gone.
"""

_NO_CHANGE = 0.5
"""A smaller change in microseconds comes from rounding."""

_MIN_TAIL_DAYS = 8
"""With fewer days on a side, the slowest builds of other days are unknown."""

_RESAMPLES = 400


@checked_names
def explain(
    before: Frame,
    after: Frame,
    by: By = None,
    tail: float | None = None,
    tz: str = "UTC",
    *,
    day: str | dt.date | None = None,
    pipeline: str | None = None,
    allow_reversed: bool = False,
) -> pd.DataFrame:
    """
    Explain what makes the mean wall time of a day, or of any later builds, differ from before.

    Waits for agents count by queue, all other time by step. The contributions add up to the
    difference. Pass `explain(builds, jobs, day=...)`, or two ledgers: `explain(before, after)`.

    Parameters
    ----------
    before : DataFrame
        With `day`, the builds. Otherwise the segments of the earlier builds, from `time_ledger`.
        Frames of pandas, Polars (eager or lazy), DuckDB or PySpark. Pass whole builds: a segment
        that is left out is missing from the wall time, and a build without any is not counted.
    after : DataFrame
        With `day`, all jobs of the builds. Otherwise the segments of the later builds; no build may
        be in both.
    by : str or list of str, optional
        Columns that builds have, such as `"pipeline"` or `"branch"`. Separates changes within their
        groups from changes of the groups' shares among all builds. By default all builds form one
        group; with `day` and without `pipeline` and `tail`, it is `"pipeline"`.
    tail : float, optional
        Explain the mean wall time of this share of the slowest builds, as a fraction in (0, 1]. By
        default all builds count.
    tz : str, default "UTC"
        Time zone of the days on which builds were created.
    day : str or date, optional
        Day whose builds are compared with those of the 28 days before, such as `"2026-10-29"`. The
        first two arguments are then builds and jobs with the columns that `time_ledger` needs.
        Builds of other days are not used.
    pipeline : str, optional
        Slug or id of the pipeline to explain, with `day`. By default all pipelines.
    allow_reversed : bool, default False
        Explain ledgers whose times overlap, or whose `before` is later. By default both are
        refused, because swapped ledgers turn a regression into an improvement.

    Returns
    -------
    pandas.DataFrame
        One row per kind, pipeline, and step or queue that occurs, largest change first:

        ============================ ======= =======================================================
        kind, pipeline, step, queue, str     what the time was spent on, as in `time_ledger`. The
        queue_id                             kind `queue` has a queue and no step, `setup` and
                                             `unknown` have neither, and others have a step.
                                             `queue_id` only if both ledgers have it
        before_s, after_s            float64 mean seconds per build; with `by`, see Notes
        change_s                     float64 `after_s - before_s`
        low_s, high_s                float64 95 % interval of `change_s`; NaN with too few builds or
                                             days
        p                            float64 two-sided p-value, without regard to other rows; NaN
                                             without an interval
        q                            float64 smallest rate of false discoveries at which the row is
                                             significant
        notable                      boolean `q` is at most 0.05; False without an interval
        builds_before, builds_after  Int64   builds that have such a segment
        ============================ ======= =======================================================

        If both ledgers have `organization`, it is the column before `pipeline`, and identifies
        pipelines, too.

        With `by`, its columns come first and then `effect`: `time` for changes within a group,
        weighted by the mean of its shares, and `mix` for the change of its share, whose `kind`,
        `step` and `queue` are null.

        Its `attrs` have the mean wall times `before_s` and `after_s` of `n_before` and `n_after`
        builds, and `n_open_before` and `n_open_after`: builds that ran or were blocked, so that no
        side has their time. They count for a side if they were created between its first and last
        day, and are of a pipeline of the ledgers; for both if these days overlap, as when branches
        are compared. None if a ledger has lost its `attrs`.

    Raises
    ------
    BadInput
        If a column is missing, a ledger is empty or has segments without a build, time or duration,
        a build is in both ledgers or in several groups, an argument is invalid, or the times of the
        ledgers overlap or are in the other order.

    See Also
    --------
    time_ledger : Divide the wall time of builds into segments.
    buildframe.plots.explain : The same as a waterfall chart.
    percentile_change : Compare percentiles of any duration.

    Notes
    -----
    The squared error of a change is the sum over both sides of ``v / n + d * sum(m ** 2) / n **
    2``, where a side has `n` builds, and `m` of these on each day. The variance `v` between builds
    of a day and the variance `d` between days are those of an analysis of variance by day, pooled
    over both sides, so that a single day can be compared with weeks; this assumes that they have
    not changed. For the effect of a share, `v` of a side is at least its own. Intervals and
    p-values are those of the t distribution with as many degrees of freedom as both sides have
    days, less 2.

    A row has no interval if a side has fewer than five builds (with `by`, of its group), or if
    fewer than five builds of a side have such a segment, unless none has it: then it is new or
    gone. If the durations do not vary at all, the error is 0, and any change is notable. A change
    of less than half a microsecond is none.

    Of the rows marked as `notable`, about 5 % are there by chance [1]_. The largest change need not
    be one of them: a person who repeats a job hours later changes a mean, too.

    Ledgers of several pipelines need `by="pipeline"`. Without it, the number of builds of each
    pipeline differs from day to day, which hides changes of single steps. Compute one ledger of all
    builds and divide it by `build_created_at`, because chains follow from all builds of a pipeline.

    With `by`, the symmetrical decomposition of Kitagawa [2]_: a group gained or lost share, at the
    mean of its wall times relative to that of all builds, or its builds took longer, at the mean of
    its shares. A group that only one ledger has differs by its share alone. The interval of a
    share's effect includes the error of these means.

    So `before_s` of a `time` row is the mean per build of its group before, times the mean of the
    group's shares before and after. That of a `mix` row is the group's share before, times the mean
    over both sides of its mean wall time less that of all builds. `after_s` is the same for after.
    The changes of all rows add up to the difference of the mean wall times; their `before_s` and
    `after_s` do not add up to these.

    With `tail`, the build at the boundary counts as the fraction that lies within the tail, and
    errors come from resampled days. Fewer than eight days on a side give no interval.

    References
    ----------
    .. [1] Benjamini, Y., and Hochberg, Y. (1995). Journal of the Royal Statistical Society B 57,
       289-300.
    .. [2] Kitagawa, E. M. (1955). Journal of the American Statistical Association 50, 1168-1194.

    Examples
    --------
    >>> changes = metrics.explain(builds, jobs, day="2026-10-30", pipeline="web")
    >>> changes[["kind", "step", "queue", "change_s", "notable"]].head(4).round(1)
               kind     step    queue  change_s  notable
    0           run      e2e      NaN     -68.4    False
    1         queue      NaN  default      63.9    False
    2  manual_retry  staging      NaN      55.1    False
    3           run  staging      NaN      29.1    False

    Two ledgers compare any other builds, such as those of a week with those before:

    >>> ledger = metrics.time_ledger(builds, jobs)
    >>> api = ledger[ledger["pipeline"] == "api"]
    >>> is_late = api["build_created_at"] >= "2026-10-30"
    >>> changes = metrics.explain(api[~is_late], api[is_late], by="pipeline")
    >>> columns = ["pipeline", "effect", "kind", "step", "change_s", "low_s", "high_s"]
    >>> changes.loc[changes["notable"], columns]
      pipeline effect kind         step    change_s       low_s      high_s
    0      api   time  run  integration  206.251433  109.197443  303.305423
    >>> difference = changes.attrs["after_s"] - changes.attrs["before_s"]
    >>> (abs(changes["change_s"].sum() - difference) < 1e-6).item()
    True
    """
    _check_tail(tail, by)
    if day is not None:
        ledgers = read_day_ledgers(before, after, day, pipeline, tz)
        if by is None and tail is None and pipeline is None:
            by = "pipeline"
        result = _compare(ledgers.before, ledgers.after, by, tail, tz)
        counts = {"n_open_before": ledgers.n_open_before, "n_open_after": ledgers.n_open_after}
        result.attrs |= counts
        return result
    if pipeline is not None:
        raise BadInput(
            f"pipeline={show(pipeline)} needs day=. Filter both ledgers to this pipeline instead.",
        )
    result = _compare(before, after, by, tail, tz)
    check_order(before, after, "build_created_at", allow_reversed=allow_reversed)
    result.attrs |= _count_open(before, after, tz)
    return result


def _check_tail(tail: float | None, by: By) -> None:
    if tail is None:
        return
    if isinstance(tail, bool) or not isinstance(tail, int | float) or not 0 < tail <= 1:
        advice = "Use such as 0.1 for the slowest tenth of builds."
        raise BadInput(f"tail={show(tail)} is not a fraction in (0, 1]. {advice}")
    if by is not None:
        advice = "Filter both ledgers to one group to explain its slowest builds."
        raise BadInput(f"by and tail cannot be combined. {advice}")


def _compare(before: Frame, after: Frame, by: By, tail: float | None, tz: str) -> pd.DataFrame:
    builds = read_compared_builds(before, after, by, tz)
    estimates = _estimate_means(builds) if tail is None else _estimate_tails(builds, tail)
    return _tabulate(builds, estimates)


def _count_open(before: Frame, after: Frame, tz: str) -> dict[str, int | None]:
    """Count the builds that had not ended, of the days of each ledger and the pipelines of both."""
    ledgers = {"n_open_before": before, "n_open_after": after}
    known = {name: one for name, one in ledgers.items() if "open" in getattr(one, "attrs", {})}
    counts: dict[str, int | None] = dict.fromkeys(ledgers)
    if known:
        keys = pipeline_keys(*known.values())
        columns = [read_columns(ledger, keys) for ledger in known.values()]
        pipelines = pd.concat(columns).drop_duplicates()
        for name, ledger in known.items():
            counts[name] = _count_open_of(ledger, pipelines, tz)
    return counts


def _count_open_of(ledger: pd.DataFrame, pipelines: pd.DataFrame, tz: str) -> int:
    """Count the listed builds that were created between the first and the last day of a ledger."""
    listed = pd.DataFrame(ledger.attrs["open"])
    keys = [name for name in pipelines if name in listed]
    of_ledgers = pd.MultiIndex.from_frame(pipelines[keys])
    is_known = pd.MultiIndex.from_frame(listed[keys]).isin(of_ledgers)
    texts = listed.loc[is_known, "build_created_at"]
    opened = pd.to_datetime(texts, utc=True, format="ISO8601").dropna()
    open_days = to_zone(opened, tz).dt.date
    days = to_zone(timestamps(ledger, "build_created_at"), tz).dt.date
    return int(open_days.between(days.min(), days.max()).sum())


class _Means(NamedTuple):
    """Mean wall time of both sides, and means of rows (sides x rows).

    `error` is the standard error of the change of each row, `freedom` its degrees of freedom. Times
    are microseconds.
    """

    walls: Floats
    means: Floats
    error: Floats
    freedom: Floats


def _estimate_means(builds: ComparedBuilds) -> _Means:
    """Estimate means per build, with errors from the variances between and within days.

    Variances are pooled over both sides. Matrices are days or sides x rows.
    """
    n_days = int(builds.day.max()) + 1
    side_of_day = np.zeros(n_days, np.int64)
    side_of_day[builds.day] = builds.side
    is_side = np.equal.outer(np.arange(N_SIDES), side_of_day).astype(np.float64)
    day_sums = builds.sums(builds.day, n_days)
    day_sizes = builds.counts(builds.day, n_days)
    sums = builds.sums(builds.side, N_SIDES)
    sizes = builds.counts(builds.side, N_SIDES)
    with np.errstate(invalid="ignore", divide="ignore"):
        squares_between = is_side @ np.nan_to_num(day_sums**2 / day_sizes)
        days = is_side @ (day_sizes > 0)
        squares_within = builds.squares() - squares_between
        freedom_within = sizes - days
        freedom = days.sum(axis=0) - 2
        pooled = squares_within.sum(axis=0) / np.maximum(freedom_within.sum(axis=0), 1)
        between = (squares_between - sums**2 / sizes).sum(axis=0) / freedom
        clumps = is_side @ day_sizes**2
        usual_size = (sizes - clumps / sizes).sum(axis=0) / freedom
        variance_of_days = np.maximum((between - pooled) / usual_size, 0)
        # A side on which builds of a group are rare has a larger error of its mean, but may have
        # none of them.
        variance_of_side = squares_within / np.maximum(freedom_within, 1)
        variance_of_builds = np.maximum(pooled, np.where(builds.slope == 0, 0, variance_of_side))
        variance = variance_of_builds / sizes + variance_of_days * clumps / sizes**2
        error = np.sqrt(np.maximum(variance.sum(axis=0), 0))
        means = sums / sizes * builds.weight
    return _Means(builds.mean_walls(), means, error * builds.weight, freedom)


def _estimate_tails(builds: ComparedBuilds, tail: float) -> _Means:
    """Estimate means of the slowest builds, with errors from resampled days."""
    random = np.random.default_rng(0)
    means = []
    errors = []
    freedom = -2.0
    for side in range(N_SIDES):
        of_side = np.flatnonzero(builds.side == side)
        slowest_first = of_side[np.argsort(-builds.wall[of_side], kind="stable")]
        days, day = np.unique(builds.day[slowest_first], return_inverse=True)
        n_days = len(days)
        means.append(_tail_mean(builds, slowest_first, np.ones(len(of_side)), tail))
        resampled = random.multinomial(n_days, np.full(n_days, 1 / n_days), _RESAMPLES)
        tails = []
        for times in resampled.astype(np.float64):
            tails.append(_tail_mean(builds, slowest_first, times[day], tail))
        is_known = n_days >= _MIN_TAIL_DAYS
        errors.append(np.std(tails, axis=0, ddof=1) if is_known else np.full(builds.n_rows, np.nan))
        freedom += n_days
    freedoms = np.full(builds.n_rows, freedom)
    return _Means(np.sum(means, axis=1), np.stack(means), np.hypot(*errors), freedoms)


def _tail_mean(
    builds: ComparedBuilds,
    slowest_first: Integers,
    times: Floats,
    tail: float,
) -> Floats:
    """Return the mean of each row over this share of the builds.

    Each of the builds counts so many times.
    """
    size = tail * times.sum()
    n_slower = np.cumsum(times) - times
    weights = np.zeros(len(builds.side))
    weights[slowest_first] = np.clip(size - n_slower, 0, times) / size
    weighted = builds.micros * weights[builds.build]
    return np.asarray(np.bincount(builds.row, weighted, minlength=builds.n_rows), np.float64)


def _tabulate(builds: ComparedBuilds, estimates: _Means) -> pd.DataFrame:
    """Return the explanation, the largest changes first."""
    from scipy.special import stdtr, stdtrit

    before, after = estimates.means
    change = after - before
    builds_before, builds_after = builds.occurrences()
    fewest = np.minimum(builds_before, builds_after)
    is_new_or_gone = (fewest == 0) & (np.maximum(builds_before, builds_after) >= _MIN_BUILDS)
    is_frequent = (fewest >= _MIN_BUILDS) | is_new_or_gone
    is_frequent &= builds.counts(builds.side, N_SIDES).min(axis=0) >= _MIN_BUILDS
    error = np.where(is_frequent & (estimates.freedom > 0), estimates.error, np.nan)
    freedom = np.maximum(estimates.freedom, 1)
    margin = stdtrit(freedom, 0.975) * error
    with np.errstate(invalid="ignore", divide="ignore"):
        p = 2 * stdtr(freedom, -np.abs(change) / error)
    p = np.where((np.abs(change) < _NO_CHANGE) & ~np.isnan(error), 1.0, p)
    q = adjust(p)
    columns = {
        "before_s": before / 1e6,
        "after_s": after / 1e6,
        "change_s": change / 1e6,
        "low_s": (change - margin) / 1e6,
        "high_s": (change + margin) / 1e6,
        "p": p,
        "q": q,
        "notable": pd.array(q <= RATE, "boolean"),
        "builds_before": pd.array(builds_before, "Int64"),
        "builds_after": pd.array(builds_after, "Int64"),
    }
    largest_first = np.argsort(-np.abs(change), kind="stable")
    result = join_keys(builds.keys, pd.DataFrame(columns))
    result = result.iloc[largest_first].reset_index(drop=True)
    before_s, after_s = estimates.walls / 1e6
    n_before, n_after = np.bincount(builds.side, minlength=N_SIDES).tolist()
    result.attrs = {
        "before_s": float(before_s),
        "after_s": float(after_s),
        "n_before": n_before,
        "n_after": n_after,
    }
    return result
