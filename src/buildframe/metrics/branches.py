"""What happens on a branch: its outages, how long recovery takes, how much of it is red.

A branch turns red when a build on it ends `failed`, and green when one ends `passed`. Builds count in the order of
`finished_at`, which is when their outcome was known; of those that finished in the same microsecond the one with the
higher number counts as the later. So a build that was created earlier and finished later still changes the colour: a
number `fixed_by` below `first_number` tells of it. Canceled, skipped, running builds, blocked ones (whose state is only
the last they had) and those without `finished_at` neither turn it red nor green.

Each summary wants to know which branch: `branch="main"` for all pipelines, or `pipelines=ws.pipelines()` for the
default branch of each, matched by id, or by organization and slug where a frame has no ids. It takes frames of
pandas, Polars, DuckDB or PySpark. One row a pipeline that has builds on the branch, under the name that its newest
build bears; with the column `organization` first where the builds have it. Time is seen until the latest stamp of the
frame, which is `fetched_at` or `finished_at`. Each row of the frame counts: drop duplicates by `id` before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import pandas as pd

from buildframe.arguments import checked_names
from buildframe.errors import BadInput
from buildframe.metrics.columns import MOMENT, moments, require
from buildframe.metrics.engines import Frame, Integers, as_pandas, chosen, collected, columns_of, is_pandas, lazy
from buildframe.metrics.groups import beside
from buildframe.metrics.percentiles import checked, percentiles
from buildframe.metrics.pieces import in_pieces
from buildframe.metrics.states import check_states
from buildframe.spec import Moment, When, when

_NEEDS = ("pipeline", "branch", "number", "state", "blocked", "finished_at", "fetched_at")
_WANTS = ("organization", "pipeline_id")

_ID = "id of pipeline"


@checked_names
def outages(builds: Frame, *, branch: str | None = None, pipelines: Frame | None = None) -> pd.DataFrame:
    """The times in which a branch was red: from a build turning failed until the next one turning passed.

    Failures in a row are one outage. Canceled, running, blocked builds neither begin nor end one; those of other
    branches are left out. Needs `pipeline`, `branch`, `number`, `state`, `blocked`, `finished_at`, `fetched_at`; uses
    `organization` and `pipeline_id`.

    One row an outage, ordered by pipeline, then time; columns: `pipeline`, `branch` (str);
    `failed_at`, `recovered_at` (`datetime64[us, UTC]`): when the first failed and the next passed build finished, NaT
    while there is none;
    `recovery_time_s` (float64): seconds between these, NaN while the outage is open or if its start is unknown: then
    it is longer than what is seen (censored);
    `seen_s` (float64): seconds of the outage that are seen: from `failed_at` until `recovered_at`, or, if it is open,
    until the latest timestamp of the frame;
    `open` (boolean): nothing passed since;
    `start_unknown` (boolean): the first known outcome of the branch, so that it may have begun before `failed_at`;
    `failed` (Int64): failed builds in it; `first_number`, `last_number` (Int64): of the first and the last of these;
    `fixed_by` (Int64): number of the build that passed, null while there is none.

    No builds or no failures give these columns and no rows. BadInput: the branch is not told, or not known of a
    pipeline; a missing column; naive times. The definition is that of time to restore service (Forsgren, Humble and Kim
    2018, Accelerate, chapter 2), for a branch in place of a service.
    """
    return _of_branches(builds, branch, pipelines, _outages)


def _outages(found: _Branches) -> pd.DataFrame:
    red = _red(found)
    return beside(found.keys.iloc[red.pop("line")].reset_index(drop=True), red)


@checked_names
def recovery_time(
    builds: Frame,
    *,
    branch: str | None = None,
    pipelines: Frame | None = None,
    q: float | Sequence[float] = (0.5, 0.95),
) -> pd.DataFrame:
    """Percentiles of how long a branch takes to recover, over its outages (see there) that are over.

    One row a pipeline, ordered by name; columns: `pipeline`, `branch` (str);
    `n` (Int64): outages that are over and whose start is known;
    `n_censored` (Int64): outages that are still open, or whose start is unknown; they are in no percentile, so real
    ones are longer than these;
    `p50_s`, `p50_low_s`, `p50_high_s`, ... (float64): seconds and their intervals, as in `percentiles`: NaN where n is
    too small.

    A pipeline without outages has n 0; no builds give these columns and no rows. Columns needed and BadInput as for
    `outages`, and for a q outside (0, 1).
    """
    return _of_branches(builds, branch, pipelines, functools.partial(_recovery_time, checked(q, "linear")))


def _recovery_time(q: Sequence[float], found: _Branches) -> pd.DataFrame:
    red = _red(found)
    lines = range(len(found.keys))
    is_whole = red["recovery_time_s"].notna()
    whole = percentiles(red[is_whole], "recovery_time_s", "line", q).set_index("line").reindex(lines)
    censored = red.loc[~is_whole, "line"].value_counts().reindex(lines, fill_value=0)
    closed = whole.drop(columns="n_negative").assign(n=whole["n"].fillna(0), n_censored=censored.astype("Int64"))
    return beside(found.keys, closed.reset_index(drop=True))


@checked_names
def red_share(
    builds: Frame,
    *,
    branch: str | None = None,
    pipelines: Frame | None = None,
    start: When | None = None,
    end: When | None = None,
) -> pd.DataFrame:
    """How much of the time a branch was red, and how many of its commits: two shares, not to be mixed.

    The window reaches from `start` (else the first known outcome of each pipeline) up to `end`, excluded (else the
    latest stamp of the frame). They are datetimes or ISO texts with a zone, dates, or ages such as "7d" that
    count back from the latest stamp. Time before the first known outcome and after the latest stamp is not known, and
    in neither part of the share. Give builds from before `start`, too: they tell how the window began. Needs the
    columns of `outages` and `commit`.

    One row a pipeline, ordered by name; columns: `pipeline`, `branch` (str);
    `red_s`, `known_s` (float64): seconds of the window in which the branch was red, and in which its colour is known;
    `red_share_of_time` (float64): red_s / known_s, NaN where nothing is known;
    `builds` (Int64): the builds that this share rests on: those that passed or failed in the window;
    `commits` (Int64): commits whose last outcome in the frame lies in the window, those without a commit left out;
    `red_commits` (Int64): those of which this outcome is `failed`;
    `red_share_of_commits` (float64): red_commits / commits, NaN where there are none.

    Slices of the window add up to the whole in red_s, known_s, builds, commits and red_commits. No builds give these
    columns and no rows. BadInput as for `outages`, and where `end` is not after `start`.
    """
    return _of_branches(builds, branch, pipelines, functools.partial(_red_share, start, end), "commit")


def _red_share(start: When | None, end: When | None, found: _Branches) -> pd.DataFrame:
    since, until = _window(start, end, found.until)
    first = pd.Series(found.outcomes.groupby("line")["finished_at"].first(), found.keys.index, dtype=MOMENT)
    begin = first if since is None else first.mask(first < since, since)
    stop = found.until if until is None else min(until, found.until)
    red, known = _red_seconds(_red(found), begin, stop), _seconds_to(stop, begin)
    commits, red_commits = _commits(found, since, until)
    return found.keys.assign(
        red_s=red,
        known_s=known,
        red_share_of_time=red / known,
        builds=_builds(found, since, until).astype("Int64"),
        commits=commits.astype("Int64"),
        red_commits=red_commits.astype("Int64"),
        red_share_of_commits=red_commits / commits,
    )


class _Branches(NamedTuple):
    """Of each pipeline's branch, the `keys` (a row each) and the `outcomes` in order (`line`: the row of keys)."""

    keys: pd.DataFrame
    outcomes: pd.DataFrame
    until: Any
    """The latest stamp of the frame."""


