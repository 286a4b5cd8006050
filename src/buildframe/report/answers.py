"""What a lead asks on Monday, and what is answered: never more than the data tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pandas as pd

from buildframe.report.content import Finding, Report
from buildframe.report.printed import records, relative
from buildframe.words import counted, named, percent, points, span

QUESTIONS = {
    "speed": "Are we slower?",
    "reliability": "Are we less reliable?",
    "waiting": "Do we wait for agents?",
}
_OF_WHAT = {"speed": "passed builds", "reliability": "builds that passed or failed", "waiting": "jobs that started"}


@dataclass(frozen=True)
class Answer:
    """A question; in few words its answer, which is `bad` or not; all news; what else is so; and what was compared."""

    question: str
    short: str
    mood: Literal["bad", "good", "calm", "unknown"]
    findings: Sequence[Finding] = ()
    text: str = ""
    compared: str = ""


def answers(report: Report) -> list[Answer]:
    """Four, in the order in which they are asked."""
    return [_speed(report), _reliability(report), _waiting(report), _load(report)]


def _speed(report: Report) -> Answer:
    table = report.facts.wall_time
    told = _with_interval(table, "p50_change_low_s", "p50_change_high_s")
    compared = f"the median wall time of {counted(len(told), 'pipeline')} ({_sizes(told, 'passed build')})"
    compared += f", and {counted(len(report.facts.step_shift), 'step')}"
    short = {"bad": "Yes.", "good": "No, faster.", "calm": "Not beyond noise."}
    news = [one for one in report.findings if one.question == "speed"]
    if news and all(one.lasting for one in news):
        short |= {"bad": "Slower for some time.", "good": "Faster for some time."}
    return _answer(report, "speed", short, compared if len(told) else "", len(table) - len(told))


def _reliability(report: Report) -> Answer:
    success, steps = report.facts.success, report.facts.step_failures
    told, told_steps = (_with_interval(table, "low", "high") for table in (success, steps))
    compared = f"the success of {counted(len(told), 'pipeline')} ({_sizes(told, 'build')})"
    compared += f", and the failures of {counted(len(told_steps), 'step')}"
    if len(told):
        noise = (told["high"] - told["low"]).median() / 2
        compared += f"; of the usual pipeline, less than {points(noise)} points is noise"
    short = {"bad": "Yes.", "good": "No, more reliable.", "calm": "Not beyond noise."}
    answer = _answer(report, "reliability", short, compared if len(told) else "", len(success) - len(told))
    return replace(answer, text=" ".join(filter(None, (_broken(report), _flipping(report)))))


def _broken(report: Report) -> str:
    """Default branches that are broken now, the first of them."""
    if not report.broken:
        return ""
    more = len(report.broken) - 1
    return f"Now: {report.broken[0]}" + (f" {more} more {'is' if more == 1 else 'are'} broken." if more else "")


def _flipping(report: Report) -> str:
    """Which step surely flips most, which is no change and yet to be known."""
    days = report.history_days
    return "".join(
        f"Most flips: {named(row['step'])} of {named(row['pipeline'])}, at {percent(row['flake_rate'])} of "
        f"{counted(row['commits_passed'], 'commit')} in {days} days."
        for row in records(report.facts.flips[report.facts.flips["flaky"] > 1].head(1))
    )


def _waiting(report: Report) -> Answer:
    table = report.facts.queue_time
    told = _with_interval(table, "p50_change_low_s", "p50_change_high_s")
    compared = f"the queue time of {counted(len(told), 'queue')} ({_sizes(told, 'job')})"
    short = {"bad": "Longer than before.", "good": "Less than before.", "calm": "Not longer than before, beyond noise."}
    answer = _answer(report, "waiting", short, compared if len(told) else "", len(table) - len(told), "queue")
    return replace(answer, text=_longest(table))


def _longest(table: pd.DataFrame) -> str:
    """Which queue has the longest waits, as far as percentiles tell."""
    known = table.dropna(subset="p95_s")
    if known.empty:
        return ""
    row = known.sort_values("p95_s").iloc[-1]
    return (
        f"The longest waits are in the queue {named(row['queue'])}: half of its {counted(row['n'], 'job')} waited "
        f"at least {span(row['p50_s'])}, one in twenty at least {span(row['p95_s'])}."
    )


def _load(report: Report) -> Answer:
    rows = records(report.facts.load)
    question = "What else changed?"
    if not any(row["now"] > 0 or row["before"] > 0 for row in rows):
        return Answer(question, "Nothing to compare.", "unknown", compared="There are no builds in either period.")
    said = [f"{row['now']:,.0f} {row['what']} ({relative(row['now'], row['before'])})" for row in rows]
    return Answer(question, "", "calm", text=f"{', '.join(said)}.", compared="Counted, against the period before.")


def _answer(
    report: Report, kind: str, short: dict[str, str], compared: str, untold: int, one: str = "pipeline"
) -> Answer:
    """From the findings; where there are none, from what was compared."""
    found = sorted((news for news in report.findings if news.question == kind), key=lambda news: not news.bad)
    few = f" {counted(untold, one)} had too little to compare." if untold else ""
    if found:
        mood: Literal["bad", "good"] = "bad" if found[0].bad else "good"
        compared = f"Compared: {compared}.{few}" if compared else few.strip()
        return Answer(QUESTIONS[kind], short[mood], mood, found, compared=compared)
    if not compared:
        return Answer(QUESTIONS[kind], "Nothing to compare.", "unknown", compared=_why_nothing(report, kind))
    return Answer(QUESTIONS[kind], short["calm"], "calm", compared=f"Compared: {compared}.{few}")


def _why_nothing(report: Report, kind: str) -> str:
    if report.builds.empty:
        return "There are no builds."
    if not report.compares:
        return "The period before is not known."
    return f"There are too few {_OF_WHAT[kind]}, or of fewer than two days, in this period or the one before."


def _with_interval(table: pd.DataFrame, low: str, high: str) -> pd.DataFrame:
    """The rows of which is told how much they changed."""
    return table[table[low].notna() & table[high].notna()]


def _sizes(table: pd.DataFrame, one: str) -> str:
    """ "477 builds against 465"."""
    return f"{counted(int(table['n'].sum()), one)} against {int(table['n_before'].sum()):,}"
