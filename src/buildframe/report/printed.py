"""The facts as tables that people read: what is said in each cell, what stands first, and what is left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pandas as pd

from buildframe.report.content import Report
from buildframe.report.findings import changed
from buildframe.words import clipped, counted, day, minutes, percent, points, span, visible

_LONGEST = 120
"""Signs of a name in a table, so that its row is not higher than a few lines."""

_MOST = 40
_OTHERS = 10
_TOP = 10

Row = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """What stands in a table: a `name` of someone's choice, a `number`, or our own `text`; perhaps a link."""

    text: str
    kind: str = "number"
    link: str | None = None


@dataclass(frozen=True)
class Table:
    """A table of the page: `heads` with their units and whether numbers stand below, and what is not in it."""

    name: str
    title: str
    note: str
    heads: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[Cell]]
    more: str = ""


def tables(report: Report) -> list[Table]:
    """All tables of the page, without those that have no rows."""
    makers = (_wall_time, _steps, _success, _failures, _outages, _queues, _load, _waste, _flips, _flaky_tests)
    return [table for maker in makers if (table := maker(report)).rows]


def web_link(address: object) -> str | None:
    """The address, if it is one of a page that a browser fetches."""
    if not isinstance(address, str) or visible(address) != address or " " in address:
        return None
    try:
        parts = urlsplit(address)
    except ValueError:
        return None
    return address if parts.scheme in ("http", "https") and parts.hostname else None


def interval(low: float, high: float, say: Callable[[float], str]) -> str:
    """ "from −2.1 to 4.0"; "unknown" where both ends are."""
    ends = [f"from {say(low)}" if pd.notna(low) else "", f"to {say(high)}" if pd.notna(high) else ""]
    return " ".join(filter(None, ends)) if all(ends) else "; ".join([*filter(None, ends), "unknown"])


def records(table: pd.DataFrame) -> list[Row]:
    """Its rows."""
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def busiest(table: pd.DataFrame, name: str, of: str) -> pd.DataFrame:
    """What changed first, then the others by the column `of`, the greatest first."""
    news = changed(table, name)
    return pd.concat([news, table.drop(news.index).sort_values(of, ascending=False, kind="stable")])


def _table(name: str, title: str, note: str, heads: str, found: pd.DataFrame, cells: Callable[[Row], Iterable[Cell]],
           most: int = _MOST) -> Table:  # fmt: skip
    """Of `heads`, between strokes, those with a `#` stand over numbers."""
    rows = [list(cells(row)) for row in records(found.head(most))]
    named = [(head.strip("# "), "number" if "#" in head else "text") for head in heads.split("|")]
    hidden = len(found) - len(rows)
    more = f"{counted(hidden, 'further row')} in numbers/{name}.parquet" if hidden else ""
    return Table(name, title, note, named, rows, more)


def _name(value: object, link: str | None = None) -> Cell:
    known = isinstance(value, str) and value.strip()
    return Cell(clipped(str(value), _LONGEST), "name", link) if known else Cell("(no name)", "text")


def _count(value: Any) -> Cell:
    return Cell(f"{int(value):,}")


def _news(low: float, high: float, more: str, less: str) -> Cell:
    """Whether the change is more than noise, and which way."""
    word = f"▲ {more}" if low > 0 else f"▼ {less}" if high < 0 else "no" if pd.notna(low + high) else "cannot tell"
    return Cell(word, "text")


def _percentile(row: Row, name: str, say: Callable[[float], str]) -> list[Cell]:
    """Now, before, and the interval of the change."""
    low, high = (row[f"{name}_change_{end}_s"] for end in ("low", "high"))
    values = [Cell(say(row[f"{name}_s"])), Cell(say(row[f"{name}_before_s"]))]
    return [*values, Cell(interval(low, high, say))]


def _slower(row: Row, name: str) -> Cell:
    return _news(row[f"{name}_change_low_s"], row[f"{name}_change_high_s"], "longer", "shorter")


def _wall_time(report: Report) -> Table:
    def cells(row: Row) -> Iterable[Cell]:
        counts = [_count(row["n"]), _count(row["n_before"])]
        return [_name(row["pipeline"]), _slower(row, "p50"), *counts, *_percentile(row, "p50", minutes),
                *_percentile(row, "p95", minutes)]  # fmt: skip

    found = busiest(report.facts.wall_time, "p50_change", "n")
    note = "Wall time of builds that passed, in minutes. A 95th percentile needs 20 builds, its interval some more."
    if blocked := int(report.facts.wall_time["n_censored"].sum()):
        note += f" {counted(blocked, 'blocked build')} left out: not over yet."
    heads = "pipeline|beyond noise|# builds|# before|# median (min)|# before (min)|# change (min)|" \
            "# p95 (min)|# before (min)|# change (min)"  # fmt: skip
    return _table("wall_time", "How long builds take", note, heads, found, cells)


