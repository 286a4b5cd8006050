"""Peers of the summaries on pandas: numpy code, each function for one question and one kind of frame.

No checks, no other zones, no other columns; where a trick of the library is the best there is, it is here, too.
Each gives the columns of the summary of its name.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from buildframe import metrics

Integers = npt.NDArray[np.int64]

NAT = np.iinfo(np.int64).min
DAY = 86_400_000_000
Q = (0.5, 0.95)


def us(frame: pd.DataFrame, name: str) -> Integers:
    return frame[name].astype("int64").to_numpy()


def is_any(texts: pd.Series[str], *values: str) -> npt.NDArray[np.bool_]:
    return (texts == values[0] if len(values) == 1 else texts.isin(values)).to_numpy()


def flag(flags: pd.Series[bool]) -> npt.NDArray[np.bool_]:
    return flags.to_numpy(bool, na_value=False)


def known(texts: pd.Series[str]) -> npt.NDArray[np.bool_]:
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


def steps(jobs: pd.DataFrame) -> tuple[Integers, pd.Series[str]]:
    """The step of each job, worked out once for each pair of a key and a name."""
    keys, key = pd.factorize(jobs["step_key"])
    names, name = pd.factorize(jobs["name"])
    pairs = np.where(keys >= 0, keys, len(key) + names)
    result = pd.DataFrame({"step_key": [*key, *[None] * len(name)], "name": [*[None] * len(key), *name]}, dtype="str")
    codes, texts = factorized(metrics.step(result))
    return codes[pairs], texts


def grouped(first: Integers, second: Integers, many: int) -> tuple[Integers, Integers]:
    """Of two small numbers one, without gaps: of each row, and which pairs there are."""
    pairs = first * many + second
    there = np.flatnonzero(np.bincount(pairs))
    numbers = np.zeros(there[-1] + 1, np.int64)
    numbers[there] = np.arange(len(there))
    return numbers[pairs], there


# Durations


def quantiles(values: Any, left: Any) -> list[float]:
    """The percentiles of one group in seconds: of Kaplan and Meier's curve if rows left it before they ended.

    Both are ordered; `left` has the seconds by which censored rows have left.
    """
    n, many = len(values), len(values) + len(left)
    if len(left):
        at_risk = many - np.arange(n) - np.searchsorted(left, values, side="right")
        lasting = np.cumprod(1 - 1 / at_risk)
    found = []
    for p in Q:
        value = np.nan
        if many * min(p, 1 - p) >= 1 - 1e-9:
            if not len(left):
                place = (n - 1) * p
                below, above = values[int(place)], values[int(np.ceil(place))]
                value = below + (above - below) * (place - int(place))
            elif (reached := np.searchsorted(-lasting, -(1 - p) - 1e-9)) < n:
                value = values[reached]
        found.append(value)
    return found


def percentile_columns(values: list[Any], left: list[Any]) -> dict[str, Any]:
    """The percentiles of groups, without intervals."""
    found = np.array([quantiles(*one) for one in zip(values, left, strict=True)]).reshape(-1, len(Q))
    return {"p50_s": found[:, 0], "p95_s": found[:, 1]}


def _in_groups(codes: Integers, values: Any, n: Integers) -> list[Any]:
    """The ordered values of each group, after a sort by group that needs no comparisons."""
    ordered = values[np.argsort(codes.astype(np.int16), kind="stable")]
    each = np.split(ordered, np.cumsum(n)[:-1])
    for one in each:
        one.sort()
    return each


def _durations(
    codes: Integers, many: int, begun: Integers, over: Integers, counted: Any, seen: Integers
) -> dict[str, Any]:
    """Counts and percentiles; `seen` is until when a row was seen that did not end."""
    has_begun = (begun != NAT) & counted
    has_ended, has_left = has_begun & (over != NAT), has_begun & (over == NAT)
    values, own = (over - begun)[has_ended] / 1e6, codes[has_ended]
    n = np.bincount(own, minlength=many)
    censored = np.bincount(codes[has_left], minlength=many)
    negative = np.bincount(own[values < 0], minlength=many)
    left = np.floor((seen - begun)[has_left] / 1e6) + 1
    columns = percentile_columns(_in_groups(own, values, n), _in_groups(codes[has_left], left, censored))
    return {"n": n, "n_censored": censored, "n_negative": negative} | columns


def _seen(jobs: pd.DataFrame) -> Integers:
    finished = us(jobs, "finished_at")
    return np.where(finished == NAT, us(jobs, "fetched_at"), finished)


def percentiles_by_queue(jobs: pd.DataFrame) -> pd.DataFrame:
    codes, queues = factorized(jobs["queue"])
    scripts = is_any(jobs["type"], "script")
    result = _durations(codes, len(queues), us(jobs, "runnable_at"), us(jobs, "started_at"), scripts, _seen(jobs))
    return _there(pd.DataFrame({"queue": queues} | result), codes[scripts])


def _there(result: pd.DataFrame, codes: Integers) -> pd.DataFrame:
    """The groups that have rows."""
    return result[np.bincount(codes, minlength=len(result)) > 0].reset_index(drop=True)


def percentiles_by_step(jobs: pd.DataFrame) -> pd.DataFrame:
    pipeline, pipelines = factorized(jobs["pipeline"])
    step, texts = steps(jobs)
    codes, there = grouped(pipeline, step, len(texts))
    scripts = is_any(jobs["type"], "script")
    result = _durations(codes, len(there), us(jobs, "runnable_at"), us(jobs, "started_at"), scripts, _seen(jobs))
    keys = {"pipeline": pipelines[there // len(texts)].array, "step": texts[there % len(texts)].array}
    return _there(pd.DataFrame(keys | result), codes[scripts])


def trend(jobs: pd.DataFrame) -> pd.DataFrame:
    day = us(jobs, "created_at") // DAY
    first, many = day.min(), day.max() - day.min() + 1
    result = _durations(day - first, many, us(jobs, "started_at"), us(jobs, "finished_at"), True, _seen(jobs))
    return in_days(us(jobs, "fetched_at").max(), first, many, result)


def in_days(fetched_at: int, first: int, many: int, result: dict[str, Any]) -> pd.DataFrame:
    starts = (np.arange(many) + first) * DAY
    partial = starts + DAY > fetched_at
    return pd.DataFrame({"bucket": pd.DatetimeIndex(starts.view("M8[us]"), tz="UTC")} | result | {"partial": partial})


# Rates


def rated(x: Any, n: Any) -> dict[str, Any]:
    with np.errstate(invalid="ignore"):
        return {"rate": x / n}


def _settled(builds: pd.DataFrame, codes: Integers, many: int) -> dict[str, Any]:
    open_again = ~flag(builds["blocked"])
    passed, failed = (
        np.bincount(codes[open_again & is_any(builds["state"], state)], minlength=many)
        for state in ("passed", "failed")
    )
    return {"passed": passed, "failed": failed, "n": passed + failed} | rated(passed, passed + failed)


def success_rate(builds: pd.DataFrame) -> pd.DataFrame:
    codes, pipelines = factorized(builds["pipeline"])
    return pd.DataFrame({"pipeline": pipelines} | _settled(builds, codes, len(pipelines)))


def success_trend(builds: pd.DataFrame) -> pd.DataFrame:
    day = us(builds, "created_at") // DAY
    first, many = day.min(), day.max() - day.min() + 1
    return in_days(us(builds, "fetched_at").max(), first, many, _settled(builds, day - first, many))


def throughput(builds: pd.DataFrame) -> pd.DataFrame:
    created, finished = us(builds, "created_at") // DAY, us(builds, "finished_at")
    finished = finished[(finished != NAT) & ~flag(builds["blocked"])] // DAY
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
    again = known(jobs["retry_type"])
    found = pd.Index(jobs["id"].array[again]).get_indexer(first)
    kinds = np.append(jobs["retry_type"].array[again].to_numpy(object), "")[found]
    of = {name: np.bincount(codes[it], minlength=len(pipelines)) for name, it in (("n", execution), ("r", retried))}
    kind = {k: np.bincount(codes[retried][kinds == k], minlength=len(pipelines)) for k in ("automatic", "manual")}
    result = {
        "executions": of["n"],
        "retried": of["r"],
        "retried_passed": np.bincount(codes[passed], minlength=len(pipelines)),
        **kind,
        "of_unknown_kind": of["r"] - kind["automatic"] - kind["manual"],
        **rated(of["r"], of["n"]),
        **{f"{name}_rate": count / of["n"] for name, count in kind.items()},
    }
    return pd.DataFrame({"pipeline": pipelines} | result)
