"""Peers of the summaries on pandas: numpy code, each function for one question and one kind of frame.

No checks, no other zones, no other columns; where a trick of the library is the best there is, it is here, too.
Each gives the columns of the summary of its name.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import binom

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


class Ranks(NamedTuple):
    """Of each group the places, counted from 0, of what lies around each percentile and at the ends of its interval."""

    wanted: Integers
    """A row a group: below p50, p95; above; lower ends; upper ends; -1 where there is none."""
    share: Any
    enough: Any

    @classmethod
    def of(cls, n: Integers) -> Ranks:
        size, p = n[:, None], np.array(Q)
        place = np.maximum(size - 1, 0) * p
        low = binom.ppf(0.025, size, p).astype(np.int64) - 1
        high = binom.ppf(0.975, size, p).astype(np.int64)
        below = np.floor(place).astype(np.int64)
        enough = size * np.minimum(p, 1 - p) >= 1 - 1e-9
        ranks = np.concatenate([below, np.ceil(place).astype(np.int64), low, high], axis=1)
        ranks = np.where((ranks >= 0) & (ranks < size) & np.tile(enough, 4), ranks, -1)
        return cls(ranks, place - below, enough)

    def columns(self, found: Any) -> dict[str, Any]:
        """The values at these places, in seconds, as columns."""
        below, above, low, high = np.split(found, 4, axis=1)
        middle = np.where(self.enough, below + (above - below) * self.share, np.nan)
        ends = {
            f"p{p}_{end}_s": one[:, i] for i, p in enumerate((50, 95)) for end, one in (("low", low), ("high", high))
        }
        return {"p50_s": middle[:, 0], "p95_s": middle[:, 1]} | ends


def _quantiles(codes: Integers, values: Integers, n: Integers) -> dict[str, Any]:
    """A partition finds ranks, group by group, after a sort by group that needs no comparisons."""
    ranks = Ranks.of(n)
    ordered = values[np.argsort(codes.astype(np.int16), kind="stable")]
    found = np.full(ranks.wanted.shape, np.nan)
    for i, (stop, size) in enumerate(zip(np.cumsum(n).tolist(), n.tolist(), strict=True)):
        wanted = ranks.wanted[i]
        if (wanted >= 0).any():
            part = ordered[stop - size : stop]
            part.partition(np.unique(wanted[wanted >= 0]))
            found[i] = np.where(wanted >= 0, part[wanted] / 1e6, np.nan)
    return ranks.columns(found)


def _durations(codes: Integers, many: int, begun: Integers, over: Integers, counted: Any) -> dict[str, Any]:
    has_begun = (begun != NAT) & counted
    has_ended = has_begun & (over != NAT)
    values, own = (over - begun)[has_ended], codes[has_ended]
    n = np.bincount(own, minlength=many)
    censored = np.bincount(codes[has_begun], minlength=many) - n
    negative = np.bincount(own[values < 0], minlength=many)
    return {"n": n, "n_censored": censored, "n_negative": negative} | _quantiles(own, values, n)


def percentiles_by_queue(jobs: pd.DataFrame) -> pd.DataFrame:
    codes, queues = factorized(jobs["queue"])
    scripts = is_any(jobs["type"], "script")
    result = _durations(codes, len(queues), us(jobs, "runnable_at"), us(jobs, "started_at"), scripts)
    return _there(pd.DataFrame({"queue": queues} | result), codes[scripts])


def _there(result: pd.DataFrame, codes: Integers) -> pd.DataFrame:
    """The groups that have rows."""
    return result[np.bincount(codes, minlength=len(result)) > 0].reset_index(drop=True)


def percentiles_by_step(jobs: pd.DataFrame) -> pd.DataFrame:
    pipeline, pipelines = factorized(jobs["pipeline"])
    step, texts = steps(jobs)
    codes, there = grouped(pipeline, step, len(texts))
    scripts = is_any(jobs["type"], "script")
    result = _durations(codes, len(there), us(jobs, "runnable_at"), us(jobs, "started_at"), scripts)
    keys = {"pipeline": pipelines[there // len(texts)].array, "step": texts[there % len(texts)].array}
    return _there(pd.DataFrame(keys | result), codes[scripts])


def trend(jobs: pd.DataFrame) -> pd.DataFrame:
    day = us(jobs, "created_at") // DAY
    first, many = day.min(), day.max() - day.min() + 1
    result = _durations(day - first, many, us(jobs, "started_at"), us(jobs, "finished_at"), True)
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
