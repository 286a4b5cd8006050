"""Select the significant changes of a report and describe each in a sentence. Does not know pages or limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from buildframe.formatting import (
    format_change,
    format_count,
    format_date,
    format_duration,
    format_name,
    format_percent,
    format_points,
    format_timestamp,
    format_whole_seconds,
)
from buildframe.report.content import Finding
from buildframe.report.explanations import describe_causes, describe_open, explain_changes
from buildframe.report.level_changes import LevelChange, is_dated, of_duration, of_rate, of_wait
from buildframe.report.measurements import Measurements
from buildframe.report.periods import Period

Row = dict[Any, Any]
Tables = Mapping[str, pd.DataFrame]
"""Tables of comparisons with their reported changes, by name."""

Explained = Mapping[str, pd.DataFrame]
"""What the time of each pipeline went to, as it is shown."""


def findings(measurements: Measurements, period: Period) -> list[Finding]:
    """
    Return the significant changes: deteriorations first, then by question and size.

    Parameters
    ----------
    measurements : Measurements
        Tables of the report.
    period : Period
        Period of the report.
    """
    tables = measurements.comparisons
    wall_time = tables["wall_time"]
    changed = wall_time.loc[wall_time["p50_direction"] != "", "pipeline"]
    explained = explain_changes(measurements.explanation, changed)
    rows = [*_speed(tables, explained, period), *_reliability(tables, period), *_waiting(tables, explained, period)]
    return sorted(rows, key=lambda one: not one.bad)


def _reported(tables: Tables, name: str, period: Period, direction: str) -> list[Row]:
    """Return the rows of a table with a reported change, with `days` if these are not those of the period."""
    table = tables[name]
    rows: list[Row] = table[table[direction] != ""].to_dict("records")
    for row in rows:
        row["days"] = f" in the last {period.history.days} days" if row["is_long"] else ""
        row["since"] = None if pd.isna(row["since"]) else row["since"]
    return rows


def _subject(row: Row) -> str:
    """Return the name of the pipeline or queue, or `pipeline: step`."""
    return ": ".join(format_name(row[key]) for key in ("queue", "pipeline", "step") if key in row)


# --- Are we slower?


def _speed(tables: Tables, explained: Explained, period: Period) -> Iterator[Finding]:
    changed = set()
    for row in _reported(tables, "wall_time", period, "p50_direction"):
        changed.add(row["pipeline"])
        is_worse = _is_up(row)
        headline, why, cost, mean = _explain(row, explained.get(row["pipeline"]))
        detail = f"The median wall time of passed builds of {_subject(row)} {_is_longer(row)}{mean}."
        change = of_duration(row, "wall time", "p50", is_worse=is_worse)
        yield Finding("speed", _subject(row), headline, is_worse, row["since"], why, cost, detail, change)
    for row in _reported(tables, "step_time", period, "p50_direction"):
        if row["pipeline"] not in changed:
            is_worse, part = _is_up(row), f"{row['part']} time"
            headline = f"S{_step(row)[1:]} {_verb(row)} {_SPEED[is_worse]}{_when(row)}, its builds not significantly"
            detail = f"The median {part} of {_step(row)} {_is_longer(row)}."
            change = of_duration(row, part, "p50", is_worse=is_worse)
            yield Finding("speed", _subject(row), headline, is_worse, row["since"], detail=detail, change=change)


_SPEED = ("faster", "slower")


def _explain(row: Row, shown: pd.DataFrame | None) -> tuple[str, str, str, str]:
    """Return a headline about the median, the causes of the change of the mean, their cost, and the means.

    There are no causes if the mean did not change in the median's direction.
    """
    median = format_duration(abs(row["p50_change_s"]))
    headline = f"{_subject(row)} {_verb(row)} {median} {_SPEED[_is_up(row)]} at the median{_when(row)}"
    if shown is None:
        return headline, "", "", ""
    before, after, change = shown[["before_s", "after_s", "change_s"]].iloc[-1]
    if change == 0 or (change > 0) != _is_up(row):
        return headline, "", "", f"; the mean changed by {format_change(change)}"
    if change < 0:
        headline += describe_open(int(shown["n_open"].iloc[0]))
    why = f"{describe_causes(shown)}; in all {format_change(change)} on average"
    total, builds = format_duration(abs(change) * row["n"]), format_count(int(row["n"]), "passed build")
    cost = f"{_span(row)}, {builds} took {total} {_LONGER[change < 0]} in all."
    means = f"; the mean is {format_whole_seconds(after)}, before {format_whole_seconds(before)}"
    return headline, why, cost, means


def _verb(row: Row) -> str:
    return "has been" if is_dated(row) else "is"


def _when(row: Row) -> str:
    """ " in the last 28 days", " since 19 Oct" or ""."""
    return f" since {row['since'].day} {row['since']:%b}" if is_dated(row) else str(row["days"])


def _span(row: Row) -> str:
    """ "In the last 28 days", "Since 19 Oct" or "In this period"."""
    span = _when(row).strip() or "in this period"
    return span[0].upper() + span[1:]


def _is_longer(row: Row) -> str:
    return f"is {_compared(row, 'p50')}{_since(row)}" if row["is_compared"] else f"has been {_changed(row, *_LONGER)}"


_LONGER = ("longer", "shorter")


def _is_up(row: Row) -> bool:
    return bool(row["p50_direction"] == "up")


def _changed(row: Row, more: str, less: str) -> str:
    """ "longer since about Mon 19 Oct 2026 (17 to 19 Oct), between builds #7 and #9: 21 min, before 17 min"."""
    name, end, format = ("p50", "_s", format_duration) if "last p50_after_s" in row else ("rate", "", format_percent)
    before, after = (row[f"last {name}_{side}{end}"] for side in ("before", "after"))
    numbers: list[Any] = [row["last number_before"], row["last number_after"]]
    builds = "" if any(map(pd.isna, numbers)) else f", between builds #{numbers[0]:.0f} and #{numbers[1]:.0f}"
    direction = more if after > before else less
    low, high = row["last at_low"], row["last at_high"]
    days = f" ({low.day} {low:%b} to {high.day} {high:%b})" if low.date() < high.date() else ""
    return (
        f"{direction} since about {format_date(row['since'])}{days}{builds}: {format(after)}, before {format(before)}"
    )


def _since(row: Row) -> str:
    return "" if row["since"] is None else f", since about {format_date(row['since'])}"


def _compared(row: Row, name: str) -> str:
    """ "21 min, before 17 min (4 min longer; interval 1 min to 6 min)"; "at least 1 min" if an end is unknown."""
    change, *ends = (row[f"{name}_change{end}_s"] for end in ("", "_low", "_high"))
    known = [format_duration(end) for end in sorted(abs(end) for end in ends if pd.notna(end))]
    interval = " to ".join(known) if len(known) > 1 else f"at least {known[0]}" if known else "unknown"
    return (
        f"{format_duration(row[f'{name}_s'])}{row['days']}, before {format_duration(row[f'{name}_before_s'])} "
        f"({format_duration(abs(change))} {'longer' if change > 0 else 'shorter'}; interval {interval})"
    )


def _step(row: Row) -> str:
    return f"step {format_name(row['step'])} of {format_name(row['pipeline'])}"


# --- Are we less reliable?


def _reliability(tables: Tables, period: Period) -> Iterator[Finding]:
    for row in _reported(tables, "success", period, "direction"):
        is_worse = row["direction"] == "down"
        points = f"{format_points(abs(row['change']))} points {'less' if is_worse else 'more'} reliable"
        headline = f"{_subject(row)} {_verb(row)} {points}{_when(row)}"
        detail = f"The success rate of {_subject(row)} is {_rates(row)}{_since(row)}."
        if not row["is_compared"]:
            detail = f"Builds of {_subject(row)} have failed {_changed(row, *_MORE_OFTEN)}."
        change = of_rate(row, "success rate", is_worse=is_worse)
        yield _less_reliable(row, headline, detail, change, "build")
    for row in _reported(tables, "step_failures", period, "direction"):
        is_worse = row["direction"] == "up"
        fails = "has failed" if is_dated(row) else "fails"
        headline = f"S{_step(row)[1:]} {fails} {_MORE_OFTEN[not is_worse]}{_when(row)}"
        detail = f"The failure rate of {_step(row)} is {_rates(row)}{_since(row)}."
        if not row["is_compared"]:
            detail = f"The {_step(row)} has failed {_changed(row, *_MORE_OFTEN)}."
        yield _less_reliable(row, headline, detail, of_rate(row, "failure rate", is_worse=is_worse), "job")


def _less_reliable(row: Row, headline: str, detail: str, change: LevelChange, one: str) -> Finding:
    n = round(abs(change.change) * change.n)
    more, of = "more" if change.is_worse else "fewer", format_count(change.n, one)
    cost = f"{_span(row)}, about {n:,} {more} of {of} failed than at the rate before." if n else ""
    return Finding("reliability", _subject(row), headline, change.is_worse, row["since"], "", cost, detail, change)


_MORE_OFTEN = ("more often", "less often")


def describe_outages(measurements: Measurements) -> list[str]:
    """Return a sentence for each default branch that is broken now."""
    outages = measurements.outages[measurements.outages["open"]].sort_values("failed_at")
    return [
        f"{format_name(row['pipeline'])} has been broken on {format_name(row['branch'])} since "
        f"{format_timestamp(row['failed_at'])}{' or earlier' if row['start_unknown'] else ''}: "
        f"{format_count(row['failed'], 'failed build')}, none passed."
        for row in outages.to_dict("records")
    ]


def _rates(row: Row) -> str:
    """ "80.0 %, before 90.0 % (interval of the change −15.0 to −5.0 points)"."""
    rate, before = format_percent(row["rate"]), format_percent(row["rate_before"])
    low, high = format_points(row["low"]), format_points(row["high"])
    return f"{rate}{row['days']}, before {before} (interval of the change {low} to {high} points)"


# --- Do we wait for agents?


def _waiting(tables: Tables, explained: Explained, period: Period) -> Iterator[Finding]:
    subjects = set()
    for name, percentile in (("p95", "95th percentile of the"), ("p50", "median")):
        for row in _reported(tables, "queue_time", period, f"{name}_direction"):
            if row["queue"] not in subjects:
                subjects.add(row["queue"])
                is_worse = row[f"{name}_direction"] == "up"
                much = f"{format_duration(abs(row[f'{name}_change_s']))} {_LONGER[not is_worse]}"
                at = "at the 95th percentile" if name == "p95" else "at the median"
                headline = f"Jobs of {_subject(row)} wait {much} for agents {at}{_when(row)}"
                detail = f"The {percentile} queue time of jobs of {_subject(row)} is {_compared(row, name)}."
                change = of_duration(row, "queue time", name, is_worse=is_worse)
                yield Finding("waiting", _subject(row), headline, is_worse, detail=detail, change=change)
    for whole in _reported(tables, "wall_time", period, "p50_direction"):
        shown = explained.get(whole["pipeline"], pd.DataFrame(columns=["notable", "kind"]))
        for row in shown[shown["notable"].astype(bool) & (shown["kind"] == "queue")].to_dict("records"):
            if row["queue"] not in subjects:
                subjects.add(row["queue"])
                yield _waits_of_builds(whole, row)


def _waits_of_builds(whole: Row, cause: Row) -> Finding:
    """Return that builds of a pipeline wait longer for agents of a queue: a cause of the change of the pipeline."""
    queue, change = format_name(cause["queue"]), of_wait(whole, cause)
    verb, longer = "have waited" if is_dated(whole) else "wait", _LONGER[change.change < 0]
    much = f"{format_whole_seconds(abs(change.change))} {longer}"
    headline = f"Builds of {_subject(whole)} {verb} {much} on average for agents of {queue}{_when(whole)}"
    total = format_duration(abs(change.change) * change.n)
    cost = f"{_span(whole)}, {format_count(change.n, 'passed build')} waited {total} {longer} in all."
    since = whole["since"] if is_dated(whole) else None
    return Finding("waiting", queue, headline, change.is_worse, since, "", cost, f"{headline}.", change)