def _steps(report: Report) -> Table:
    def cells(row: Row) -> Iterable[Cell]:
        part = Cell("runs" if row["part"] == "run" else "waits", "text")
        counts = [_count(row["n"]), _count(row["n_before"])]
        return [_name(row["pipeline"]), _name(row["step"]), part, _slower(row, "p50"), *counts,
                *_percentile(row, "p50", span)]  # fmt: skip

    found = report.facts.step_time
    news = changed(found, "p50_change")
    moved = found["p50_change_s"].abs().sort_values(ascending=False).dropna().index.difference(news.index, sort=False)
    others = found.loc[moved].head(_OTHERS)
    title = "Steps that changed" if len(news) else "Steps: none changed beyond noise"
    note = f"Medians of jobs that passed; below what changed, the {len(others)} greatest of the other differences."
    heads = "pipeline|step|part|beyond noise|# jobs|# before|# median|# before|# change"
    return _table("step_time", title, note, heads, pd.concat([news, others]), cells)


def _rates(row: Row, those: str) -> list[Cell]:
    rates = [Cell(percent(row["rate"])), Cell(percent(row["rate_before"]))]
    share = [Cell(f"{row[f'{those}{end}']:,} of {row[f'n{end}']:,}") for end in ("", "_before")]
    return [share[0], rates[0], share[1], rates[1], Cell(interval(row["low"], row["high"], points))]


def _success(report: Report) -> Table:
    def cells(row: Row) -> Iterable[Cell]:
        return [_name(row["pipeline"]), _news(row["low"], row["high"], "more pass", "fewer pass"),
                *_rates(row, "passed")]  # fmt: skip

    found = busiest(report.facts.success, "change", "n")
    heads = "pipeline|beyond noise|# passed|# rate|# passed before|# rate before|# change (points)"
    note = "Of builds that passed or failed; canceled and unfinished ones are in neither."
    return _table("success", "How many builds pass", note, heads, found, cells)


def _failures(report: Report) -> Table:
    def cells(row: Row) -> Iterable[Cell]:
        return [_name(row["pipeline"]), _name(row["step"]), _news(row["low"], row["high"], "fails more", "fails less"),
                *_rates(row, "failed")]  # fmt: skip

    found = busiest(report.facts.step_failures, "change", "failed")
    news = len(changed(found, "change"))
    found = found[(found["failed"] > 0) | (found.index.isin(changed(found, "change").index))]
    heads = "pipeline|step|beyond noise|# failed|# share|# failed before|# share before|# change (points)"
    note = "Jobs that failed hard or ran out of time, of those that passed or did so, attempt by attempt."
    return _table("step_failures", "Steps that fail most", note, heads, found, cells, news + _OTHERS)


def _outages(report: Report) -> Table:
    pages = _pages(report.builds)

    def build(row: Row, number: Any) -> Cell:
        page = pages.get((row["organization"], row["pipeline"], number))
        return Cell(f"#{number}" if pd.notna(number) else "", "number", web_link(page))

    def cells(row: Row) -> Iterable[Cell]:
        start = f"{day(row['failed_at'])}{' or earlier' if row['start_unknown'] else ''}"
        end = "▲ still broken" if row["open"] else day(row["recovered_at"])
        return [_name(row["pipeline"]), _name(row["branch"]), Cell(start, "text"), Cell(end, "text"),
                Cell(span(row["seen_s"])), _count(row["failed"]), build(row, row["first_number"]),
                build(row, row["fixed_by"])]  # fmt: skip

    found = report.facts.outages.sort_values(["open", "seen_s"], ascending=False)
    heads = "pipeline|branch|broken since|until|# for|# failed builds|# first build|# fixed by"
    note = f"Default branches: {counted(len(found), 'outage')}, {int(found['open'].sum())} still open; open ones first."
    return _table("outages", "Broken branches", note, heads, found, cells, int(found["open"].sum()) + _OTHERS)


def _pages(builds: pd.DataFrame) -> dict[tuple[Any, ...], object]:
    keys = builds[["organization", "pipeline", "number"]].itertuples(index=False, name=None)
    return dict(zip(keys, builds["web_url"], strict=True))