def _of_branches(
    builds: Frame,
    branch: str | None,
    pipelines: Frame | None,
    of: Callable[[_Branches], pd.DataFrame],
    *more: str,
) -> pd.DataFrame:
    """What `of` tells of each pipeline's branch, in order of names."""
    if not isinstance(branch, str | None) or (branch is None) == (pipelines is None):
        raise BadInput('Which branch? Give pipelines=ws.pipelines() for the default branch of each, or branch="main".')
    listed = None if pipelines is None else collected(pipelines, ["slug", "default_branch"], ["id", "organization"])
    check_states(builds, "state")
    needs, until = [*_NEEDS, *more], _until(builds)
    if is_pandas(builds):
        rows = collected(builds, needs, _WANTS)
        whose = _Whose.of(rows, branch, listed)
        told = _told(of, whose, until, more, rows)
    else:
        found = chosen(builds, needs, _WANTS)
        names = [name for name in ("pipeline", *_WANTS) if name in found.collect_schema()]
        whose = _Whose.of(as_pandas(found.select(*names).unique()), branch, listed)
        only = found.filter(nw.col("branch").is_in(whose.branches))
        told = in_pieces(only, whose.by, functools.partial(_told, of, whose, until, more))
        told = told.sort_values([*_there(told, "organization"), "pipeline", _ID], kind="stable", ignore_index=True)
    return told.drop(columns=_ID)


def _told(
    of: Callable[[_Branches], pd.DataFrame], whose: _Whose, until: Any, more: Sequence[str], rows: pd.DataFrame
) -> pd.DataFrame:
    """The same of the pipelines whose builds these are; `_ID` tells apart those of one name."""
    rows = rows.reset_index(drop=True)
    rows["finished_at"], codes = moments(rows, "finished_at"), _codes(rows, whose.by)
    places = np.flatnonzero(rows["branch"] == whose.branch_of(rows, codes))
    keys, lines = _newest(rows, places, codes[places])
    return of(_Branches(keys, _outcomes(rows, places, lines[codes[places]], more), until))


