"""Limits: the file that sets them, and the verdict on each."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from buildframe.report.content import Verdict
from buildframe.report.measurements import Measurements
from buildframe.report.thresholds import Thresholds, check_limits
from tests.refusals import wrong_refusals
from tests.report.reports import report_of_month

WHOLE = """
[queue_time]
"*" = "10m"
macos = "90m"

[success_rate]
"*" = 0.7
"web.old" = 1

[wall_time]
web = 0
"""


def file(folder: Path, text: str | bytes) -> Path:
    path = folder / "limits.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_limits_are_read_from_a_file(tmp_path: Path) -> None:
    for text in (WHOLE, "\ufeff" + WHOLE, WHOLE.replace("\n", "\r\n")):
        assert Thresholds.read(file(tmp_path, text)) == Thresholds(
            {"*": 600.0, "macos": 5400.0}, {"*": 0.7, "web.old": 1.0}, {"web": 0.0}
        )
    assert Thresholds.read(str(file(tmp_path, "[wall_time]\nweb = 1.5\n"))) == Thresholds({}, {}, {"web": 1.5})


INVALID: list[tuple[str | bytes, str]] = [
    ("", "the file contains no limit. Add one to a table: queue_time, success_rate, wall_time, objectives, rates."),
    ("# nothing\n[queue_time]\n", "the file contains no limit"),
    ("[queue_times]\nmacos = '5m'\n", "'queue_times' is not a table of limits. Did you mean 'queue_time'?"),
    (
        "[duration]\nweb = 1\n",
        "'duration' is not a table of limits. Valid names: queue_time, success_rate, wall_time, objectives, rates.",
    ),
    ("macos = '5m'\n", "'macos' is not a table of limits"),
    ("queue_time = '5m'\n", "queue_time is not a table. Write [queue_time] above"),
    ("[queue_time]\nmacos = '10mins'\n", "[queue_time] 'macos' is '10mins'. Use a duration above 0"),
    ("[queue_time]\nmacos = 10\n", "[queue_time] 'macos' is 10. Use a duration"),
    ("[queue_time]\nmacos = '0s'\n", "'0s'"),
    ("[queue_time]\nmacos = '-5m'\n", "'-5m'"),
    ("[queue_time]\nmacos = 2026-10-26\n", "Use a duration"),
    ("[queue_time]\nmacos = '99999999999999w'\n", "Use a duration"),
    ("[queue_time]\nmac.os = '5m'\n", "[queue_time] 'mac' is {'os': '5m'}. Use a duration"),
    ("[queue_time]\nmac.os = '5m'\n", "Quote names that contain a dot."),
    ("[success_rate]\nweb = '0.9'\n", "[success_rate] 'web' is '0.9'. Use a share in (0, 1]"),
    ("[success_rate]\nweb = 90\n", "is 90. Use a share"),
    ("[success_rate]\nweb = 0\n", "is 0. Use a share"),
    ("[success_rate]\nweb = nan\n", "is nan. Use"),
    ("[success_rate]\nweb = true\n", "is True. Use"),
    ("[wall_time]\nweb = 20\n", "[wall_time] 'web' is 20. Use a share from 0 to 10, such as 0.2"),
    ("[wall_time]\nweb = nan\n", "is nan. Use"),
    ("[wall_time]\nweb = -1\n", "is -1. Use"),
    ("[wall_time]\nweb = [0.2]\n", "is [0.2]. Use"),
    ("[[wall_time]]\nweb = 0.2\n", "Write [wall_time] above its limits"),
    ("[wall_time\nweb = 1\n", "the file is not valid TOML: Expected ']'"),
    ("[wall_time]\nweb = 1\nweb = 2\n", "the file is not valid TOML: Cannot overwrite a value"),
    ("[wall_time]\nweb = '\0'\n", "the file is not valid TOML"),
    (b"[wall_time]\n\xff = 1\n", "is not UTF-8"),
    ("[wall_time]\nweb = 1\n".encode("utf-16"), "is not UTF-8"),
]


def test_an_invalid_limit_is_refused_with_the_file_and_the_key(tmp_path: Path) -> None:
    path = tmp_path / "limits.toml"
    cases = [(text, f"^{re.escape(str(path))}: (?s:.*){re.escape(words)}") for text, words in INVALID]
    assert wrong_refusals(cases, lambda text: Thresholds.read(file(tmp_path, text))) == {}


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    cases = [(tmp_path / name, "cannot be read") for name in ("none.toml", "", "a\0b")]
    assert wrong_refusals(cases, Thresholds.read) == {}


# --- verdicts

QUEUE = {"queue": "macos", "n": 300, "n_censored": 0, "p95_s": 700.0, "p95_low_s": 650.0, "p95_high_s": 900.0}
QUEUE |= {"p95_at_least_s": float("nan")}
SUCCESS = {"pipeline": "web", "passed": 60, "n": 100, "rate": 0.6, "rate_low": 0.5, "rate_high": 0.69}
WALL = {
    "pipeline": "web", "n": 90, "n_before": 80, "p50_s": 1300.0, "p50_before_s": 1000.0,
    "p50_change_s": 300.0, "p50_change_low_s": 250.0, "p50_change_high_s": 400.0,
}  # fmt: skip
NAN = float("nan")
WAITING = {"n": 100, "n_censored": 30, "p95_at_least_s": 7200.0, "p95_s": NAN, "p95_low_s": NAN, "p95_high_s": NAN}


def verdicts_for(limits: dict[str, dict[str, float]], **tables: list[dict[str, Any]]) -> list[Verdict]:
    empty = {name: pd.DataFrame(columns=list(row)) for name, row in _ROWS.items()}
    made = {name: pd.DataFrame(rows) for name, rows in tables.items()}
    measurements = Measurements(**{name: pd.DataFrame() for name in Measurements.__dataclass_fields__} | empty | made)
    return check_limits(Thresholds(**{"queue_time": {}, "success_rate": {}, "wall_time": {}} | limits), measurements)


_ROWS = {"queue_time": QUEUE, "success": SUCCESS, "wall_time": WALL}

Expected = list[tuple[dict[str, float], float, str, str]]
"""Changes of a row, a limit, and the status and some words of the verdict."""

QUEUES: Expected = [
    ({}, 600, "over", "is 11 min 40 s (interval 10 min 50 s to 15 min; 300 jobs)"),
    ({}, 650, "perhaps", "; the limit is at most 10 min 50 s, which lies within the interval."),
    ({}, 649.9, "over", "the limit"),
    ({}, 699, "perhaps", "lies within the interval"),
    ({}, 700, "within", "; the limit is at most 11 min 40 s."),
    ({"p95_high_s": NAN}, 600, "over", "interval from 10 min 50 s"),
    ({"p95_low_s": NAN}, 600, "unknown", "interval up to 15 min"),
    ({"p95_low_s": NAN, "p95_high_s": NAN}, 600, "unknown", "too few days for an interval; 300 jobs"),
    ({"p95_low_s": NAN, "p95_high_s": NAN}, 800, "within", "too few days"),
    ({"p95_s": NAN, "n": 3}, 600, "unknown", "3 jobs of the queue macos started, too few for a 95th"),
    ({"p95_s": NAN, "n": 0}, 600, "unknown", "0 jobs of the queue macos started"),
    (WAITING, 600, "over", "macos is at least 2 h (100 jobs, and 30 that did not start); the limit is at most 10"),
    (WAITING, 7199, "over", "is at least 2 h"),
    (WAITING, 7200, "unknown", "is at least 2 h"),
    (WAITING, 7260, "unknown", "is at least 2 h (100 jobs, and 30 that did not start); the limit is at most 2 h 1"),
]
RATES: Expected = [
    ({}, 0.7, "over", "The success rate of web is 60.0 % (interval 50.0 % to 69.0 %; 100 builds)"),
    ({}, 0.69, "perhaps", "; the limit is at least 69.0 %, which lies within the interval."),
    ({}, 0.6, "within", "; the limit is at least 60.0 %."),
    ({"rate_low": NAN, "rate_high": NAN}, 0.7, "unknown", "too few days for an interval; 100 builds"),
]
GROWTH: Expected = [
    ({}, 0.2, "over", "is 21 min 40 s, 5 min longer than before"),
    ({}, 0.2, "over", "(interval 4 min 10 s longer to 6 min 40 s longer; 90 and 80 builds)"),
    ({}, 0.25, "perhaps", "the limit is at most 25.0 % longer, which lies within the interval."),
    ({}, 0.3, "within", "the limit is at most 30.0 % longer."),
    ({"p50_change_s": -60.0, "p50_change_low_s": -120.0, "p50_change_high_s": 60.0}, 0, "within", "1 min shorter"),
    ({"p50_change_low_s": NAN}, 0.2, "unknown", "interval up to 6 min 40 s longer"),
    ({"p50_s": NAN, "p50_change_s": NAN, "n": 1}, 0.2, "unknown", "1 and 80 builds of web passed, too few"),
]


def check_verdicts(expected: Expected, subject: str, verdict_of: Callable[[dict[str, float], float], Verdict]) -> None:
    wrong = []
    for row, limit, status, words in expected:
        verdict = verdict_of(row, limit)
        if (verdict.subject, verdict.status) != (subject, status) or words not in verdict.text:
            wrong.append((row, limit, verdict))
    assert wrong == []


def test_a_queue_exceeds_its_limit_if_its_whole_interval_does() -> None:
    def verdict_of(row: dict[str, float], limit: float) -> Verdict:
        [verdict] = verdicts_for({"queue_time": {"macos": limit}}, queue_time=[QUEUE | row])
        return verdict

    check_verdicts(QUEUES, "macos", verdict_of)


def test_a_success_rate_is_too_low_if_its_whole_interval_is_below_the_limit() -> None:
    def verdict_of(row: dict[str, float], limit: float) -> Verdict:
        [verdict] = verdicts_for({"success_rate": {"*": limit}}, success=[SUCCESS | row])
        return verdict

    check_verdicts(RATES, "web", verdict_of)


def test_a_wall_time_grew_too_much_if_the_whole_interval_of_the_change_exceeds_the_limit() -> None:
    def verdict_of(row: dict[str, float], limit: float) -> Verdict:
        [verdict] = verdicts_for({"wall_time": {"web": limit}}, wall_time=[WALL | row])
        return verdict

    check_verdicts(GROWTH, "web", verdict_of)


def test_a_pipeline_without_passed_or_failed_builds_has_an_unknown_verdict() -> None:
    [verdict] = verdicts_for({"success_rate": {"*": 0.9}}, success=[SUCCESS | {"passed": 0, "n": 0, "rate": NAN}])
    assert verdict.status == "unknown"
    assert verdict.text == "No build of web passed or failed; the limit is at least 90.0 %."


def test_a_star_sets_the_limit_of_all_names_without_their_own() -> None:
    rows = [QUEUE | {"queue": name} for name in ("macos", "mac*", "[a-z]", "*", None)]
    found = verdicts_for({"queue_time": {"*": 600.0, "macos": 800.0}}, queue_time=rows)
    assert [(v.subject, v.status) for v in found] == [
        ("mac*", "over"), ("[a-z]", "over"), ("*", "over"), ("(no name)", "over"), ("macos", "within")
    ]  # fmt: skip
    names = "Names with rows: *, [a-z], mac*, macos."
    assert verdicts_for({"queue_time": {"mac*": 800.0, "None": 1.0}}, queue_time=rows) == [
        Verdict("None", "unknown", "The queue None has no rows in this period or the one before. " + names),
        *verdicts_for({"queue_time": {"mac*": 800.0}}, queue_time=rows),
    ]


def test_without_rows_a_name_has_an_unknown_verdict_and_a_star_has_none() -> None:
    limits = {"queue_time": {"gone": 60.0, "*": 60.0}, "success_rate": {"*": 0.9, "old": 0.9}, "wall_time": {"*": 0.1}}
    assert verdicts_for(limits) == [
        Verdict(
            "gone", "unknown", "The queue gone has no rows in this period or the one before. Names with rows: none."
        ),
        Verdict(
            "old", "unknown", "The pipeline old has no rows in this period or the one before. Names with rows: none."
        ),
    ]


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    [verdict, _] = verdicts_for({"queue_time": {"macoss": 600.0, "macos": 1e6}}, queue_time=[QUEUE])
    assert verdict.text.endswith("The queue macoss has no rows in this period or the one before. Did you mean macos?")


def test_markup_in_names_is_shown_as_text() -> None:
    [verdict] = verdicts_for({"queue_time": {"*": 600.0}}, queue_time=[QUEUE | {"queue": "a\n\u202eb"}])
    assert "\n" not in verdict.text + verdict.subject
    assert "\u202e" not in verdict.text + verdict.subject


@pytest.mark.long
def test_verdicts_of_the_sandbox_agree_with_the_tables(tmp_path: Path) -> None:
    measurements = report_of_month("2026-10-30T15:00Z").measurements
    limits = Thresholds.read(
        file(tmp_path, '[queue_time]\n"*" = "1m"\n[success_rate]\n"*" = 0.9\n[wall_time]\n"*" = 0\n')
    )
    found = check_limits(limits, measurements)
    order = ["over", "perhaps", "unknown", "within"]
    assert [v.status for v in found] == sorted((v.status for v in found), key=order.index)
    queues = {v.subject: v.status for v in found if "95th percentile" in v.text}
    table = measurements.queue_time.set_index("queue")
    assert queues.keys() == set(table.index)
    assert {name for name, status in queues.items() if status == "over"} == set(table.index[table["p95_low_s"] > 60])
    assert {name for name, status in queues.items() if status == "within"} == set(table.index[table["p95_s"] <= 60])
    rates = {v.subject: v.status for v in found if "The success rate of" in v.text}
    low = measurements.success[measurements.success["rate"] < 0.9]
    assert {name for name, status in rates.items() if status in ("over", "perhaps")} == set(low["pipeline"])
    walls = {v.subject: v.status for v in found if "The median wall time" in v.text}
    longer = measurements.wall_time["p50_change_s"] > 0
    assert {name for name, status in walls.items() if status == "within"} == set(
        measurements.wall_time["pipeline"][~longer]
    )
    for table in (measurements.queue_time, measurements.wall_time):
        known = table.dropna(subset=["p95_low_s", "p95_high_s"])
        assert ((known["p95_low_s"] <= known["p95_s"]) & (known["p95_s"] <= known["p95_high_s"])).all()
    assert measurements.queue_time["p95_low_s"].notna().any()
