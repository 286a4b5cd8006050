"""Format numbers, times and names for people."""

from __future__ import annotations

import math

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from buildframe.formatting import (
    escape_invisible,
    format_change,
    format_count,
    format_date,
    format_duration,
    format_name,
    format_percent,
    format_points,
    format_timestamp,
    format_whole_seconds,
    truncate_middle,
)
from tests.report.untrusted import UNTRUSTED

DURATIONS = {
    0: "0.0 s", -0.01: "0.0 s", 1.26: "1.3 s", 9.94: "9.9 s", 9.96: "10 s", 45: "45 s", 59.7: "1 min",
    250: "4 min 10 s", 3600: "1 h", 3605: "1 h", 7500: "2 h 5 min", 86_400: "1 d", 90_061: "1 d 1 h",
    -250: "−4 min 10 s", math.nan: "unknown",
}  # fmt: skip
CHANGES = {
    0.4: "0 s", -0.4: "0 s", 6.2: "+6 s", -48: "−48 s", 189: "+3 min 9 s", 3725.2: "+1 h 2 min 5 s",
    90_000: "+1 d 1 h", -86_401: "−1 d 1 s",
}  # fmt: skip


def test_durations_have_two_units_and_changes_a_sign_and_all_units() -> None:
    assert {seconds: format_duration(seconds) for seconds in DURATIONS} == DURATIONS
    assert {seconds: format_change(seconds) for seconds in CHANGES} == CHANGES
    assert [format_whole_seconds(seconds) for seconds in CHANGES] == [
        text.removeprefix("+") for text in CHANGES.values()
    ]


@given(st.floats(min_value=10, max_value=1e8))
def test_a_duration_is_exact_to_the_smaller_of_its_units(seconds: float) -> None:
    sizes = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
    parts = format_duration(seconds).split()
    result = sum(int(many) * sizes[unit] for many, unit in zip(parts[::2], parts[1::2], strict=True))
    largest = sizes[parts[1]]
    smaller = max([size for size in sizes.values() if size < largest], default=1)
    assert -0.5 <= seconds - result < smaller + 0.5


def test_other_numbers() -> None:
    assert [format_percent(0.8125), format_percent(math.nan)] == ["81.2 %", "unknown"]
    assert [*map(format_points, (-0.024, -0.0001, math.nan))] == ["−2.4", "0.0", "unknown"]
    assert [format_count(1, "build"), format_count(2510, "build")] == ["1 build", "2,510 builds"]
    assert format_count(0, "entry", "entries") == "0 entries"


def test_timestamps_are_in_utc_and_dates_in_their_own_zone() -> None:
    midnight = pd.Timestamp("2026-10-19 00:00", tz="Europe/Berlin")
    assert format_timestamp(midnight) == "Sun 18 Oct 2026, 22:00 UTC"
    assert format_date(midnight) == "Mon 19 Oct 2026"
    assert format_timestamp(pd.NaT) == "unknown"  # type: ignore[arg-type]


NAMES = {
    "web": "web", " ": "(no name)", "": "(no name)", None: "(no name)", pd.NA: "(no name)", "a\nb\x00": "a␊b␀",
    "\u202ex": "‹U+202E›x", "\u2068x\u2069": "‹U+2068›x‹U+2069›", "a\x85": "a‹U+0085›",
    "\u05d0": "\u2068\u05d0\u2069", "\ud800": "‹U+D800›", "\U0001f468\u200d\U0001f469": "\U0001f468\u200d\U0001f469",
}  # fmt: skip


def test_names_show_what_is_invisible_and_what_is_missing() -> None:
    assert {name: format_name(name) for name in NAMES} == NAMES


@given(st.text() | st.sampled_from(UNTRUSTED))
def test_escaped_text_is_one_line_that_can_be_encoded(text: str) -> None:
    result = escape_invisible(text)
    assert result.encode().decode() == result
    assert len(result.splitlines()) <= 1
    assert escape_invisible(result) == result


@given(st.text(), st.integers(3, 50))
def test_truncated_text_keeps_both_ends(text: str, limit: int) -> None:
    result = truncate_middle(text, limit)
    assert len(result) <= limit
    assert result == text or (text.startswith(result.split("…")[0]) and text.endswith(result[-1]))


def test_truncated_text_of_one_or_two_characters() -> None:
    assert [truncate_middle("abcd", 1), truncate_middle("abcd", 2)] == ["…", "a…"]