@dataclass(frozen=True)
class _Whose:
    """The columns `by` that tell pipelines apart, and the branch of each: one for all, or a frame with theirs."""

    by: list[str]
    branch: str | pd.DataFrame

    @classmethod
    def of(cls, rows: pd.DataFrame, branch: str | None, listed: pd.DataFrame | None) -> _Whose:
        by = ["pipeline_id"] if _is_whole(rows, "pipeline_id") else _there(rows, "organization", "pipeline")
        if listed is None:
            assert branch is not None
            return cls(by, branch)
        return cls(by, _default(rows.drop_duplicates(by), listed)[[*by, "default_branch"]])

    @property
    def branches(self) -> list[str]:
        return [self.branch] if isinstance(self.branch, str) else self.branch["default_branch"].unique().tolist()

    def branch_of(self, rows: pd.DataFrame, codes: Integers) -> Any:
        """The branch of each row's pipeline."""
        if isinstance(self.branch, str):
            return self.branch
        one_each = rows.loc[pd.Series(codes).drop_duplicates().index, self.by]
        found = one_each.merge(self.branch, how="left", on=self.by)["default_branch"]
        return found.take(codes).set_axis(rows.index)


def _until(builds: Frame) -> Any:
    """The latest stamp of all builds, whatever their branch."""
    names = ["finished_at", "fetched_at"]
    if not is_pandas(builds):
        require(columns_of(builds), names)
        builds = lazy(builds).select(nw.col(*names).max()).to_native()
    stamps = collected(builds, names)
    return pd.Series([moments(stamps, name).max() for name in names], dtype=MOMENT).max()


def _is_whole(frame: pd.DataFrame, name: str) -> bool:
    return name in frame and bool(frame[name].notna().all())


def _there(frame: pd.DataFrame, *names: str) -> list[str]:
    return [name for name in names if name in frame]


def _codes(rows: pd.DataFrame, by: Sequence[str]) -> Integers:
    """The number of each row's pipeline, in the order in which they appear."""
    first, *others = by
    codes = pd.factorize(rows[first], use_na_sentinel=False)[0]
    for name in others:
        own, values = pd.factorize(rows[name], use_na_sentinel=False)
        codes = pd.factorize(codes * len(values) + own)[0]
    return codes


def _default(one_each: pd.DataFrame, listed: pd.DataFrame) -> pd.DataFrame:
    """The pipelines with their default branch."""
    left, right = _matched_by(one_each, listed)
    if (twice := listed.duplicated(right)).any():
        raise BadInput(f"pipelines= holds {_first(listed.loc[twice, 'slug'])} twice; keep one row of it.")
    found = one_each.merge(listed, how="left", left_on=left, right_on=right, indicator=True, suffixes=("", "_listed"))
    if (absent := found["_merge"].ne("both")).any():
        name = _first(found.loc[absent, "pipeline"])
        raise BadInput(f"pipelines= does not list {name}, but there are builds of it; give them all.")
    if (unknown := found["default_branch"].fillna("").eq("")).any():
        name = _first(found.loc[unknown, "pipeline"])
        raise BadInput(f'The pipeline {name} has no known default branch; keep it apart and name its branch="main".')
    return found


def _matched_by(builds: pd.DataFrame, listed: pd.DataFrame) -> tuple[list[str], list[str]]:
    """The columns of builds and of pipelines by which these are matched."""
    if _is_whole(builds, "pipeline_id") and _is_whole(listed, "id"):
        return ["pipeline_id"], ["id"]
    if _is_whole(builds, "organization") and _is_whole(listed, "organization"):
        return ["organization", "pipeline"], ["organization", "slug"]
    return ["pipeline"], ["slug"]


def _first(names: pd.Series[str]) -> str:
    return repr(names.min()) if names.notna().any() else "a pipeline that is null"


def _newest(rows: pd.DataFrame, places: Integers, codes: Integers) -> tuple[pd.DataFrame, Integers]:
    """How the newest build of each pipeline names it, in order of names; and of each code, the row there."""
    newest = pd.Series(_numbers(rows)[places]).groupby(codes).idxmax()
    ids = rows["pipeline_id"] if "pipeline_id" in rows else rows["pipeline"]
    names = [*_there(rows, "organization"), "pipeline"]
    keys = rows[[*names, "branch"]].assign(**{_ID: ids}).take(places[newest]).set_axis(newest.index)
    keys = keys.sort_values([*names, _ID], kind="stable")
    lines = np.zeros(codes.max(initial=-1) + 1, np.int64)
    lines[keys.index] = np.arange(len(keys))
    return keys.reset_index(drop=True), lines


