"""What of the facts is news: differences between two periods that chance hardly makes, as sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pandas as pd

from buildframe.report.content import Finding
from buildframe.report.facts import Facts
from buildframe.words import counted, date, day, named, percent, span

_SURE = 0.05
"""Below this probability of a change by chance, divided by how many are looked at, its day is told."""

_STEPS = 3
"""Steps that are told of a pipeline."""

_LEAST_S = 1.0
"""Shorter differences are no news, be they ever so sure."""

Row = dict[str, Any]


def findings(facts: Facts, since: pd.Timestamp) -> list[Finding]:
    """All news, what got worse first; of each question the greatest change first; of days only those `since`."""
    found = [*_speed(facts, since), *_reliability(facts), *_waiting(facts)]
    return sorted(found, key=lambda one: not one.bad)


def changed(table: pd.DataFrame, change: str) -> pd.DataFrame:
    """The rows of which the interval of a change leaves out 0, the greatest first: of `p50_change`, or `change`."""
    names = _Names.of(change)
    news = table[(table[names.low] > 0) | (table[names.high] < 0)]
    return news.loc[news[names.change].abs().sort_values(ascending=False, kind="stable").index]


class _Names(NamedTuple):
    change: str
    low: str
    high: str

    @classmethod
    def of(cls, change: str) -> _Names:
        if change == "change":
            return cls("change", "low", "high")
        return cls(f"{change}_s", f"{change}_low_s", f"{change}_high_s")


def _rows(table: pd.DataFrame) -> list[Row]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


# Are we slower?


def _speed(facts: Facts, since: pd.Timestamp) -> Iterator[Finding]:
    yield from _pipelines(facts)
    yield from _steps(facts)
    yield from _shifts(facts, since)


def _pipelines(facts: Facts) -> Iterator[Finding]:
    for row in _rows(_of_note(changed(facts.wall_time, "p50_change"))):
        text = f"Builds of {named(row['pipeline'])} that pass take {_instead(row, 'p50', 'in the median')}."
        yield Finding("speed", named(row["pipeline"]), text, row["p50_change_s"] > 0)


def _steps(facts: Facts) -> Iterator[Finding]:
    verbs = {"run": "runs", "queue": "waits for an agent for"}
    for row in _rows(_of_note(changed(facts.step_time, "p50_change"))):
        since = _since(facts.step_shift, row) if row["part"] == "run" else ""
        text = f"{_step(row)} {verbs[row['part']]} {_instead(row, 'p50', 'in the median')}{since}."
        yield Finding("speed", _both(row), text, row["p50_change_s"] > 0)


def _shifts(facts: Facts, since: pd.Timestamp) -> Iterator[Finding]:
    """Changes in the midst of a period, which a comparison of the two does not show."""
    told = set(_keys(_of_note(changed(facts.step_time, "p50_change")), ["pipeline", "step"]))
    known = set(changed(facts.wall_time, "p50_change")["pipeline"])
    for row in _rows(_sure(facts.wall_time_shift)):
        if row["pipeline"] not in known and row["at"] >= since:
            steps = _alike(facts.step_shift, row)
            told |= {(step["pipeline"], step["step"]) for step in steps}
            text = f"Builds of {named(row['pipeline'])} that pass {_shifted(row, 'take')}{_where(steps)}."
            yield Finding("speed", named(row["pipeline"]), text, _longer(row), lasting=True)
    for row in _rows(_sure(facts.step_shift)):
        if (row["pipeline"], row["step"]) not in told and row["at"] >= since:
            text = f"{_step(row)} {_shifted(row, 'runs')}."
            yield Finding("speed", _both(row), text, _longer(row), lasting=True)


def _alike(steps: pd.DataFrame, shift: Row) -> list[Row]:
    """The steps of a pipeline that changed the same way as it did, the greatest first."""
    own = _sure(steps[steps["pipeline"] == shift["pipeline"]])
    change = own["p50_after_s"] - own["p50_before_s"]
    same_way = own[(change > 0) == _longer(shift)]
    return _rows(same_way.loc[change[same_way.index].abs().sort_values(ascending=False).index].head(_STEPS))


def _where(steps: list[Row]) -> str:
    told = [f"{named(row['step'])} {span(row['p50_after_s'])} instead of {span(row['p50_before_s'])}" for row in steps]
    return f"; of its steps {', '.join(told)}" if told else ""


def _keys(table: pd.DataFrame, names: list[str]) -> list[tuple[Any, ...]]:
    return list(table[names].itertuples(index=False, name=None))


def _of_note(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["p50_change_s"].abs() >= _LEAST_S]


def _sure(shifts: pd.DataFrame) -> pd.DataFrame:
    """Changes that are sure, and of note."""
    of_note = (shifts["p50_after_s"] - shifts["p50_before_s"]).abs() >= _LEAST_S
    return shifts[(shifts["p_value"] < _SURE / max(1, shifts["p_value"].notna().sum())) & of_note]


def _longer(row: Row) -> bool:
    return bool(row["p50_after_s"] > row["p50_before_s"])


def _shifted(row: Row, verb: str) -> str:
    """ "take longer since about Mon 19 Oct: 21 min in the median of days instead of 17 min"."""
    how = "longer" if _longer(row) else "less long"
    return (
        f"{verb} {how} since about {date(row['at'])}: "
        f"{span(row['p50_after_s'])} instead of {span(row['p50_before_s'])} in the median of days"
    )


def _since(shifts: pd.DataFrame, row: Row) -> str:
    """The day of the change, where one is likely and goes the same way."""
    same = shifts[(shifts["pipeline"] == row["pipeline"]) & (shifts["step"] == row["step"])]
    for found in _rows(same[same["p_value"] < _SURE]):
        if _longer(found) == (row["p50_change_s"] > 0):
            return f", since about {date(found['at'])}"
    return ""


def _instead(row: Row, name: str, how: str) -> str:
    """ "21 min instead of 17 min in the median (4 min longer; surely 1 min to 6 min)"."""
    change, low, high = (row[f"{name}_change{end}_s"] for end in ("", "_low", "_high"))
    least, most = sorted((abs(low), abs(high)))
    return (
        f"{span(row[f'{name}_s'])} instead of {span(row[f'{name}_before_s'])} {how} "
        f"({span(abs(change))} {'longer' if change > 0 else 'less'}; surely {span(least)} to {span(most)})"
    )


def _both(row: Row) -> str:
    return f"{named(row['pipeline'])}: {named(row['step'])}"


def _step(row: Row) -> str:
    return f"The step {named(row['step'])} of {named(row['pipeline'])}"


# Are we less reliable?


def _reliability(facts: Facts) -> Iterator[Finding]:
    for row in _rows(changed(facts.success, "change")):
        text = f"{percent(row['rate'])} of the builds of {named(row['pipeline'])} pass instead of {_was(row)}."
        yield Finding("reliability", named(row["pipeline"]), text, row["change"] < 0)
    for row in _rows(changed(facts.step_failures, "change")):
        text = f"{_step(row)} fails in {percent(row['rate'])} of its runs instead of {_was(row)}."
        yield Finding("reliability", _both(row), text, row["change"] > 0)


def broken(facts: Facts) -> list[str]:
    """Default branches that are broken now: no change, and yet to be known."""
    return [_broken(row) for row in _rows(facts.outages[facts.outages["open"]].sort_values("failed_at"))]


def _broken(row: Row) -> str:
    earlier = " or earlier" if row["start_unknown"] else ""
    return (
        f"{named(row['pipeline'])} is broken on {named(row['branch'])} since {day(row['failed_at'])}{earlier}: "
        f"{counted(row['failed'], 'failed build')}, none passed since."
    )


def _was(row: Row) -> str:
    least, most = sorted(100 * abs(row[end]) for end in ("low", "high"))
    more = "more" if row["change"] > 0 else "fewer"
    return f"{percent(row['rate_before'])} (surely {least:.1f} to {most:.1f} points {more})"


# Do we wait for agents?


def _waiting(facts: Facts) -> Iterator[Finding]:
    told = set()
    for name, how in (("p95", "at the 95th percentile"), ("p50", "in the median")):
        for row in _rows(changed(facts.queue_time, f"{name}_change")):
            if row["queue"] not in told and abs(row[f"{name}_change_s"]) >= _LEAST_S:
                told.add(row["queue"])
                text = f"Jobs of the queue {named(row['queue'])} wait {_instead(row, name, how)}."
                yield Finding("waiting", named(row["queue"]), text, row[f"{name}_change_s"] > 0)
