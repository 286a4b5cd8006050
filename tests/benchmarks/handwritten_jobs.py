"""Peers of the summaries on pandas: jobs of builds, of steps at a commit, and of queues."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tests.benchmarks.handwritten import NAT, cells_of, factorized, flag, is_any, starts_of_scripts, us
from tests.benchmarks.handwritten_intervals import Integers, rated

HALF_HOUR = 1_800_000_000
_VERDICTS = np.array(["passed", "infrastructure", "killed", "undecided", "deterministic", "flaky"], object)
_FLAKY = 5
UNDER_WAY = ("running", "scheduled")
"""States of jobs here that are not over, whose end is unknown."""


class _Attempts(NamedTuple):
    """Jobs with an outcome: of each the key of its variant, and the sizes by which it was made, the first largest."""

    rows: Integers
    key: Integers
    texts: list[pd.Series[Any]]
    passed: Any
    failed: Any
    lost: Any
    killed: Any
    stormy: Any
    at: Integers


def _attempts(jobs: pd.DataFrame) -> _Attempts:
    soft = flag(jobs["soft_failed"])
    of_state, states = pd.factorize(jobs["state"])
    passed, failed, timed_out = (of_state == states.get_loc(one) for one in ("passed", "failed", "timed_out"))
    failed &= ~soft
    lost = failed & (jobs["exit_status"].to_numpy(np.int64, na_value=0) == -1)
    killed = failed & ~lost & is_any(jobs["signal"], "SIGKILL")
    rows = np.flatnonzero(is_any(jobs["type"], "script") & (passed | failed | timed_out))
    result = [factorized(jobs[name]) for name in ("organization", "pipeline")]
    result += [factorized(jobs[name]) for name in ("step", "commit", "matrix")]
    index = jobs["parallel_group_index"]
    shard = index.to_numpy(np.int64, na_value=int(index.max()) + 1)
    key = np.zeros(len(rows), np.int64)
    for codes, texts in result:
        key = key * len(texts) + codes[rows]
    key = key * (int(index.max()) + 2) + shard[rows]
    texts = [*(texts for _, texts in result), pd.Series(range(int(index.max()) + 2))]
    at, passed, failed, lost, killed = (
        us(jobs, "finished_at")[rows],
        passed[rows],
        (failed & ~lost & ~killed | timed_out)[rows],
        lost[rows],
        killed[rows],
    )
    step, commit = key // (len(texts[3]) * len(texts[4]) * len(texts[5])), result[3][0][rows]
    stormy = np.zeros(len(rows), np.bool_)
    for place in ("queue", "agent_id"):
        stormy |= _stormy(jobs[place], rows, at // HALF_HOUR, step, commit, passed)
    outcomes = (one & ~stormy for one in (passed, failed, lost, killed))
    return _Attempts(rows, key, texts, *outcomes, stormy, at)


def _stormy(places: Any, rows: Integers, period: Integers, step: Integers, commit: Integers, passed: Any) -> Any:
    """The attempts of half hours in which nearly all steps of a place only failed, at several commits."""
    codes, names = pd.factorize(places)
    period = period - period.min()
    many = int(period.max()) + 1
    cell = codes[rows] * many + period
    cell[codes[rows] < 0] = len(names) * many
    failures = np.bincount(cell[~passed], minlength=len(names) * many + 1)[:-1]
    often = np.flatnonzero(failures >= 5)
    is_often = np.zeros(len(names) * many + 1, np.bool_)
    is_often[often] = True
    own = np.flatnonzero(is_often[cell])
    total = np.bincount(cell[own], minlength=len(failures))[often]
    is_often[often] = failures[often] >= 0.5 * total
    own = own[is_often[cell[own]]]
    stormy = np.zeros(len(rows), np.bool_)
    for places in np.split(own[np.argsort(cell[own], kind="stable")], np.flatnonzero(np.diff(np.sort(cell[own]))) + 1):
        steps, has_passed = np.unique(step[places]), np.unique(step[places][passed[places]])
        commits = np.unique(commit[places][~passed[places]])
        is_storm = len(steps) >= 5 and len(steps) - len(has_passed) > 0.8 * len(steps) and len(commits) > 1
        stormy[places] = is_storm
    return stormy


def _verdicts(passes: Integers, failures: Integers, lost: Integers, killed: Integers) -> Integers:
    unlike = np.where(passes > 0, 5, np.where(failures > 1, 4, 3))
    return np.where(failures > 0, unlike, np.where(killed > 0, 2, lost > 0))


def outcomes_by_commit(jobs: pd.DataFrame) -> pd.DataFrame:
    """Sorted once by variant, so that each is a slice."""
    found = _attempts(jobs)
    order = np.argsort(found.key)
    key = found.key[order]
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    passes, failures, lost, killed, storm = (
        np.add.reduceat(one[order], starts, dtype=np.int64)
        for one in (found.passed, found.failed, found.lost, found.killed, found.stormy)
    )
    ended, left_out = found.at[order], found.stormy[order]
    counted = passes + failures + lost + killed > 0
    columns, left = {}, key[starts]
    names = ["organization", "pipeline", "step", "commit", "matrix", "parallel_group_index"]
    for name, texts in reversed([*zip(names, found.texts, strict=True)]):
        left, codes = np.divmod(left, len(texts))
        columns[name] = texts.array.take(codes)
        if name == "parallel_group_index":
            columns[name] = pd.arrays.IntegerArray(codes, codes == len(texts) - 1)
    none = np.iinfo(np.int64).max
    times = {
        "first_at": np.minimum.reduceat(np.where(left_out, none, ended), starts),
        "last_at": np.maximum.reduceat(np.where(left_out, NAT, ended), starts),
    }
    result = pd.DataFrame(
        {
            **{name: columns[name] for name in names},
            "passes": passes,
            "failures": failures,
            "lost": lost,
            "killed": killed,
            "n_storm": storm,
            **{name: pd.DatetimeIndex(at.view("M8[us]"), tz="UTC") for name, at in times.items()},
            "verdict": pd.array(_VERDICTS, dtype="str").take(_verdicts(passes, failures, lost, killed)),
        }
    )
    return result if counted.all() else result[counted].reset_index(drop=True)


def flips(jobs: pd.DataFrame) -> pd.DataFrame:
    found = _attempts(jobs)
    _, n_pipelines, n_steps, n_commits, n_matrices, n_shards = map(len, found.texts)
    order = np.argsort(found.key)
    key = found.key[order]
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    counts = (found.passed, found.failed, found.lost, found.killed, found.stormy)
    passes, failures, lost, killed, storm = (np.add.reduceat(one[order], starts, dtype=np.int64) for one in counts)
    verdicts = _verdicts(passes, failures, lost, killed)
    at_commit = key[starts] // (n_matrices * n_shards)
    firsts = np.flatnonzero(np.diff(at_commit, prepend=-1))
    verdict = np.maximum.reduceat(verdicts, firsts)
    first_at = np.minimum.reduceat(found.at[order], starts[firsts])
    passed = np.maximum.reduceat(passes, firsts) > 0
    counted = passed | (verdict > 0)
    step = at_commit[firsts] // n_commits
    there = np.flatnonzero(np.bincount(step))
    many = there[-1] + 1
    commits, commits_passed = (np.bincount(step[one], minlength=many)[there] for one in (counted, passed))
    by_verdict = {name: np.bincount(step[verdict == i], minlength=many)[there] for i, name in enumerate(_VERDICTS)}
    number = np.zeros(many, np.int64)
    number[there] = np.arange(len(there))
    cell, size = cells_of(first_at)
    cell += number[step] * size
    cells = {
        name: np.bincount(cell[of], minlength=len(there) * size).reshape(-1, size)
        for name, of in (("passed", passed), ("flaky", verdict == _FLAKY))
    }
    rates = rated(cells, "flaky", ("passed",), by_verdict["flaky"], commits_passed)
    names = {"organization": there // n_steps // n_pipelines, "pipeline": there // n_steps % n_pipelines}
    names["step"] = there % n_steps
    result = {name: texts.array.take(codes) for (name, codes), texts in zip(names.items(), found.texts, strict=False)}
    result |= {"commits": commits, "commits_passed": commits_passed}
    result |= {name: by_verdict[name] for name in ("flaky", "deterministic", "undecided", "killed", "infrastructure")}
    storms = np.bincount(step, np.add.reduceat(storm, firsts), many)[there].astype(np.int64)
    result |= {"n_storm": storms, "n_without_commit": np.zeros(len(there), np.int64), "flake_rate": rates.pop("rate")}
    return ranked(pd.DataFrame(result | rates))


def ranked(steps: pd.DataFrame) -> pd.DataFrame:
    """Steps in order of their keys, by the lower end of the interval."""
    order = np.lexsort((-steps["flake_rate"].fillna(-1), -steps["low"].fillna(0)))
    return steps.take(order).reset_index(drop=True)


def waste(jobs: pd.DataFrame) -> pd.DataFrame:
    codes, pipelines = factorized(jobs["pipeline"])
    builds, ids = pd.factorize(jobs["build_id"])
    state = pd.factorize(jobs["state"])
    is_state = {name: state[0] == state[1].get_loc(name) for name in ("failed", "timed_out", "canceled")}
    begun, over = starts_of_scripts(jobs), us(jobs, "finished_at")
    retried = flag(jobs["retried"])
    hard = ((is_state["failed"] & ~flag(jobs["soft_failed"])) | is_state["timed_out"]) & ~retried & (over != NAT)
    failed_at = np.full(len(ids), np.iinfo(np.int64).max)
    np.minimum.at(failed_at, builds[hard], over[hard])
    repeated = _repeated(jobs, builds, len(ids))[builds]
    place = np.where(repeated, 3, 4)
    place[is_state["canceled"]] = 1
    place[retried] = 0
    ran = (begun != NAT) & (over != NAT)
    is_late = ran & (over > failed_at[builds]) & (place > 1)
    late = np.where(is_late, over - np.maximum(begun, failed_at[builds]), 0)[ran]
    place, codes_ran, span = place[ran], codes[ran], (over - begun)[ran]
    many = len(pipelines)
    parts = (np.bincount(codes_ran * 5 + place, span - late, many * 5) / 1e6).reshape(many, 5)
    parts[:, 2] = np.bincount(codes_ran, late, many) / 1e6
    left = (begun != NAT) & (over == NAT)
    running = left & is_any(jobs["state"], *UNDER_WAY)
    names = ("retried_s", "canceled_s", "after_failure_s", "repeated_s", "useful_s")
    result = {"n": np.bincount(codes_ran, minlength=many), "machine_s": parts.sum(axis=1)}
    result |= {name: parts[:, i] for i, name in enumerate(names)}
    flags = {"n_running": running, "n_no_end": left & ~running}
    result |= {name: np.bincount(codes[those], minlength=many) for name, those in flags.items()}
    return pd.DataFrame(
        {"pipeline": pipelines} | result | {"n_negative": np.bincount(codes_ran[span < 0], minlength=many)}
    )


def _repeated(jobs: pd.DataFrame, builds: Integers, many: int) -> Any:
    """Of each build, as it was fetched last, whether the one before it at its commit ended as it did."""
    seen, last, one = us(jobs, "fetched_at"), np.full(many, NAT), np.empty(many, np.int64)
    np.maximum.at(last, builds, seen)
    newest = np.flatnonzero(seen == last[builds])
    one[builds[newest]] = newest
    names = ["organization", "pipeline", "branch", "commit", "build_state", "build_created_at", "build_number"]
    each = jobs[names].take(one).reset_index(drop=True)
    each = each[each["build_state"].isin(["passed", "failed"]) & each["commit"].ne("HEAD") & each["commit"].notna()]
    each = each.sort_values(["build_created_at", "build_number"])
    before = each.groupby(names[:4], dropna=False, sort=False)["build_state"].shift()
    repeated = np.zeros(many, np.bool_)
    repeated[each.index[(before == each["build_state"]).to_numpy()]] = True
    return repeated


# Intervals


def _builds(jobs: pd.DataFrame) -> tuple[Integers, pd.Index[Any]]:
    codes, ids = pd.factorize(jobs["build_id"])
    order = ids.argsort()
    place = np.empty(len(ids), np.int64)
    place[order] = np.arange(len(ids))
    return place[codes], ids[order].rename("build_id")


def _series(durations: Integers, ids: pd.Index[Any], name: str) -> pd.Series[pd.Timedelta]:
    return pd.Series(pd.TimedeltaIndex(durations.view("m8[us]")), index=ids, name=name)


def machine_time(jobs: pd.DataFrame) -> pd.Series[pd.Timedelta]:
    codes, ids = _builds(jobs)
    begun, over = starts_of_scripts(jobs), us(jobs, "finished_at")
    ran = (begun != NAT) & (over != NAT)
    sums = np.bincount(codes[ran], (over - begun)[ran], len(ids)).astype(np.int64)
    return _series(np.where(np.bincount(codes[ran], minlength=len(ids)) > 0, sums, NAT), ids, "machine_time")


def _union(codes: Integers, begun: Integers, over: Integers, many: int) -> Integers:
    """Builds one after the other on one axis, so that one sort and one running maximum do for all."""
    reach = over.max() - begun.min() + 1
    shift = codes * reach
    order = np.argsort(begun + shift)
    codes, begun, over = codes[order], (begun + shift)[order], (over + shift)[order]
    reached = np.maximum.accumulate(over)
    begun[1:] = np.maximum(begun[1:], reached[:-1])
    return np.bincount(codes, np.maximum(over - begun, 0), many).astype(np.int64)


def parallelism(jobs: pd.DataFrame) -> pd.Series[float]:
    codes, ids = _builds(jobs)
    begun, over = starts_of_scripts(jobs), us(jobs, "finished_at")
    ran = (begun != NAT) & (over != NAT) & ~flag(jobs["retried"])
    codes, begun, over = codes[ran], begun[ran], np.maximum(begun, over)[ran]
    run_time = np.bincount(codes, over - begun, len(ids))
    active = _union(codes, begun, over, len(ids))
    with np.errstate(invalid="ignore", divide="ignore"):
        return pd.Series(np.where(active > 0, run_time / active, np.nan), index=ids, name="parallelism")


def active_time(jobs: pd.DataFrame) -> pd.Series[pd.Timedelta]:
    codes, ids = _builds(jobs)
    begun, over = starts_of_scripts(jobs), us(jobs, "finished_at")
    ran = (begun != NAT) & (over != NAT) & ~flag(jobs["retried"])
    codes, begun, over = codes[ran], begun[ran], over[ran]
    sums = _union(codes, begun, np.maximum(begun, over), len(ids))
    return _series(np.where(np.bincount(codes, minlength=len(ids)) > 0, sums, NAT), ids, "active_time")


def time_to_first_failure(jobs: pd.DataFrame) -> pd.Series[pd.Timedelta]:
    codes, ids = _builds(jobs)
    created = np.empty(len(ids), np.int64)
    created[codes] = us(jobs, "build_created_at")
    failed = is_any(jobs["state"], "failed") & ~flag(jobs["soft_failed"]) | is_any(jobs["state"], "timed_out")
    over = us(jobs, "finished_at")
    failed &= over != NAT
    none = np.iinfo(np.int64).max
    first = np.full(len(ids), none)
    np.minimum.at(first, codes[failed], over[failed])
    return _series(np.where(first == none, NAT, first - created), ids, "time_to_first_failure")


def time_to_pass(jobs: pd.DataFrame) -> pd.Series[pd.Timedelta]:
    codes, ids = _builds(jobs)
    one = np.empty(len(ids), np.int64)
    one[codes] = np.arange(len(codes))
    last = np.full(len(ids), NAT)
    np.maximum.at(last, codes, us(jobs, "finished_at"))
    held = is_any(jobs["state"], "blocked")
    last[codes[held]] = NAT  # there is no other kind of blocked job here than block steps
    each = jobs[["build_state", "build_created_at"]].take(one)
    counted = is_any(each["build_state"], "passed") & (last != NAT)
    return _series(np.where(counted, last - us(each, "build_created_at"), NAT), ids, "time_to_pass")


def _gaps(jobs: pd.DataFrame, blocked: bool) -> pd.Series[pd.Timedelta]:
    """Builds one after the other, as in `_union`; a gap belongs to what begins at its end."""
    codes, ids = _builds(jobs)
    begun, over, seen = starts_of_scripts(jobs), us(jobs, "finished_at"), us(jobs, "fetched_at")
    created, last = np.empty(len(ids), np.int64), np.full(len(ids), NAT)
    created[codes] = us(jobs, "build_created_at")
    end = np.where(over == NAT, seen, over)
    unblocked = us(jobs, "unblocked_at")
    unblocked = np.where(is_any(jobs["state"], "blocked") & (unblocked == NAT), seen, unblocked)
    ran, released = np.flatnonzero((begun != NAT) & (end > begun)), np.flatnonzero(unblocked != NAT)
    unblocked = np.maximum(unblocked[released], created[codes[released]])
    begun, end = (np.maximum(at[ran], created[codes[ran]]) for at in (begun, end))
    for places, at in ((codes, over), (codes[ran], end), (codes[released], unblocked)):
        np.maximum.at(last, places, at)
    known = np.flatnonzero(last != NAT)
    last[known] = np.maximum(last[known], created[known])
    shift = np.arange(len(ids)) * (last.max() - created.min() + 1)
    parts = [(known, created[known], created[known]), (codes[released], unblocked, unblocked)]
    parts += [(codes[ran], begun, end), (known, last[known], last[known])]
    build, start, stop = (np.concatenate(one) for one in zip(*parts, strict=True))
    is_counted = np.repeat([False, blocked, not blocked, not blocked], [len(one[0]) for one in parts])
    order = np.argsort(start + shift[build], kind="stable")
    build, start, is_counted = build[order], (start + shift[build])[order], is_counted[order]
    reached = np.maximum.accumulate(stop[order] + shift[build])
    gap = np.maximum(start[1:] - reached[:-1], 0) * is_counted[1:]
    sums = np.bincount(build[1:], gap, len(ids)).astype(np.int64)
    return _series(np.where(last != NAT, sums, NAT), ids, "blocked_time" if blocked else "idle_time")


def idle_time(jobs: pd.DataFrame) -> pd.Series[pd.Timedelta]:
    return _gaps(jobs, blocked=False)


def blocked_time(jobs: pd.DataFrame) -> pd.Series[pd.Timedelta]:
    return _gaps(jobs, blocked=True)


# Load


def _load(jobs: pd.DataFrame, name: str, begun: Integers, over: Integers) -> pd.DataFrame:
    """Changes in one number each, whose last bit says whether it is a beginning, sorted queue by queue."""
    codes, queues = factorized(jobs["queue"])
    created = us(jobs, "build_created_at")
    there = (begun != NAT) & (over != NAT)
    codes, begun, over = codes[there], begun[there], over[there]
    whole_from, whole_to = created.min() + (over - created[there]).max(), created.max()
    negative = np.bincount(codes[over < begun], minlength=len(queues))
    order = np.argsort(codes.astype(np.int16), kind="stable")
    begun, over = 2 * begun[order] + 1, 2 * np.maximum(begun, over)[order]
    parts = []
    for i, (stop, size) in enumerate(zip(stops := np.cumsum(np.bincount(codes)), np.diff(stops, prepend=0))):  # noqa: B905
        part = np.sort(np.concatenate([begun[stop - size : stop], over[stop - size : stop]]))
        at, level = part >> 1, np.cumsum(2 * (part & 1) - 1)
        last = np.append(at[1:] != at[:-1], True)
        at, level = at[last], level[last]
        changed = np.diff(level, prepend=0) != 0
        parts.append((np.full(changed.sum(), i), at[changed], level[changed]))
    group, at, level = (np.concatenate(column) for column in zip(*parts, strict=True))
    columns = {"queue": queues.array.take(group), "at": pd.DatetimeIndex(at.view("M8[us]"), tz="UTC"), name: level}
    return pd.DataFrame(columns | {"whole": (at >= whole_from) & (at <= whole_to), "n_negative": negative[group]})


def concurrency(jobs: pd.DataFrame) -> pd.DataFrame:
    begun, over = starts_of_scripts(jobs), us(jobs, "finished_at")
    return _load(jobs, "running", begun, np.where(over == NAT, us(jobs, "fetched_at"), over))


def queue_depth(jobs: pd.DataFrame) -> pd.DataFrame:
    begun = np.where(is_any(jobs["type"], "script"), us(jobs, "runnable_at"), NAT)
    started, finished = us(jobs, "started_at"), us(jobs, "finished_at")
    over = np.where(started == NAT, np.where(finished == NAT, us(jobs, "fetched_at"), finished), started)
    return _load(jobs, "waiting", begun, over)


def utilization(jobs: pd.DataFrame) -> pd.DataFrame:
    codes, queues = factorized(jobs["queue"])
    agents, names = pd.factorize(jobs["agent_id"])
    begun, over = starts_of_scripts(jobs), us(jobs, "finished_at")
    ended = (begun != NAT) & (over != NAT)
    counted = ended & (agents >= 0)
    many, left = len(queues), (begun != NAT) & (over == NAT)
    running = left & is_any(jobs["state"], *UNDER_WAY)
    ran, begun_then, over_then = codes[counted], begun[counted], over[counted]
    pairs = ran * len(names) + agents[counted]
    first, last = np.full(many * len(names), np.iinfo(np.int64).max), np.full(many * len(names), NAT)
    np.minimum.at(first, pairs, begun_then)
    np.maximum.at(last, pairs, over_then)
    there = np.flatnonzero(last != NAT)
    of, seen = there // len(names), (last - first)[there]
    span = over_then - begun_then
    busy_s, seen_s = np.bincount(ran, span, many) / 1e6, np.bincount(of, seen, many) / 1e6
    result = {
        "queue": queues,
        "agents": np.bincount(of, minlength=many),
        "busy_s": busy_s,
        "seen_s": seen_s,
        "share_used": busy_s / np.where(seen_s > 0, seen_s, np.nan),
        "n_running": np.bincount(codes[running], minlength=many),
        "n_no_end": np.bincount(codes[left & ~running], minlength=many),
        "n_no_agent": np.bincount(codes[ended & ~counted], minlength=many),
        "n_negative": np.bincount(ran[span < 0], minlength=many),
    }
    present = np.bincount(codes[begun != NAT], minlength=many) > 0
    return pd.DataFrame(result)[present].reset_index(drop=True)
