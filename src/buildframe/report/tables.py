"""Format the measurements as tables of text for the page. Does not know HTML."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from buildframe.formatting import (
    format_count,
    format_duration,
    format_minutes,
    format_percent,
    format_points,
    format_timestamp,
    truncate_middle,
)
from buildframe.report.content import Report
from buildframe.report.findings import Row, significant, to_rows
from buildframe.templates import web_link

_MAX_NAME = 120
"""Characters of a name in a table, so that a row has few lines."""

_MAX_ROWS = 40
_MAX_UNCHANGED = 10
_TOP = 10


@dataclass(frozen=True)
class Cell:
    """Hold the text of a cell, its kind (`name` is untrusted text, `number`, or `text`), and an optional link."""

    text: str
    kind: str = "number"
    link: str | None = None


@dataclass(frozen=True)
class PageTable:
    """Hold a table of the page: `heads` are pairs of title and kind, `more` counts the rows that are not shown."""

    name: str
    title: str
    note: str
    heads: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[Cell]]
    more: str = ""


def format_tables(report: Report) -> list[PageTable]:
    """Return all tables of the page that have rows."""
    makers = (_wall_time, _steps, _success, _failures, _outages, _queues, _load, _waste, _flips, _flaky_tests)
    return [table for maker in makers if (table := maker(report)).rows]


def format_interval(low: float, high: float, format: Callable[[float], str]) -> str:
    """ "from −2.1 to 4.0"; "unknown" where both ends are."""
    ends = [f"from {format(low)}" if pd.notna(low) else "", f"to {format(high)}" if pd.notna(high) else ""]
    return " ".join(filter(None, ends)) if all(ends) else "; ".join([*filter(None, ends), "unknown"])


def changed_first(table: pd.DataFrame, name: str, of: str) -> pd.DataFrame:
    """Return the rows with significant changes first, then the others by the column `of`, largest first."""
    rows = significant(table, name)
    return pd.concat([rows, table.drop(rows.index).sort_values(of, ascending=False, kind="stable")])


def _table(name: str, title: str, note: str, heads: str, table: pd.DataFrame, cells: Callable[[Row], Iterable[Cell]],
           max_rows: int = _MAX_ROWS) -> PageTable:  # fmt: skip
    """Build a table. `heads` are separated by `|`; a head with `#` marks a column of numbers."""
    rows = [list(cells(row)) for row in to_rows(table.head(max_rows))]
    named = [(head.strip("# "), "number" if "#" in head else "text") for head in heads.split("|")]
    hidden = len(table) - len(rows)
    more = f"{format_count(hidden, 'further row')} in numbers/{name}.parquet" if hidden else ""
    return PageTable(name, title, note, named, rows, more)


def _name(value: object, link: str | None = None) -> Cell:
    has_name = isinstance(value, str) and value.strip()
    return Cell(truncate_middle(str(value), _MAX_NAME), "name", link) if has_name else Cell("(no name)", "text")


def _count(value: Any) -> Cell:
    return Cell(f"{int(value):,}")


def _direction(low: float, high: float, more: str, less: str) -> Cell:
    """Return whether the change is significant, and its direction."""
    word = f"▲ {more}" if low > 0 else f"▼ {less}" if high < 0 else "no" if pd.notna(low + high) else "unknown"
    return Cell(word, "text")


def _percentile(row: Row, name: str, format: Callable[[float], str]) -> list[Cell]:
    """Return the cells with the value, the value before, and the interval of the change."""
    low, high = (row[f"{name}_change_{end}_s"] for end in ("low", "high"))
    values = [Cell(format(row[f"{name}_s"])), Cell(format(row[f"{name}_before_s"]))]
    return [*values, Cell(format_interval(low, high, format))]


def _duration_direction(row: Row, name: str) -> Cell:
    return _direction(row[f"{name}_change_low_s"], row[f"{name}_change_high_s"], "longer", "shorter")


def _wall_time(report: Report) -> PageTable:
    def cells(row: Row) -> Iterable[Cell]:
        counts = [_count(row["n"]), _count(row["n_before"])]
        percentiles = [*_percentile(row, "p50", format_minutes), *_percentile(row, "p95", format_minutes)]
        return [_name(row["pipeline"]), _duration_direction(row, "p50"), *counts, *percentiles]

    table = changed_first(report.measurements.wall_time, "p50_change", "n")
    note = "Wall time of passed builds. A 95th percentile needs at least 20 builds, and its interval more."
    if blocked := int(report.measurements.wall_time["n_censored"].sum()):
        note += f" {format_count(blocked, 'blocked build')} excluded because they can continue."
    heads = "pipeline|significant|# builds|# before|# median (min)|# before (min)|# change (min)|" \
            "# p95 (min)|# before (min)|# change (min)"  # fmt: skip
    return _table("wall_time", "Wall time of builds", note, heads, table, cells)


def _steps(report: Report) -> PageTable:
    def cells(row: Row) -> Iterable[Cell]:
        part = Cell("run time" if row["part"] == "run" else "queue time", "text")
        counts = [_count(row["n"]), _count(row["n_before"])]
        return [_name(row["pipeline"]), _name(row["step"]), part, _duration_direction(row, "p50"), *counts,
                *_percentile(row, "p50", format_duration)]  # fmt: skip

    table = report.measurements.step_time
    changed = significant(table, "p50_change")
    moved = (
        table["p50_change_s"].abs().sort_values(ascending=False).dropna().index.difference(changed.index, sort=False)
    )
    others = table.loc[moved].head(_MAX_UNCHANGED)
    title = "Steps that changed" if len(changed) else "Steps: no significant change"
    note = f"Medians of passed jobs. Significant changes first, then the {len(others)} largest other differences."
    heads = "pipeline|step|of|significant|# jobs|# before|# median|# before|# change"
    return _table("step_time", title, note, heads, pd.concat([changed, others]), cells)


def _rates(row: Row, counted_column: str) -> list[Cell]:
    rates = [Cell(format_percent(row["rate"])), Cell(format_percent(row["rate_before"]))]
    share = [Cell(f"{row[f'{counted_column}{end}']:,} of {row[f'n{end}']:,}") for end in ("", "_before")]
    return [
        share[0],
        rates[0],
        share[1],
        rates[1],
        Cell(format_interval(row["low"], row["high"], format_points)),
    ]


def _success(report: Report) -> PageTable:
    def cells(row: Row) -> Iterable[Cell]:
        return [_name(row["pipeline"]), _direction(row["low"], row["high"], "higher", "lower"),
                *_rates(row, "passed")]  # fmt: skip

    table = changed_first(report.measurements.success, "change", "n")
    heads = "pipeline|significant|# passed|# rate|# passed before|# rate before|# change (points)"
    note = "Passed builds among those that passed or failed. Canceled and unfinished builds are excluded."
    return _table("success", "Success rate", note, heads, table, cells)


def _failures(report: Report) -> PageTable:
    def cells(row: Row) -> Iterable[Cell]:
        return [_name(row["pipeline"]), _name(row["step"]), _direction(row["low"], row["high"], "higher", "lower"),
                *_rates(row, "failed")]  # fmt: skip

    table = changed_first(report.measurements.step_failures, "change", "failed")
    changed = significant(table, "change").index
    table = table[(table["failed"] > 0) | table.index.isin(changed)]
    heads = "pipeline|step|significant|# failed|# share|# failed before|# share before|# change (points)"
    note = "Attempts that failed or timed out among those that finished. Soft failures are excluded."
    return _table("step_failures", "Steps that fail most", note, heads, table, cells, len(changed) + _MAX_UNCHANGED)


def _outages(report: Report) -> PageTable:
    pages = _pages(report.builds)

    def build(row: Row, number: Any) -> Cell:
        page = pages.get((row["organization"], row["pipeline"], number))
        return Cell(f"#{number}" if pd.notna(number) else "", "number", web_link(page))

    def cells(row: Row) -> Iterable[Cell]:
        start = f"{format_timestamp(row['failed_at'])}{' or earlier' if row['start_unknown'] else ''}"
        end = "▲ still broken" if row["open"] else format_timestamp(row["recovered_at"])
        return [_name(row["pipeline"]), _name(row["branch"]), Cell(start, "text"), Cell(end, "text"),
                Cell(format_duration(row["seen_s"])), _count(row["failed"]), build(row, row["first_number"]),
                build(row, row["fixed_by"])]  # fmt: skip

    table = report.measurements.outages.sort_values(["open", "seen_s"], ascending=False)
    heads = "pipeline|branch|broken since|until|# for|# failed builds|# first build|# fixed by"
    n_open = int(table["open"].sum())
    note = f"Default branches: {format_count(len(table), 'outage')}, {n_open} still open. Open outages first."
    return _table("outages", "Broken branches", note, heads, table, cells, n_open + _MAX_UNCHANGED)


def _pages(builds: pd.DataFrame) -> dict[tuple[Any, ...], object]:
    keys = builds[["organization", "pipeline", "number"]].itertuples(index=False, name=None)
    return dict(zip(keys, builds["web_url"], strict=True))


def _queues(report: Report) -> PageTable:
    def cells(row: Row) -> Iterable[Cell]:
        name = row["percentile"]
        counts = [_count(row[name]) for name in ("n", "n_before", "n_censored")]
        return [_name(row["queue"]), Cell("median" if name == "p50" else name, "text"), _duration_direction(row, name),
                *counts, *_percentile(row, name, format_duration)]  # fmt: skip

    table = changed_first(report.measurements.queue_time, "p95_change", "p95_s")
    twice = table.loc[table.index.repeat(2)].assign(percentile=["p50", "p95"] * len(table))
    heads = "queue|percentile|significant|# jobs|# before|# censored|# queue time|# before|# change"
    note = "Time from runnable to started."
    return _table("queue_time", "Queue time", note, heads, twice, cells)


def _load(report: Report) -> PageTable:
    def cells(row: Row) -> Iterable[Cell]:
        places = 1 if row["what"] == "machine hours" else 0
        values = [Cell(f"{row[when]:,.{places}f}") for when in ("now", "before")]
        return [Cell(row["what"], "text"), *values, Cell(format_relative(row["now"], row["before"]))]

    note = "Counts have no interval. Machine hours are the run times of all attempts."
    heads = "what|# this period|# period before|# change"
    return _table("load", "Load", note, heads, report.measurements.load, cells)


def format_relative(now: float, before: float) -> str:
    """ "+4 %", "−2 %" or "unchanged"; "none before" if `before` is 0, "before unknown" if it is NaN."""
    if not before > 0:
        return "before unknown" if math.isnan(before) else "none before"
    share = round(100 * (now / before - 1))
    return f"{share:+,}\N{NO-BREAK SPACE}%".replace("-", "−") if share else "unchanged"


_CLASSES = ("retried", "canceled", "after_failure", "repeated", "useful")


def _waste(report: Report) -> PageTable:
    def cells(row: Row) -> Iterable[Cell]:
        whole = row["machine_s"]
        shares = [Cell(format_percent(row[f"{name}_s"] / whole) if whole > 0 else "unknown") for name in _CLASSES]
        return [_name(row["pipeline"]), _count(row["n"]), Cell(f"{whole / 3600:,.1f}"), *shares]

    table = report.measurements.waste.sort_values("machine_s", ascending=False)
    heads = "pipeline|# jobs|# machine time (h)|# retried|# canceled|# after a failure|# repeated|# useful"
    note = "Shares of machine time. Upper bounds of possible savings: a repeat may be intended."
    return _table("waste", "Where machine time goes", note, heads, table, cells)


def _flips(report: Report) -> PageTable:
    def cells(row: Row) -> Iterable[Cell]:
        rate = [Cell(format_percent(row["flake_rate"])), Cell(format_interval(row["low"], row["high"], format_percent))]
        return [_name(row["pipeline"]), _name(row["step"]), _count(row["flaky"]), _count(row["commits_passed"]), *rate]

    table = report.measurements.flips
    heads = "pipeline|step|# flips|# passing commits|# flake rate|# 95 % interval"
    days = format_count(report.history_days, "day")
    note = f"Commits on which a step both failed and passed, in {days}. Most certain first."
    return _table("flips", "Steps that flip", note, heads, table[table["flaky"] > 0], cells, _TOP)


_STATUS = ("new", "reopened", "active", "dormant", "resolved")


def _flaky_tests(report: Report) -> PageTable:
    def cells(row: Row) -> Iterable[Cell]:
        instances = Cell("" if pd.isna(row["instances"]) else f"{row['instances']:,}")
        return [_name(row["name"]), _name(row["location"]), Cell(row["status"], "text"),
                Cell(format_timestamp(row["since"]), "text"), instances,
                Cell(format_timestamp(row["latest_occurrence_at"]), "text")]  # fmt: skip

    table = report.measurements.flaky_tests
    heads = "test|location|status|since|# instances|latest"
    if table.empty:
        return PageTable("flaky_tests", "", "", [], [])
    count = table["status"].value_counts()
    note = f"{format_count(len(table), 'test')}: {', '.join(f'{count[s]:,} {s}' for s in _STATUS if s in count)}."
    order = table.assign(order=table["status"].map(_STATUS.index))
    ranked = order.sort_values(["order", "instances"], ascending=[True, False], kind="stable")
    return _table("flaky_tests", "Flaky tests", note, heads, ranked, cells, _TOP)
