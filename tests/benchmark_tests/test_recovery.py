"""The benchmark of recovery counts what is found, what is missed, and what nothing explains."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from buildframe.sandbox_server import SlowerStep, Truth
from buildframe.spec import Moment
from tests.benchmarks.recovery import Detector, Found, Month, Score, anything, nothing, steps

pytestmark = pytest.mark.long

NOW = pd.Timestamp("2026-10-30", tz="UTC")


def month(*slower: SlowerStep) -> Month:
    builds, jobs, pipelines = pd.DataFrame(), pd.DataFrame(), pd.DataFrame()
    return Month(Truth(slower_steps=slower), builds, jobs, pipelines, NOW, [])


def slower(step: str, at: str) -> SlowerStep:
    return SlowerStep("acme", "web", step, Moment.parse(f"{at}T08:00:00Z"), 1.5)


def cells(found: Found, *months: Month, **options: Any) -> list[str]:
    score = Score()
    for one in months:
        score.add(Detector(**({"find": lambda _: found, "planted": steps("slower_steps", "at")} | options)), one)
    return score.cells()


def test_anomalies_are_found_in_time_or_missed() -> None:
    planted = month(slower("e2e", "2026-10-14"), slower("scan", "2026-10-15"), slower("lint", "2026-10-27"))
    found = {("web", "e2e"): NOW - pd.Timedelta("15D"), ("web", "lint"): None}
    assert cells(found, planted) == ["1/2", "1/1", "1/2", "0", "0/1", "0/0"]
    assert cells(found, planted, reaches=pd.Timedelta("10D")) == ["0/0", "1/1", "0/1", "0", "0/1", "0/0"]


def test_what_nothing_explains_is_a_false_alarm() -> None:
    found: Found = {("web", "e2e"): None, ("web", "scan"): None}
    worlds = month(slower("e2e", "2026-10-14")), month()
    assert cells(found, *worlds) == ["1/1", "0/0", "0/1", "3", "2/2", "1/1"]
    assert cells(found, *worlds, explains=lambda _: {("web", "scan")})[3:] == ["1", "1/2", "1/1"]
    assert cells(found, *worlds, planted=nothing, explains=anything)[3:] == ["2", "1/2", "1/1"]
