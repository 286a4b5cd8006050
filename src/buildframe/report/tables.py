"""Select the rows of the page's tables, in their order. Does not know how they are shown."""

from __future__ import annotations

from typing import Any

import pandas as pd

from buildframe.report.content import Report
from buildframe.report.findings import date_changes, recent_changes, significant

_MAX_ROWS = 40
_MAX_UNCHANGED = 10
_TOP = 10
_STATUSES = ("new", "reopened", "active", "dormant", "resolved")


def select_rows(report: Report) -> dict[str, dict[str, Any]]:
    """Return the `rows` of each table of the page, the number that is hidden, and what its title or note contains."""
    measured, recent = report.measurements, report.period.before.start
    wall_time = date_changes(measured.wall_time, recent_changes(measured.wall_time_changes, recent))
    step_time = date_changes(measured.step_time, recent_changes(measured.step_changes, recent))
    flips, waste = measured.flips, measured.waste
    return {
        "wall_time": _first(_changed_first(wall_time, "p50_change", "n")),
        "step_time": _steps(step_time),
        "success": _first(_changed_first(measured.success, "change", "n")),
        "step_failures": _failures(measured.step_failures),
        "outages": _outages(measured.outages, report.builds),
        "queue_time": _first(_changed_first(measured.queue_time, "p95_change", "p95_s"), _MAX_ROWS // 2),
        "load": _first(measured.load),
        "waste": _first(waste.sort_values("machine_s", ascending=False)),
        "flips": _first(flips[flips["flaky"] > 0], _TOP),
        "flaky_tests": _flaky_tests(measured.flaky_tests),
    }


def _first(table: pd.DataFrame, max_rows: int = _MAX_ROWS) -> dict[str, Any]:
    return {"rows": table.head(max_rows).to_dict("records"), "n_hidden": max(0, len(table) - max_rows)}


def _changed_first(table: pd.DataFrame, name: str, of: str) -> pd.DataFrame:
    """Return the rows with significant changes first, then the others by the column `of`, largest first."""
    rows = _changed(table, name)
    return pd.concat([rows, table.drop(rows.index).sort_values(of, ascending=False, kind="stable")])


def _changed(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return the rows with a significant difference of the periods, then those with a change within them."""
    rows = significant(table, name)
    dated = table.drop(rows.index).dropna(subset="since") if "since" in table else table.iloc[:0]
    return pd.concat([rows, dated])


def _steps(table: pd.DataFrame) -> dict[str, Any]:
    changed = _changed(table, "p50_change")
    largest = table["p50_change_s"].abs().sort_values(ascending=False).dropna().index
    others = table.loc[largest.difference(changed.index, sort=False)].head(_MAX_UNCHANGED)
    return _first(pd.concat([changed, others])) | {"n_changed": len(changed), "n_others": len(others)}


def _failures(table: pd.DataFrame) -> dict[str, Any]:
    changed = significant(table, "change").index
    rows = _changed_first(table, "change", "failed")
    return _first(rows[(rows["failed"] > 0) | rows.index.isin(changed)], len(changed) + _MAX_UNCHANGED)


def _outages(table: pd.DataFrame, builds: pd.DataFrame) -> dict[str, Any]:
    """Return open outages first, with the pages of the builds before them, at their start, and at their end."""
    keys = builds[["organization", "pipeline", "number"]].itertuples(index=False, name=None)
    urls = dict(zip(keys, builds["web_url"], strict=True))
    shown = _first(table.sort_values(["open", "seen_s"], ascending=False), int(table["open"].sum()) + _MAX_UNCHANGED)
    for row in shown["rows"]:
        for number in ("last_good_number", "first_number", "fixed_by"):
            row[f"{number}_url"] = urls.get((row["organization"], row["pipeline"], row[number]))
    return shown


def _flaky_tests(table: pd.DataFrame) -> dict[str, Any]:
    if table.empty:
        return _first(table)
    order = table.assign(order=table["status"].map(_STATUSES.index))
    ranked = order.sort_values(["order", "instances"], ascending=[True, False], kind="stable")
    return _first(ranked, _TOP) | {"statuses": _STATUSES}
