"""Declare flaky tests: tests that passed and failed on the same commit, as reported by the service."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Literal, TypedDict, Unpack

from buildframe.spec.declare import KEY, PLAIN, Resource, table
from buildframe.spec.operations import Name, endpoint, keywords
from buildframe.spec.times import Moment

Period = Literal["1hour", "4hours", "1day", "7days", "14days", "28days"]
DEFAULT_PERIOD: Period = "7days"
LONGEST_PERIOD: Period = "28days"

PERIODS: dict[str, dt.timedelta] = {
    "1hour": dt.timedelta(hours=1),
    "4hours": dt.timedelta(hours=4),
    "1day": dt.timedelta(days=1),
    "7days": dt.timedelta(days=7),
    "14days": dt.timedelta(days=14),
    "28days": dt.timedelta(days=28),
}
"""Length of each period of a list of flaky tests. An unlisted test was quiet for that long."""


@table("flaky_tests")
class FlakyTest(Resource):
    """A test that the service detected as flaky."""

    id: Annotated[str | None, "UUID of the test", PLAIN, KEY] = None
    scope: Annotated[str | None, "group of the test, such as its class", PLAIN] = None
    name: Annotated[str | None, "name of the test", PLAIN] = None
    location: Annotated[str | None, "file and line", PLAIN] = None
    file_name: Annotated[str | None, "file", PLAIN] = None
    instances: Annotated[int | None, "number of detected flakes", PLAIN] = None
    latest_occurrence_at: Annotated[Moment | None, "when it last flaked", PLAIN] = None
    most_recent_instance_at: Annotated[Moment | None, "when the newest of its flakes was recorded", PLAIN] = None
    last_resolved_at: Annotated[Moment | None, "when someone last marked it as resolved", PLAIN] = None
    ownership_team_ids: Annotated[list[str] | None, "UUIDs of the teams that own it", PLAIN] = None
    web_url: Annotated[str | None, "web page", PLAIN] = None


@keywords
class FlakyTestFilters(TypedDict, total=False):
    """Filters of lists of flaky tests."""

    search: Annotated[str, "name or scope contains this text"]
    branch: Annotated[str, "flaked at least once on this branch"]
    period: Annotated[
        Period, "flaked within this time; the service returns those of 7 days by default; hosted service only"
    ]


_SUITE = "/analytics/organizations/{org}/suites/{suite}"


@endpoint(f"GET {_SUITE}/flaky-tests", returns=FlakyTest, scope="read_suites", paginated=True)
def list_flaky_tests(org: Name, suite: Name, /, **filters: Unpack[FlakyTestFilters]) -> None:
    """Flaky tests of a test suite."""