def _numbers(rows: pd.DataFrame) -> Integers:
    return rows["number"].fillna(-1).to_numpy(np.int64)


def _outcomes(rows: pd.DataFrame, places: Integers, line: Integers, more: Sequence[str]) -> pd.DataFrame:
    """Builds that passed or failed for good, in order of pipeline and of when that was known."""
    failed, is_blocked = rows["state"].eq("failed").to_numpy(), rows["blocked"].fillna(False).to_numpy(bool)
    settled = (failed | rows["state"].eq("passed")) & ~is_blocked & rows["finished_at"].notna()
    is_known = settled.to_numpy()[places]
    places, line = places[is_known], line[is_known]
    at = rows["finished_at"].astype("int64").to_numpy()
    later = 2 * _numbers(rows)[places] + failed[places]  # one key less to sort by
    order = np.lexsort((later, at[places], line))
    known = rows[["number", "finished_at", *more]].take(places[order])
    return known.assign(line=line[order], failed=failed[places[order]])


def _red(found: _Branches) -> pd.DataFrame:
    """The columns of `outages` without the names, and `line`."""
    known = found.outcomes
    line, failed = known["line"].to_numpy(), known["failed"].to_numpy()
    begins = np.diff(line, prepend=-1) > 0
    turns = np.flatnonzero(begins | np.diff(failed, prepend=False))
    after = np.append(turns[1:], len(known))[failed[turns]]
    turns = turns[failed[turns]]
    is_open = np.append(begins, True)[after]
    fix = np.where(is_open, -1, after)
    at, number = known["finished_at"].array, known["number"].array
    failed_at, recovered_at = pd.Series(at[turns]), pd.Series(at.take(fix, allow_fill=True))
    return pd.DataFrame(
        {
            "line": line[turns],
            "failed_at": failed_at,
            "recovered_at": recovered_at,
            "recovery_time_s": (recovered_at - failed_at).dt.total_seconds().mask(begins[turns]),
            "seen_s": (recovered_at.fillna(found.until) - failed_at).dt.total_seconds(),
            "open": pd.array(is_open, "boolean"),
            "start_unknown": pd.array(begins[turns], "boolean"),
            "failed": pd.array(after - turns, "Int64"),
            "first_number": number[turns],
            "last_number": number[after - 1],
            "fixed_by": number.take(fix, allow_fill=True),
        }
    )


def _window(start: When | None, end: When | None, now: Any) -> tuple[Moment | None, Moment | None]:
    as_of = None if pd.isna(now) else Moment.of(now)
    since = None if start is None else when(start, "start", as_of)
    until = None if end is None else when(end, "end", as_of)
    if since is not None and until is not None and since >= until:
        raise BadInput(f"The window must end after it starts: start={since.text()}, end={until.text()}.")
    return since, until


def _red_seconds(red: pd.DataFrame, begin: pd.Series[pd.Timestamp], stop: Any) -> pd.Series[float]:
    """The red seconds of each pipeline that lie in the window."""
    since = red["failed_at"].clip(lower=begin.loc[red["line"]].array)
    until = red["recovered_at"].fillna(stop).clip(upper=stop)
    return _seconds_to(until, since).groupby(red["line"]).sum().reindex(begin.index, fill_value=0.0)


def _seconds_to(until: Any, since: pd.Series[pd.Timestamp]) -> pd.Series[float]:
    """Seconds from one to the other, 0 where that is not known or the other way round."""
    seconds: pd.Series[float] = (until - since).dt.total_seconds().clip(lower=0).fillna(0.0)
    return seconds


def _within(outcomes: pd.DataFrame, since: Moment | None, until: Moment | None) -> pd.DataFrame:
    """The outcomes that were known from `since` on and before `until`."""
    outcomes = outcomes if since is None else outcomes[outcomes["finished_at"] >= since]
    return outcomes if until is None else outcomes[outcomes["finished_at"] < until]


def _builds(found: _Branches, since: Moment | None, until: Moment | None) -> pd.Series[int]:
    """How many builds of each pipeline have their outcome in the window."""
    return pd.Series(np.bincount(_within(found.outcomes, since, until)["line"], minlength=len(found.keys)))


def _commits(found: _Branches, since: Moment | None, until: Moment | None) -> tuple[pd.Series[int], pd.Series[int]]:
    """How many commits of each pipeline have their last outcome in the window, and of how many it is a failure."""
    last = found.outcomes.dropna(subset="commit").drop_duplicates(["line", "commit"], keep="last")
    last = _within(last, since, until)
    count = len(found.keys)
    red = last.loc[last["failed"], "line"]
    return pd.Series(np.bincount(last["line"], minlength=count)), pd.Series(np.bincount(red, minlength=count))
