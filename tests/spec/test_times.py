import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildframe.errors import BadInput, Malformed
from buildframe.spec import Moment, is_relative, when

UTC = dt.UTC
NOW = Moment(2026, 11, 1, 12, tzinfo=UTC)


def test_every_form_of_the_service_is_read() -> None:
    expected = {
        "2023-04-21T22:04:18.920Z": Moment(2023, 4, 21, 22, 4, 18, 920000, tzinfo=UTC),
        "2023-04-21T22:04:18Z": Moment(2023, 4, 21, 22, 4, 18, tzinfo=UTC),
        "2023-04-22T00:04:18.5+02:00": Moment(2023, 4, 21, 22, 4, 18, 500000, tzinfo=UTC),
        "2013-09-03 13:24:38 UTC": Moment(2013, 9, 3, 13, 24, 38, tzinfo=UTC),
        "2023-04-21T22:04:18.123456789Z": Moment(2023, 4, 21, 22, 4, 18, 123456, tzinfo=UTC),
    }
    read = {text: Moment.parse(text) for text in expected}
    assert read == expected
    assert {type(moment) for moment in read.values()} == {Moment}


def test_what_is_no_moment_is_malformed() -> None:
    for text in ("2023-04-21T22:04:18", "yesterday", "", "2023-13-01T00:00:00Z"):
        with pytest.raises(Malformed, match="timestamp"):
            Moment.parse(text)


@given(st.datetimes(timezones=st.just(UTC), min_value=dt.datetime(1900, 1, 1), max_value=dt.datetime(2200, 1, 1)))
def test_text_and_microseconds_come_back(instant: dt.datetime) -> None:
    moment = Moment.of(instant)
    assert Moment.parse(moment.text()) == moment
    assert Moment.from_us(moment.us) == moment == instant


MEANT = [
    ("2026-10-01", Moment(2026, 10, 1, tzinfo=UTC)),
    (dt.date(2026, 10, 1), Moment(2026, 10, 1, tzinfo=UTC)),
    ("2026-10-01T02:00+02:00", Moment(2026, 10, 1, tzinfo=UTC)),
    ("2026-10-01 00:00:00 UTC", Moment(2026, 10, 1, tzinfo=UTC)),
    (dt.datetime(2026, 10, 1, 2, tzinfo=ZoneInfo("Europe/Berlin")), Moment(2026, 10, 1, tzinfo=UTC)),
    ("30d", Moment(2026, 10, 2, 12, tzinfo=UTC)),
    ("90m", Moment(2026, 11, 1, 10, 30, tzinfo=UTC)),
    (dt.timedelta(hours=1), Moment(2026, 11, 1, 11, tzinfo=UTC)),
]


def test_what_a_user_may_mean() -> None:
    assert [(value, when(value, "created_from", NOW)) for value, _ in MEANT] == MEANT  # type: ignore[arg-type]


def test_a_naive_time_is_refused_with_a_way_out() -> None:
    for value in (dt.datetime(2026, 10, 1), "2026-10-01T00:00", "20261001"):
        with pytest.raises(BadInput, match=r"created_from=.* time zone.*\bZ\b"):
            when(value, "created_from", NOW)  # type: ignore[arg-type]


def test_what_is_no_time_is_refused() -> None:
    for value in ("last week", "", 7, "30 days", dt.timedelta(days=-1), "99999999w"):
        with pytest.raises(BadInput):
            when(value, "created_from", NOW)  # type: ignore[arg-type]


def test_an_age_needs_the_services_time() -> None:
    assert is_relative("30d")
    assert not is_relative("2026-10-01")
    with pytest.raises(BadInput, match="service's time"):
        when("30d", "created_from")
