"""Decide which change of each pipeline, step and queue a report names. Headline, findings, tables and plots follow it.

Knows tables, not texts.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from buildframe.metrics.columns import Flags

_LAST = "last "
"""Prefix of the columns of the last change point."""

_TOPICS: dict[str, tuple[tuple[str, ...], str | None, int]] = {
    "wall_time": (("p50_",), "wall_time_changes", 1),
    "step_time": (("p50_",), "step_changes", 1),
    "queue_time": (("p95_", "p50_"), None, 1),
    "success": (("",), "failure_changes", -1),
    "step_failures": (("",), "step_failure_changes", 1),
}
"""Prefixes of columns by table, the table of change points, and -1 if these are about the opposite."""

PREFIXES = {name: prefixes for name, (prefixes, _, _) in _TOPICS.items()}
"""Prefixes of the columns of tests, by table of comparisons."""


def reported(tables: Mapping[str, pd.DataFrame], name: str) -> pd.DataFrame:
    """
    Return a table of comparisons, followed by those of the whole history that show what the periods do not.

    Rows with a reported change come first, larger ones before smaller ones. Each pipeline, step or queue has one at
    most: the difference of the periods; or else the last change point of the history; or else the difference of the
    history and as many days before. A row with a change point that no difference shows has the levels and counts of
    before and since it, each up to the next change point. A change of a step or queue that contradicts a cause of a
    pipeline's change is not reported.

    Parameters
    ----------
    tables : mapping of str to DataFrame
        Tables of the report, as `Measurements.tables` returns them. `explanation` may be missing.
    name : {"wall_time", "step_time", "queue_time", "success", "step_failures"}
        Table of comparisons.

    Returns
    -------
    DataFrame
        The columns of the table, and

        ============= ================== ==========================================================================
        direction     str                "up" or "down" if a change of the value is reported; "" otherwise. Has the
                                         prefix of the columns of the value, such as `p50_`
        is_compared   bool               the difference of two periods is reported
        is_long       bool               the row compares the history with as many days before
        since         datetime64[us, tz] day of the last change point, if it is reported
        last ...      any                columns of this change point
        ============= ================== ==========================================================================
    """
    prefixes, changes, sign = _TOPICS[name]
    causes = _causes(tables, name)
    table, long = (_with_directions(tables[prefix + name], prefixes, causes) for prefix in ("", "long_"))
    if changes is not None:
        last = lasting_changes(tables[changes])
        if name == "step_time":
            last = last[~_contradict(last.assign(part="run"), last["p50_change_s"] > 0, causes)]
        table = _with_change_points(table, last, prefixes[0], sign)
    keys = [key for key in ("queue", "pipeline", "step", "part") if key in table]
    is_silent = (table[_directions(prefixes)] == "").all(axis=1)
    rows = table.assign(is_long=False)
    if long["is_compared"].any():
        own = long[long["is_compared"]].merge(table.loc[is_silent, keys], on=keys)
        rows = pd.concat([rows, own.assign(is_long=True)], ignore_index=True)
    if "since" not in rows:
        rows["since"] = pd.NaT
    return rows.loc[_order(rows, prefixes)].reset_index(drop=True)


def lasting_changes(changes: pd.DataFrame) -> pd.DataFrame:
    """Return the last change point of each group that is significant among all tests of the report and lasts.

    A change lasts unless later ones, significant or not, undid more than half of it.
    """
    keys, level = [name for name in ("pipeline", "step") if name in changes], _level(changes)
    before, after = changes[level.format("before")], changes[level.format("after")]
    now = after.groupby([changes[key] for key in keys], dropna=False).transform("last") if keys else after
    lasts = (now - before) * np.sign(after - before) >= (after - before).abs() / 2
    return changes[changes["notable"].astype(bool) & lasts].drop_duplicates(keys, keep="last")


def _level(changes: pd.DataFrame) -> str:
    """Return the pattern of the columns of levels: of medians or of rates."""
    return "p50_{}_s" if "p50_change_s" in changes else "rate_{}"


def _directions(prefixes: tuple[str, ...]) -> list[str]:
    return [f"{prefix}direction" for prefix in prefixes]


def _change_of(table: pd.DataFrame, prefix: str) -> pd.Series[float]:
    return table[f"{prefix}change_s" if prefix else "change"]


def _causes(tables: Mapping[str, pd.DataFrame], name: str) -> pd.DataFrame:
    """Return the causes of reported changes of pipelines that are steps or queues of this table."""
    explanation = tables.get("explanation", pd.DataFrame())
    if explanation.empty or name not in ("step_time", "queue_time"):
        return pd.DataFrame(columns=["pipeline", "step", "queue", "part", "change_s"])
    causes = explanation[explanation["notable"].astype(bool)].rename(columns={"kind": "part"})
    return causes if name == "step_time" else causes[causes["part"] == "queue"]


def _contradict(rows: pd.DataFrame, is_up: pd.Series[bool], causes: pd.DataFrame) -> Flags:
    """Return which rows are steps or queues that are causes of changes in the other direction only."""
    if causes.empty:
        return np.zeros(len(rows), bool)
    keys = ["pipeline", "step", "part"] if "part" in rows else ["queue"]
    ways = causes.assign(up=causes["change_s"] > 0, down=causes["change_s"] < 0).groupby(keys)[["up", "down"]].any()
    known = rows[keys].merge(ways, how="left", left_on=keys, right_index=True)
    up, down = (known[way].fillna(value=False).to_numpy(bool) for way in ("up", "down"))
    contradict: Flags = np.where(is_up, down & ~up, up & ~down)
    return contradict


def _with_directions(table: pd.DataFrame, prefixes: tuple[str, ...], causes: pd.DataFrame) -> pd.DataFrame:
    """Add the directions of significant differences that contradict no cause, and whether there is any."""
    for prefix in prefixes:
        is_up = _change_of(table, prefix) > 0
        is_reported = table[f"{prefix}notable"].to_numpy(bool) & ~_contradict(table, is_up, causes)
        table = table.assign(**{f"{prefix}direction": np.where(is_reported, np.where(is_up, "up", "down"), "")})
    return table.assign(is_compared=(table[_directions(prefixes)] != "").any(axis=1))


def _with_change_points(table: pd.DataFrame, last: pd.DataFrame, prefix: str, sign: int) -> pd.DataFrame:
    """Add the last change point of each group, unless a significant difference has the other direction."""
    keys = [name for name in ("pipeline", "step") if name in last]
    named = last.add_prefix(_LAST).rename(columns={_LAST + key: key for key in keys})
    of_rows = table[keys].merge(named, how="left", on=keys).set_axis(table.index).drop(columns=keys)
    size = _LAST + _level(last).format("change")
    direction, own = table[f"{prefix}direction"], np.where(sign * of_rows[size] > 0, "up", "down")
    is_known = of_rows[f"{_LAST}at"].notna() & ((direction == "") | (direction == own))
    if "part" in table:
        is_known &= table["part"] == "run"
    known = table.join(of_rows.where(is_known)).assign(since=of_rows[f"{_LAST}at"].where(is_known))
    known = known.assign(**{f"{prefix}direction": np.where(is_known, own, direction)})
    is_replaced = is_known & ~known["is_compared"]
    if is_replaced.any():
        levels = _levels_of_changes(known[is_replaced], prefix, sign)
        known[levels.columns] = levels.combine_first(known[levels.columns].mask(is_replaced))
    return known


def _levels_of_changes(rows: pd.DataFrame, prefix: str, sign: int) -> pd.DataFrame:
    """Return the columns of a comparison of before and since the last change point, in place of the periods."""
    n = {"n": rows[f"{_LAST}n_after"].astype("Int64"), "n_before": rows[f"{_LAST}n_before"].astype("Int64")}
    if prefix:
        ends = {"s": "after_s"} | {end: end for end in ("before_s", "change_s", "change_low_s", "change_high_s")}
        levels = {prefix + name: rows[f"{_LAST}p50_{end}"] for name, end in ends.items()}
        unknown = {f"{prefix}{name}at_least_s": np.nan for name in ("", "before_")}
        return pd.DataFrame(n | levels | unknown, index=rows.index)
    rate, before = (rows[f"{_LAST}rate_{side}"] for side in ("after", "before"))
    low, high = (sign * rows[f"{_LAST}rate_change_{end}"] for end in (("low", "high") if sign > 0 else ("high", "low")))
    if sign < 0:
        rate, before = 1 - rate, 1 - before
    counted = "failed" if sign > 0 else "passed"
    counts = {counted: (rate * n["n"]).round().astype("Int64")}
    counts[f"{counted}_before"] = (before * n["n_before"]).round().astype("Int64")
    levels = {"rate": rate, "rate_before": before, "change": rate - before, "low": low, "high": high}
    return pd.DataFrame(n | counts | levels, index=rows.index)


def _order(rows: pd.DataFrame, prefixes: tuple[str, ...]) -> pd.Index:
    """Return the order: rows with a reported change first, those with a significant difference before others."""
    is_reported = (rows[_directions(prefixes)] != "").any(axis=1)
    size = _change_of(rows, prefixes[0]).abs().where(is_reported, 0.0)
    keys = pd.DataFrame({"reported": is_reported, "compared": rows["is_compared"], "size": size})
    return keys.sort_values(["reported", "compared", "size"], ascending=False, kind="stable").index