def _queues(report: Report) -> Table:
    def cells(row: Row) -> Iterable[Cell]:
        name = row["percentile"]
        counts = [_count(row[name]) for name in ("n", "n_before", "n_censored")]
        return [_name(row["queue"]), Cell("median" if name == "p50" else name, "text"), _slower(row, name), *counts,
                *_percentile(row, name, span)]  # fmt: skip

    found = busiest(report.facts.queue_time, "p95_change", "p95_s")
    twice = found.loc[found.index.repeat(2)].assign(percentile=["p50", "p95"] * len(found))
    heads = "queue|of its jobs|beyond noise|# jobs|# before|# cut off|# wait|# before|# change"
    note = "How long jobs waited for an agent, once they were runnable."
    return _table("queue_time", "How long jobs wait for agents", note, heads, twice, cells)


def _load(report: Report) -> Table:
    def cells(row: Row) -> Iterable[Cell]:
        places = 1 if row["what"] == "machine hours" else 0
        values = [Cell(f"{row[when]:,.{places}f}") for when in ("now", "before")]
        return [Cell(row["what"], "text"), *values, Cell(relative(row["now"], row["before"]))]

    note = "Counted, so without an interval; machine hours are the run times of all attempts."
    heads = "what|# this period|# the one before|# change"
    return _table("load", "How much there was to do", note, heads, report.facts.load, cells)


def relative(now: float, before: float) -> str:
    """ "+4 %" of what was before, "−2 %", "as before"; "nothing before" of nothing, "before unknown" of NaN."""
    if not before > 0:
        return "before unknown" if math.isnan(before) else "nothing before"
    share = round(100 * (now / before - 1))
    return f"{share:+,}\N{NO-BREAK SPACE}%".replace("-", "−") if share else "as before"


_CLASSES = ("retried", "canceled", "after_failure", "repeated", "useful")


def _waste(report: Report) -> Table:
    def cells(row: Row) -> Iterable[Cell]:
        whole = row["machine_s"]
        shares = [Cell(percent(row[f"{name}_s"] / whole) if whole > 0 else "unknown") for name in _CLASSES]
        return [_name(row["pipeline"]), _count(row["n"]), Cell(f"{whole / 3600:,.1f}"), *shares]

    found = report.facts.waste.sort_values("machine_s", ascending=False)
    heads = "pipeline|# jobs|# machine time (h)|# retried|# canceled|# after a failure|# repeated|# useful"
    note = "Shares of machine time. What could be saved at most, not what must: a repeat may have been wanted."
    return _table("waste", "Where machine time goes", note, heads, found, cells)


def _flips(report: Report) -> Table:
    def cells(row: Row) -> Iterable[Cell]:
        rate = [Cell(percent(row["flake_rate"])), Cell(interval(row["low"], row["high"], percent))]
        return [_name(row["pipeline"]), _name(row["step"]), _count(row["flaky"]), _count(row["commits_passed"]), *rate]

    found = report.facts.flips
    heads = "pipeline|step|# flips|# commits that passed|# flake rate|# 95 % interval"
    note = (
        f"Commits at which a step both failed and passed, over {counted(report.history_days, 'day')}; the surest first."
    )
    return _table("flips", "Steps that flip", note, heads, found[found["flaky"] > 0], cells, _TOP)


_STATUS = ("new", "reopened", "active", "dormant", "resolved")


def _flaky_tests(report: Report) -> Table:
    def cells(row: Row) -> Iterable[Cell]:
        return [_name(row["name"]), _name(row["location"]), Cell(row["status"], "text"),
                Cell(day(row["since"]), "text"), Cell("" if pd.isna(row["instances"]) else f"{row['instances']:,}"),
                Cell(day(row["latest_occurrence_at"]), "text")]  # fmt: skip

    found = report.facts.flaky_tests
    heads = "test|location|status|since|# instances|latest"
    if found.empty:
        return Table("flaky_tests", "", "", [], [])
    count = found["status"].value_counts()
    note = f"{counted(len(found), 'test')}: {', '.join(f'{count[s]:,} {s}' for s in _STATUS if s in count)}."
    order = found.assign(order=found["status"].map(_STATUS.index))
    ranked = order.sort_values(["order", "instances"], ascending=[True, False], kind="stable")
    return _table("flaky_tests", "Flaky tests", note, heads, ranked, cells, _TOP)
