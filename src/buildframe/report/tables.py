"""Select the rows of the page's tables, in their order. Does not know how they are shown."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pandas as pd

from buildframe.report.comparison_tables import (
    COMPARISONS,
    Urls,
    draw_causes,
    draw_intervals,
    select_changes,
    side_by_side,
)
from buildframe.report.content import STATUSES, Report
from buildframe.report.explanations import explain_changes
from buildframe.report.thresholds import judge

_MAX_ROWS = 40
_MAX_UNCHANGED = 10
_TOP = 10
_LEAST_PROBABILITY = 0.05
"""Steps that are flaky with a lower probability are not shown."""

_STATUSES = ("new", "reopened", "active", "quiet", "resolved")


def select_rows(report: Report) -> dict[str, dict[str, Any]]:
    """Return the `rows` of each table of the page, the number that is hidden, and what its title or note contains."""
    measured = report.measurements
    compared = {name: side_by_side(report, name) for name in COMPARISONS}
    urls = _build_urls(report.builds)
    wall_time = compared["wall_time"]
    changed = wall_time.loc[_is_changed(wall_time), "pipeline"]
    rows = {
        "level_changes": select_changes(report, urls),
        "wall_time": _first(_changed_first(wall_time, "n")),
        "explanation": draw_causes(_explanation(measured.explanation, changed)),
        "step_time": _steps(compared["step_time"]),
        "success": _first(_changed_first(compared["success"], "n")),
        "step_failures": _failures(compared["step_failures"]),
        "outages": _outages(measured.outages, urls),
        "queue_time": _first(_changed_first(compared["queue_time"], "p95_s"), _MAX_ROWS // 2),
        "load": _first(measured.load),
        "waste": _first(measured.waste.sort_values("machine_s", ascending=False)),
        "objectives": select_objectives(measured.objectives),
        "cost": select_cost(measured.cost),
        "flake_scores": _flake_scores(measured.flake_scores),
        "flaky_tests": _flaky_tests(measured.flaky_tests),
    }
    return rows | {name: draw_intervals(rows[name], comparison) for name, comparison in COMPARISONS.items()}


def select_broken(report: Report) -> list[dict[str, Any]]:
    """Return a sentence for each default branch that is broken now, with its first failed build and its page."""
    outages = report.measurements.outages
    rows = outages[outages["open"].astype(bool)].sort_values("failed_at").to_dict("records")
    urls = _build_urls(report.builds)
    broken = []
    for text, row in itertools.zip_longest(report.broken, rows[: len(report.broken)], fillvalue=None):
        number = None if row is None else row["first_number"]
        url = None if row is None else urls.get((row["pipeline"], number))
        broken.append({"text": text, "number": number, "url": url})
    return broken


def _build_urls(builds: pd.DataFrame) -> Urls:
    return dict(zip(zip(builds["pipeline"], builds["number"], strict=True), builds["web_url"], strict=True))


def _first(table: pd.DataFrame, max_rows: int = _MAX_ROWS) -> dict[str, Any]:
    return {"rows": table.head(max_rows).to_dict("records"), "n_hidden": max(0, len(table) - max_rows)}


def _is_changed(table: pd.DataFrame) -> pd.Series[bool]:
    """Return which rows have a reported change."""
    return (table.filter(like="direction") != "").any(axis=1)


def _changed_first(table: pd.DataFrame, of: str) -> pd.DataFrame:
    """Return the rows with a reported change first, then the others by the column `of`, largest first."""
    is_changed = _is_changed(table)
    return pd.concat([table[is_changed], table[~is_changed].sort_values(of, ascending=False, kind="stable")])


def _explanation(table: pd.DataFrame, changed: pd.Series[str]) -> dict[str, Any]:
    """Return what the time of each pipeline with a reported change went to, in the order of the changes."""
    explained = explain_changes(table, changed)
    shown = [explained[name].assign(pipeline=name) for name in changed if name in explained]
    n_open = sum(int(rows["n_open"].iloc[0]) for rows in shown)
    return _first(pd.concat(shown) if shown else table.iloc[:0], 2 * _MAX_ROWS) | {"n_open": n_open}


def _steps(table: pd.DataFrame) -> dict[str, Any]:
    is_changed = _is_changed(table)
    changed, others = table[is_changed], table[~is_changed]
    largest = others["p50_change_s"].abs().sort_values(ascending=False).dropna().index[:_MAX_UNCHANGED]
    rows = pd.concat([changed, others.loc[largest]])
    return _first(rows) | {"n_changed": len(changed), "n_others": len(largest)}


def _failures(table: pd.DataFrame) -> dict[str, Any]:
    is_changed = _is_changed(table)
    rows = _changed_first(table[is_changed | (table["failed"] > 0)], "failed")
    return _first(rows, int(is_changed.sum()) + _MAX_UNCHANGED)


def select_objectives(table: pd.DataFrame) -> dict[str, Any]:
    """Return the objectives with their `status`, the worst first."""
    if table.empty:
        return _first(table)
    status = [judge(*row) for row in zip(-table["share"], -table["high"], -table["target"], strict=True)]
    judged = table.assign(status=status)
    return _first(judged.sort_values("status", key=lambda one: one.map(STATUSES.index), kind="stable"))


def select_cost(table: pd.DataFrame) -> dict[str, Any]:
    """Return the most expensive pipelines first, with their total and that of jobs without a rate."""
    if table.empty:
        return _first(table)
    totals = {name: table[name].sum() for name in ("cost", "wasted_cost", "n_no_rate", "no_rate_s")}
    unused = list(table.attrs.get("unused_rates", []))
    return _first(table.sort_values("cost", ascending=False, kind="stable")) | totals | {"unused": unused}


def _flake_scores(table: pd.DataFrame) -> dict[str, Any]:
    """Return the steps that may well be flaky; others with flips are counted as hidden."""
    is_shown = table["p_above"] > _LEAST_PROBABILITY
    shown, others = _first(table[is_shown], _TOP), int((~is_shown & (table["flaky"] > 0)).sum())
    return shown | {"n_hidden": shown["n_hidden"] + others, "n_storm": int(table["n_storm"].sum())}


def _outages(table: pd.DataFrame, urls: Urls) -> dict[str, Any]:
    """Return open outages first, with the pages of the builds before them, at their start, and at their end."""
    shown = _first(table.sort_values(["open", "seen_s"], ascending=False), int(table["open"].sum()) + _MAX_UNCHANGED)
    for row in shown["rows"]:
        for number in ("last_good_number", "first_number", "fixed_by"):
            row[f"{number}_url"] = urls.get((row["pipeline"], row[number]))
    return shown


def _flaky_tests(table: pd.DataFrame) -> dict[str, Any]:
    if table.empty:
        return _first(table)
    order = table.assign(order=table["status"].map(_STATUSES.index))
    ranked = order.sort_values(["order", "instances"], ascending=[True, False], kind="stable")
    shown = _first(ranked, _TOP)
    for row in shown["rows"]:
        row["owners"] = _team_ids(row.get("ownership_team_ids"))
    is_open = any(not row["known_since"] for row in shown["rows"])
    has_owners = any(row["owners"] for row in shown["rows"])
    return shown | {"statuses": _STATUSES, "is_open": is_open, "has_owners": has_owners}


def _team_ids(text: object) -> str:
    """Return the first digits of the UUIDs in a list as JSON; the store has no names of teams."""
    ids = msgspec.json.decode(text) if isinstance(text, str) and text else []
    return ", ".join(str(id)[:8] for id in ids) if isinstance(ids, list) else ""
