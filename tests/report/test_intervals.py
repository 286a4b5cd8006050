"""Small plots of changes: common scales, ends beyond them, and text alternatives."""

from __future__ import annotations

import math

from buildframe.formatting import format_duration, format_points
from buildframe.report.intervals import Scale, signed

NAN = float("nan")


def test_a_scale_holds_reported_intervals_and_most_others() -> None:
    ordinary = (1.0, 4.0, False)
    seconds = {
        "nothing": ([], 1),
        "one": ([ordinary], 5),
        "reported": ([ordinary, (60.0, 400.0, True)], 600),
        "one wide interval is cut": ([(-9.0, 9.0, False)] * 9 + [(-5_000.0, 5_000.0, False)], 10),
        "a value without an interval is not certain": ([(NAN, NAN, False), ordinary], 5),
        "an interval without an end": ([(4.5, NAN, True)], 5),
        "the longest": ([(1.0, 250_000.0, True)], 86_400),
    }
    shares = {"reported": ([(0.05, 0.18, True)], 0.2), "unknown": ([(NAN, NAN, False)], 0.01)}
    for cases, is_share in ((seconds, False), (shares, True)):
        found = {name: Scale.of(rows, is_share=is_share).limit for name, (rows, _) in cases.items()}
        assert found == {name: limit for name, (_, limit) in cases.items()}


def test_a_mark_has_the_places_of_its_numbers_and_a_text_alternative() -> None:
    mark = Scale(300).mark(180.0, 60.0, 450.0, "bad", signed(format_duration))
    assert (mark.x, mark.low, mark.high) == (0.6, 0.2, 1.0)
    assert (mark.is_cut_low, mark.is_cut_high, mark.mood) == (False, True, "bad")
    assert (mark.value, mark.text) == ("+3 min", "+3 min, interval +1 min to +7 min 30 s")
    mark = Scale(0.1).mark(
        -0.05, NAN, -0.025, "good", signed(format_points), lambda value: f"{100 * value:+.0f} points"
    )
    assert (mark.x, mark.low, mark.high, mark.is_cut_low, mark.is_cut_high) == (-0.5, -1.0, -0.25, True, False)
    assert (mark.value, mark.text) == ("−5.0", "-5 points, interval up to -2 points")


def test_what_is_unknown_is_not_drawn() -> None:
    nothing = Scale(300).mark(NAN, NAN, NAN, "", format_duration)
    assert (nothing.x, nothing.low, nothing.value, nothing.text) == (None, None, "", "unknown: too little data")
    alone = Scale(300).mark(900.0, NAN, NAN, "", format_duration)
    assert (alone.x, alone.low, alone.text) == (0.9, None, "15 min, no interval: too little data")
    assert math.isclose(Scale(300).mark(0.0, -30.0, 30.0, "", format_duration).low or 0, -0.1)


def test_a_sign_is_shown_unless_the_number_is_zero() -> None:
    show = signed(lambda number: f"{number:.1f}".replace("-", "−"))
    assert [show(value) for value in (3.9, -2.1, 0.0, 0.01)] == ["+3.9", "−2.1", "0.0", "0.0"]
