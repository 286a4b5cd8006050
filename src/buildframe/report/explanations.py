"""Explain changes of mean wall time by what builds spent their time on, in rows that add up as they are shown.

Knows tables and texts; does not know pages, stores or command lines.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pandas as pd

from buildframe import metrics
from buildframe.formatting import format_change, format_count, format_name, format_whole_seconds
from buildframe.metrics.compared_builds import NAMELESS
from buildframe.metrics.discoveries import RATE, are_notable
from buildframe.report.periods import Period
from buildframe.spec.builds import OPEN_STATES

MIN_CHANGE_S = 1.0
"""Smaller changes of durations are not significant."""

MAX_CAUSES = 3
"""Causes that a sentence names."""

_MAX_ROWS = 8
_ENDED = "build_finished_at"
_DTYPES = (
    dict.fromkeys(("pipeline", "kind", "step", "queue"), "str")
    | dict.fromkeys(("before_s", "after_s", "change_s", "low_s", "high_s", "p"), "float64")
    | {"notable": "boolean", "builds_before": "Int64", "builds_after": "Int64"}
)
_DAYS = ("before_from", "after_from", "after_to")


def have_not_ended(builds: pd.DataFrame) -> pd.Series[bool]:
    """Return which builds run or are blocked, so that they have no wall time yet."""
    return builds["state"].isin(OPEN_STATES) | builds["blocked"].astype("boolean").fillna(False).astype(bool)


def explain_wall_times(
    builds: pd.DataFrame, jobs: pd.DataFrame, reported: pd.DataFrame, changes: pd.DataFrame, period: Period
) -> pd.DataFrame:
    """
    Explain the mean wall time of passed builds of each pipeline.

    A pipeline with a reported change is explained by the two sides of this change: the periods, the time before and
    since a change point, or the history and as many days before. Others are explained by the periods. Only the causes
    of reported changes are tested, each pipeline's at 5 % times the share of pipelines with a change (Benjamini, Y.,
    and Bogomolov, M. (2014). Journal of the Royal Statistical Society B 76, 297-318).

    Parameters
    ----------
    builds, jobs : DataFrame
        Rows of the report.
    reported : DataFrame
        Wall times with their reported changes, from `reported_changes.reported`.
    changes : DataFrame
        Change points of wall times.
    period : Period
        Period of the report.
    """
    passed = builds.loc[builds["state"] == "passed", ["id", "finished_at"]].set_axis(["build_id", _ENDED], axis=1)
    ledger = metrics.time_ledger(builds, jobs).merge(passed, on="build_id")
    of_pipelines = dict(list(ledger.groupby("pipeline")))
    opened = builds[have_not_ended(builds)]
    pipelines = reported.drop_duplicates("pipeline")  # one that has a reported change comes first
    is_reported = pipelines["p50_direction"] != ""
    level = RATE * is_reported.sum() / max((is_reported | pipelines["p50_change_p"].notna()).sum(), 1)
    tables = []
    for row in pipelines[pipelines["pipeline"].isin(list(of_pipelines))].to_dict("records"):
        segments = of_pipelines[row["pipeline"]]
        spans = _compared_spans(row, changes, period)
        before, after = (span.of(segments, _ENDED) for span in spans)
        if len(before) and len(after):
            table = metrics.explain(before, after, tz=period.tz)
            is_notable = are_notable(table["p"], level) & (table["change_s"].abs() >= MIN_CHANGE_S).to_numpy(bool)
            is_notable &= row["p50_direction"] != ""
            flags = pd.array(is_notable, "boolean")
            days = {"before_from": spans[0].start, "after_from": spans[1].start, "after_to": spans[1].end}
            own = opened.loc[opened["pipeline"] == row["pipeline"], "created_at"]
            n_open = int(((own >= spans[0].start) & (own < spans[1].end)).sum())
            tables.append(table.assign(notable=flags, **days, n_open=n_open))
    dtypes = _DTYPES | dict.fromkeys(_DAYS, f"datetime64[us, {period.tz}]") | {"n_open": "int64"}
    table = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=list(dtypes))
    return table[list(dtypes)].astype(dtypes)


def _compared_spans(row: dict[Any, Any], changes: pd.DataFrame, period: Period) -> tuple[Period, Period]:
    """Return the time before and after that a reported change compares, or else the periods.

    As in `metrics.change_points`, a change point compares the time from the change before with that up to the next one.
    """
    if row["is_long"]:
        return period.history.before, period.history
    since = row["since"]
    if row["is_compared"] or pd.isna(since):
        return period.before, period
    days = changes.loc[changes["pipeline"] == row["pipeline"], "at"]
    start = max([period.history.start, *days[days < since]])
    return Period(start, since), Period(since, min([period.end, *days[days > since]]))


def explain_changes(explanation: pd.DataFrame, pipelines: Collection[str]) -> dict[str, pd.DataFrame]:
    """Return what the time of each of these pipelines went to, as it is shown, in the order of the table."""
    if explanation.empty:
        return {}
    own = explanation[explanation["pipeline"].isin(list(pipelines))]
    return {
        str(name): add_up(rows).assign(n_open=rows["n_open"].iloc[0])
        for name, rows in own.groupby("pipeline", sort=False)
    }


def add_up(explanation: pd.DataFrame, walls: Sequence[float] | None = None) -> pd.DataFrame:
    """
    Return notable and large rows, the sum of the others, and the total, in whole seconds that add up as they are shown.

    Rows that are not notable and change by less than a second are among the others.

    Parameters
    ----------
    explanation : DataFrame
        Result of `metrics.explain`, or its rows of one pipeline.
    walls : sequence of float, optional
        Mean wall times before and after, of an explanation with shares of builds: its changes add up to their
        difference, but its means do not add up to them. By default the sums of the rows.

    Returns
    -------
    DataFrame
        The columns of `explanation`, and `name`: the step or queue, null for other kinds. The kinds of the last two
        rows are `other` and `total`.
    """
    is_notable = explanation["notable"].astype(bool)
    rows = explanation.loc[is_notable.sort_values(ascending=False, kind="stable").index]
    means = ["before_s", "after_s"]
    rows = rows[rows["notable"].astype(bool) | (rows[means].round().diff(axis=1)["after_s"] != 0)]
    rows = rows.head(max(_MAX_ROWS, int(is_notable.sum())))
    rows[means] = rows[means].round()
    rows = rows.assign(name=rows["queue"].where(rows["kind"] == "queue", rows["step"]))
    total = (explanation[means].sum() if walls is None else pd.Series(walls, means)).round()
    sums = pd.DataFrame([total - rows[means].sum(), total]).assign(kind=["other", "total"], notable=False)
    table = pd.concat([rows, sums], ignore_index=True)
    return table.assign(change_s=table["after_s"] - table["before_s"], notable=table["notable"].astype(bool))


def describe_causes(shown: pd.DataFrame) -> str:
    """ "integration +3 min 9 s (run), macos +48 s (queue), other +6 s", from rows that `add_up` returns.

    Says so if all of these are in the direction opposite to that of the total.
    """
    causes = shown[shown["notable"]].head(MAX_CAUSES).to_dict("records")
    if not causes:
        return "no change is significant"
    total = shown["change_s"].iloc[-1]
    other = total - sum(row["change_s"] for row in causes)
    is_explained = total == 0 or any(row["change_s"] * total > 0 for row in causes)
    described = ", ".join(map(_describe_cause, causes))
    rest = f"other {format_change(other)}" if other else ""
    if not is_explained:
        return f"significant changes are in the other direction: {described}; {rest}"
    return f"{described}, {rest}" if rest else described


def _describe_cause(row: dict[Any, Any]) -> str:
    """Return what the time went to and its change, with the pipeline if there are several."""
    change, kind = format_change(row["change_s"]), str(row["kind"]).replace("_", " ")
    if row.get("effect") == "mix":
        return f"{format_name(row['pipeline'])} {change} (share of builds)"
    pipeline = f" of {format_name(row['pipeline'])}" if "effect" in row else ""
    if row["kind"] in NAMELESS:
        return f"{kind}{pipeline} {change}"
    return f"{format_name(row['name'])}{pipeline} {change} ({kind})"


def describe_mean(shown: pd.DataFrame) -> str:
    """ "4 min 3 s slower"; "as fast" if whole seconds show no change."""
    change = shown["change_s"].iloc[-1]
    return f"{format_whole_seconds(abs(change))} {'slower' if change > 0 else 'faster'}" if change else "as fast"


def describe_open(n: int, of: str = "") -> str:
    """ " (2 builds of the day have not ended and are not counted)"; "" if n is 0."""
    verbs = "has not ended and is" if n == 1 else "have not ended and are"
    return f" ({format_count(n, 'build')}{of} {verbs} not counted)" if n else ""
