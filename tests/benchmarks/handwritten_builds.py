"""Peers of the summaries on pandas: outages of the branch `main` of each pipeline."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tests.benchmarks.handwritten import NAT, factorized, flag, in_groups, is_any, us
from tests.benchmarks.handwritten_intervals import Durations, Integers, percentile_columns

BRANCH = "main"


class _Line(NamedTuple):
    """Outcomes of all pipelines one after the other, by when they were known."""

    pipelines: pd.Series[str]
    rows: Integers
    pipeline: Integers
    at: Integers
    failed: Any
    begins: Any
    """The first of its pipeline."""
    until: int


def _line(builds: pd.DataFrame) -> _Line:
    on_branch = is_any(builds["branch"], BRANCH)
    rows = np.flatnonzero(on_branch)
    codes, pipelines = factorized(builds["pipeline"].take(rows))
    finished = us(builds, "finished_at")
    until = max(finished.max(), us(builds, "fetched_at").max())
    failed = is_any(builds["state"], "failed")
    settled = (failed | is_any(builds["state"], "passed")) & ~flag(builds["blocked"]) & (finished != NAT)
    keep = settled[rows]
    rows, codes = rows[keep], codes[keep]
    order = np.lexsort((builds["number"].to_numpy(np.int64)[rows], finished[rows], codes))
    rows, codes = rows[order], codes[order]
    return _Line(pipelines, rows, codes, finished[rows], failed[rows], np.diff(codes, prepend=-1) > 0, until)


class _Red(NamedTuple):
    """Return outages as places in the line: of the first failure, and after the last."""

    first: Integers
    after: Integers
    is_open: Any


def _red(line: _Line) -> _Red:
    turns = np.flatnonzero(line.begins | np.diff(line.failed, prepend=False))
    after = np.append(turns[1:], len(line.rows))[line.failed[turns]]
    return _Red(turns[line.failed[turns]], after, np.append(line.begins, True)[after])


def _times(us: Integers) -> pd.DatetimeIndex:
    return pd.DatetimeIndex(us.view("M8[us]"), tz="UTC")


def outages(builds: pd.DataFrame) -> pd.DataFrame:
    line = _line(builds)
    red = _red(line)
    fix = np.where(red.is_open, 0, red.after)
    failed_at, fixed_at = line.at[red.first], line.at[fix]
    took = np.where(red.is_open, np.nan, (fixed_at - failed_at) / 1e6)
    number = builds["number"].to_numpy(np.int64)[line.rows]
    good = _last_good(line, red.first, number)
    is_unknown = good < 0
    return pd.DataFrame(
        {
            "organization": builds["organization"].array.take(line.rows[red.first]),
            "pipeline": line.pipelines.array.take(line.pipeline[red.first]),
            "branch": BRANCH,
            "failed_at": _times(failed_at),
            "recovered_at": _times(np.where(red.is_open, NAT, fixed_at)),
            "recovery_time_s": np.where(line.begins[red.first], np.nan, took),
            "seen_s": np.where(red.is_open, (line.until - failed_at) / 1e6, took),
            "open": red.is_open,
            "start_unknown": line.begins[red.first],
            "failed": red.after - red.first,
            "first_number": number[red.first],
            "last_number": number[red.after - 1],
            "last_good_number": pd.arrays.IntegerArray(number[good], is_unknown),
            "last_good_at": _times(np.where(is_unknown, NAT, line.at[good])),
            "last_good_commit": builds["commit"].array.take(np.where(is_unknown, -1, line.rows[good]), allow_fill=True),
            "first_bad_commit": builds["commit"].array.take(line.rows[red.first]),
            "fixed_by": pd.arrays.IntegerArray(number[fix], red.is_open),
        }
    )


def _last_good(line: _Line, first: Integers, number: Integers) -> Integers:
    """The passed build with the highest number below that of each first failure; -1 if there is none."""
    order = line.pipeline * (number.max() + 2) + number
    passed = np.flatnonzero(~line.failed)
    passed = passed[np.argsort(order[passed])]
    good = np.append(passed, -1)[np.searchsorted(order[passed], order[first]) - 1]
    return np.where((good >= 0) & (line.pipeline[good] == line.pipeline[first]), good, -1)


def _of_pipelines(builds: pd.DataFrame, line: _Line, columns: dict[str, Any]) -> pd.DataFrame:
    first = builds["organization"].iloc[0]
    return pd.DataFrame({"organization": first, "pipeline": line.pipelines, "branch": BRANCH} | columns)


def recovery_time(builds: pd.DataFrame) -> pd.DataFrame:
    line = _line(builds)
    red = _red(line)
    pipeline, many = line.pipeline[red.first], len(line.pipelines)
    closed = ~(red.is_open | line.begins[red.first])
    end = np.where(red.is_open, line.until, line.at[np.where(red.is_open, 0, red.after)])
    took, at, is_open = end - line.at[red.first], line.at[red.first], ~closed
    n, censored = np.bincount(pipeline[closed], minlength=many), np.bincount(pipeline[is_open], minlength=many)
    ended = in_groups(pipeline[closed], n, took[closed] // 1000, at[closed])
    left = in_groups(pipeline[is_open], censored, took[is_open] // 1_000_000 + 1, at[is_open])
    columns = percentile_columns(Durations(*ended, *left))
    return _of_pipelines(builds, line, {"n": n, "n_censored": censored} | columns)


def red_share(builds: pd.DataFrame) -> pd.DataFrame:
    line = _line(builds)
    red = _red(line)
    many = len(line.pipelines)
    end = np.where(red.is_open, line.until, line.at[np.where(red.is_open, 0, red.after)])
    red_s = np.bincount(line.pipeline[red.first], end - line.at[red.first], many) / 1e6
    known_s = np.zeros(many)
    known_s[line.pipeline[line.begins]] = (line.until - line.at[line.begins]) / 1e6
    commit, commits = pd.factorize(builds["commit"].take(line.rows))
    last = np.full(many * len(commits), -1)
    last[line.pipeline * len(commits) + commit] = np.arange(len(commit))
    last = last[last >= 0]
    count = np.bincount(line.pipeline[last], minlength=many)
    red_count = np.bincount(line.pipeline[last[line.failed[last]]], minlength=many)
    result = {
        "red_s": red_s,
        "known_s": known_s,
        "red_share_of_time": red_s / np.where(known_s > 0, known_s, np.nan),
        "builds": np.bincount(line.pipeline, minlength=many),
        "commits": count,
    }
    return _of_pipelines(
        builds,
        line,
        result | {"red_commits": red_count, "red_share_of_commits": red_count / np.where(count > 0, count, np.nan)},
    )
