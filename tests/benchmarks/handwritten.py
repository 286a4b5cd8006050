"""Peers of the summaries on pandas: numpy code, each function for one question and one kind of frame.

No checks, no other zones, no other columns; where a trick of the library is the best there is, it is here, too.
Each gives the columns of the summary of its name.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tests.benchmarks.handwritten_intervals import CELLS, Durations, Integers, percentile_columns, rated, shift_of

NAT = np.iinfo(np.int64).min
DAY = 86_400_000_000


def us(frame: pd.DataFrame, name: str) -> Integers:
    return frame[name].astype("int64").to_numpy()


def is_any(texts: pd.Series[str], *values: str) -> Any:
    return (texts == values[0] if len(values) == 1 else texts.isin(values)).to_numpy()


def flag(flags: pd.Series[bool]) -> Any:
    return flags.to_numpy(bool, na_value=False)


def known(texts: pd.Series[str]) -> Any:
    return texts.notna().to_numpy()


def factorized(texts: pd.Series[str]) -> tuple[Integers, pd.Series[str]]:
    """Numbers in the order of the texts, null last, and the texts."""
    codes, values = pd.factorize(texts, use_na_sentinel=False)
    order = pd.Series(values).argsort().to_numpy() if not pd.isna(values).any() else _null_last(values)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return place[codes], pd.Series(values).take(order).reset_index(drop=True)


def _null_last(values: Any) -> Any:
    return pd.Series(values).reset_index(drop=True).sort_values(na_position="last").index.to_numpy()


def grouped(first: Integers, second: Integers, many: int) -> tuple[Integers, Integers]:
    """Of two small numbers one, without gaps: of each row, and which pairs there are."""
    pairs = first * many + second
    there = np.flatnonzero(np.bincount(pairs))
    numbers = np.zeros(there[-1] + 1, np.int64)
    numbers[there] = np.arange(len(there))
    return numbers[pairs], there


# Durations


def in_groups(codes: Integers, n: Integers, *columns: Any) -> list[list[Any]]:
    """The rows of each group, after a sort by group that needs no comparisons."""
    order = np.argsort(codes.astype(np.int16), kind="stable")
    return [np.split(one[order], np.cumsum(n)[:-1]) for one in columns]


def starts_of_scripts(jobs: pd.DataFrame) -> Integers:
    """When jobs began to run on an agent, which only script jobs do."""
    return np.where(is_any(jobs["type"], "script"), us(jobs, "started_at"), NAT)


def _durations(
    codes: Integers, many: int, begun: Integers, over: Integers, at: Integers, counted: Any, seen: Integers
) -> dict[str, Any]:
    """Counts and percentiles; `seen` is until when a row was seen that did not end, and `at` the times of rows."""
    has_begun = (begun != NAT) & counted
    has_ended, has_left = has_begun & (over != NAT), has_begun & (over == NAT)
    values, own = ((over - begun)[has_ended] // 1000).astype(np.int32), codes[has_ended]
    n = np.bincount(own, minlength=many)
    censored = np.bincount(codes[has_left], minlength=many)
    negative = np.bincount(own[values < 0], minlength=many)
    left = (seen - begun)[has_left] // 1_000_000 + 1
    ended = in_groups(own, n, values, at[has_ended])
    rows = Durations(*ended, *in_groups(codes[has_left], censored, left, at[has_left]))
    return {"n": n, "n_censored": censored, "n_negative": negative} | percentile_columns(rows)


def _seen(jobs: pd.DataFrame) -> Integers:
    finished = us(jobs, "finished_at")
    return np.where(finished == NAT, us(jobs, "fetched_at"), finished)


def percentiles_by_queue(jobs: pd.DataFrame) -> pd.DataFrame:
    codes, queues = factorized(jobs["queue"])
    scripts = is_any(jobs["type"], "script")
    at = us(jobs, "runnable_at")
    result = _durations(codes, len(queues), at, us(jobs, "started_at"), at, scripts, _seen(jobs))
    return _there(pd.DataFrame({"queue": queues} | result), codes[scripts])


def _there(result: pd.DataFrame, codes: Integers) -> pd.DataFrame:
    """The groups that have rows."""
    return result[np.bincount(codes, minlength=len(result)) > 0].reset_index(drop=True)


def percentiles_by_step(jobs: pd.DataFrame) -> pd.DataFrame:
    pipeline, pipelines = factorized(jobs["pipeline"])
    step, texts = factorized(jobs["step"])
    codes, there = grouped(pipeline, step, len(texts))
    scripts = is_any(jobs["type"], "script")
    at = us(jobs, "runnable_at")
    result = _durations(codes, len(there), at, us(jobs, "started_at"), at, scripts, _seen(jobs))
    keys = {"pipeline": pipelines[there // len(texts)].array, "step": texts[there % len(texts)].array}
    return _there(pd.DataFrame(keys | result), codes[scripts])


def trend(jobs: pd.DataFrame) -> pd.DataFrame:
    at = us(jobs, "created_at")
    day = at // DAY
    first, many = day.min(), day.max() - day.min() + 1
    scripts = is_any(jobs["type"], "script")
    result = _durations(day - first, many, us(jobs, "started_at"), us(jobs, "finished_at"), at, scripts, _seen(jobs))
    return in_days(us(jobs, "fetched_at").max(), first, many, result)


def in_days(fetched_at: int, first: int, many: int, result: dict[str, Any]) -> pd.DataFrame:
    starts = (np.arange(many) + first) * DAY
    partial = starts + DAY > fetched_at
    return pd.DataFrame({"bucket": pd.DatetimeIndex(starts.view("M8[us]"), tz="UTC")} | result | {"partial": partial})


# Rates


def cells_of(at: Integers) -> tuple[Integers, int]:
    """The cell of each time, and how many cells there are."""
    known = at[at != NAT]
    shift = shift_of(int(known.min()), int(known.max()))
    first = int(known.min()) >> shift
    return (at >> shift) - first, (int(known.max()) >> shift) - first + 1


def _settled(builds: pd.DataFrame, codes: Integers, many: int, size: int) -> dict[str, Any]:
    """Counts and rates of groups; `codes` are numbers of cells of time, so many for each group."""
    open_again = ~flag(builds["blocked"])
    cells = {
        state: np.bincount(codes[open_again & is_any(builds["state"], state)], minlength=many * size).reshape(-1, size)
        for state in ("passed", "failed")
    }
    passed, failed = (one.sum(axis=1) for one in cells.values())
    counts = {"passed": passed, "failed": failed, "n": passed + failed}
    return counts | rated(cells, "passed", ("passed", "failed"), passed, passed + failed)


def success_rate(builds: pd.DataFrame) -> pd.DataFrame:
    codes, pipelines = factorized(builds["pipeline"])
    cell, size = cells_of(us(builds, "created_at"))
    return pd.DataFrame({"pipeline": pipelines} | _settled(builds, codes * size + cell, len(pipelines), size))


def success_trend(builds: pd.DataFrame) -> pd.DataFrame:
    cell = us(builds, "created_at") // (DAY // CELLS)
    first = cell.min() // CELLS
    many = cell.max() // CELLS - first + 1
    settled = _settled(builds, cell - first * CELLS, many, CELLS)
    return in_days(us(builds, "fetched_at").max(), first, many, settled)


def throughput(builds: pd.DataFrame) -> pd.DataFrame:
    created, finished = us(builds, "created_at") // DAY, us(builds, "finished_at")
    is_blocked = flag(builds["blocked"]) | is_any(builds["state"], "blocked")
    finished = finished[(finished != NAT) & ~is_blocked] // DAY
    first = min(created.min(), finished.min())
    many = max(created.max(), finished.max()) - first + 1
    counts = {name: np.bincount(at - first, minlength=many) for name, at in (("demand", created), ("served", finished))}
    return in_days(us(builds, "fetched_at").max(), first, many, counts)


def retry_rate(jobs: pd.DataFrame) -> pd.DataFrame:
    codes, pipelines = factorized(jobs["pipeline"])
    execution = is_any(jobs["type"], "script") & (us(jobs, "started_at") != NAT)
    retried = execution & flag(jobs["retried"])
    passed = retried & is_any(jobs["state"], "passed")
    first = jobs["retried_in_job_id"].array[retried]
    again = known(jobs["retry_of_type"])
    found = pd.Index(jobs["id"].array[again]).get_indexer(first)
    kinds = np.append(jobs["retry_of_type"].array[again].to_numpy(object), "")[found]
    cell, size = cells_of(us(jobs, "started_at"))
    many, cell = len(pipelines), codes * size + cell
    cells = {
        name: np.bincount(cell[it], minlength=many * size).reshape(many, size)
        for name, it in (("executions", execution), ("retried", retried))
    }
    n, of = (one.sum(axis=1) for one in cells.values())
    kind = {k: np.bincount(codes[retried][kinds == k], minlength=many) for k in ("automatic", "manual")}
    result = {
        "executions": n,
        "retried": of,
        "retried_passed": np.bincount(codes[passed], minlength=many),
        **kind,
        "of_unknown_kind": of - kind["automatic"] - kind["manual"],
        **rated(cells, "retried", ("executions",), of, n),
        **{f"{name}_rate": count / n for name, count in kind.items()},
    }
    return pd.DataFrame({"pipeline": pipelines} | result)
