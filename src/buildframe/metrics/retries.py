"""Decide which kind of retry made each attempt, for every metric.

The rule is that of `buildframe.spec.job_columns`: a new attempt says it in its `retry_source`. If
it does not, the attempt that its retry replaced says it in its `retry_type`. The `retry_type` of an
attempt says nothing about its own origin. Fetched frames have the result as `retry_of_type`; for
other frames it is derived here.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from buildframe.metrics.columns import TEXT, Integers, require_columns
from buildframe.metrics.engines.rows import GroupedRows, Rows
from buildframe.spec.job_columns import compute_in_frame

ATTEMPT = "retry_of_job_id"
KIND = "retry_of_type"

COLUMNS = (ATTEMPT, KIND, "retry_source", "retry_type")
"""Columns of jobs that say how they were retried, besides `retried_in_job_id`.

Each may be missing.
"""

KINDS = ("automatic", "manual")

_NUMBER = "number of the kind"
_KEY = "id of an attempt"


def check_have_kinds(available: Collection[str]) -> None:
    """Raise BadInput if no column of a frame says which kind of retry made an attempt."""
    if not {KIND, "retry_source", "retry_type"} & {*available}:
        require_columns(available, [KIND])


def with_retries(jobs: pd.DataFrame) -> pd.DataFrame:
    """Return jobs with both `ATTEMPT` and `KIND`.

    Values that are missing are derived from the other columns.
    """
    known = {name: _texts(jobs, name) for name in (ATTEMPT, KIND)}
    rows = _find_underived(jobs, known[ATTEMPT].notna() & known[KIND].notna())
    if len(rows):
        chosen = jobs.take(rows)
        if "retry_source" in chosen:
            chosen = chosen.assign(retry_source=chosen["retry_source"].map(_as_json, na_action="ignore"))
        for name, derived in compute_in_frame(chosen, (ATTEMPT, KIND)).items():
            values = known[name].astype(object).to_numpy(copy=True)
            own = known[name].isna().to_numpy()[rows]
            values[rows[own]] = derived.astype(object).to_numpy()[own]
            known[name] = pd.Series(values, jobs.index, dtype=TEXT)
    return jobs.assign(**known)


def _texts(jobs: pd.DataFrame, name: str) -> pd.Series[str]:
    return jobs[name].astype(TEXT) if name in jobs else pd.Series(None, jobs.index, dtype=TEXT)


def _find_underived(jobs: pd.DataFrame, is_known: pd.Series[bool]) -> Integers:
    """Return the rows of all attempts that were retried, and of retries that are not fully known.

    Fetched frames have none, and then the ids of all jobs are not searched.
    """
    successors = _texts(jobs, "retried_in_job_id")
    is_retried = successors.notna()
    has_source = _has_value(jobs, "retry_source")
    ids = jobs["id"]
    if successors[is_retried].isin(ids[is_known]).all() and not (has_source & ~is_known).any():
        return np.zeros(0, np.int64)
    is_retry = ids.isin(successors[is_retried]) | has_source
    if not (is_retry & ~is_known).any():
        return np.zeros(0, np.int64)
    return np.flatnonzero(is_retried | is_retry)


def _has_value(jobs: pd.DataFrame, name: str) -> pd.Series[bool]:
    return jobs[name].notna() if name in jobs else pd.Series(False, jobs.index)


def _as_json(source: Any) -> Any:
    """Return a `retry_source` as JSON; custom frames may hold it as a dict."""
    return json.dumps(source) if isinstance(source, Mapping) else source


def with_kinds_performed(retried: GroupedRows, jobs: Rows) -> GroupedRows:
    """Add the flags `KINDS` to jobs that were retried: which kind of retry replaced them.

    Both are false if unknown.

    `retried` has `id`, `retried_in_job_id` and, if known, `retry_type`. `jobs` are all jobs with
    `id` and those of `COLUMNS` that are known. Only new attempts are joined, because a join of all
    jobs is slow.
    """
    names = jobs.collect_schema().names()
    rows = retried.frame
    performed = []
    if {KIND, "retry_source"} & {*names}:
        successors = _select_successors(jobs, names)
        rows = _join_first(rows, successors, "retried_in_job_id", "id")
        performed.append(nw.col(_numbered("id")))
        if ATTEMPT in names:  # some attempts only say that they were retried
            rows = _join_first(rows, successors, "id", ATTEMPT)
            performed.append(nw.col(_numbered(ATTEMPT)))
    if "retry_type" in names:
        performed.append(_number_kind("retry_type"))
    number = nw.coalesce(*performed)
    kinds = {kind: (number == i).fill_null(False) for i, kind in enumerate(KINDS)}
    return replace(retried, frame=rows.with_columns(**kinds))


def _select_successors(jobs: Rows, names: Collection[str]) -> Rows:
    """Return the attempts that say which kind of retry made them, with the number of the kind."""
    sources = [name for name in (KIND, "retry_source") if name in names]
    informative = jobs.filter(nw.any_horizontal(*(~nw.col(name).is_null() for name in sources), ignore_nulls=False))
    numbers = {KIND: _number_kind(KIND), "retry_source": _number_source()}
    keys = [name for name in ("id", ATTEMPT) if name in names]
    numbered = informative.select(*keys, **{_NUMBER: nw.coalesce(*(numbers[name] for name in sources))})
    return numbered.filter(~nw.col(_NUMBER).is_null())


def _join_first(rows: Rows, successors: Rows, on: str, key: str) -> Rows:
    """Add the number of the kind of the successors whose `key` is the value of `on`.

    Numbers join faster than texts.
    """
    known = successors.filter(~nw.col(key).is_null())
    numbers = known.group_by(nw.col(key).cast(nw.String).alias(_KEY)).agg(nw.col(_NUMBER).max())
    keyed = rows.with_columns(**{_KEY: nw.col(on).cast(nw.String)})  # a column of nulls has no type in some engines
    return keyed.join(numbers.rename({_NUMBER: _numbered(key)}), on=_KEY, how="left").drop(_KEY)


def _numbered(key: str) -> str:
    return f"{_NUMBER} by {key}"


def _number_kind(name: str) -> nw.Expr:
    """Return the place of a kind in `KINDS`, null for another value."""
    automatic, manual = (nw.col(name) == kind for kind in KINDS)
    return nw.when(automatic).then(nw.lit(0)).otherwise(nw.when(manual).then(nw.lit(1)))


def _number_source() -> nw.Expr:
    """Return the same of the JSON in `retry_source`, which not every engine can decode.

    Single quotes are those of a dict in a custom frame, which was converted to text.
    """
    source = nw.col("retry_source")
    automatic, manual = (source.str.contains(f"""["']retry_type["']: *["']{kind}["']""") for kind in KINDS)
    return nw.when(automatic).then(nw.lit(0)).otherwise(nw.when(manual).then(nw.lit(1)))
