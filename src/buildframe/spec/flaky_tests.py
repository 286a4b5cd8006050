"""Declare flaky tests: tests that passed and failed on the same commit, as reported by the service."""

from __future__ import annotations

from typing import Annotated, TypedDict, Unpack

from buildframe.spec.declare import Name, Resource, endpoint
from buildframe.spec.times import Moment


class FlakyTest(Resource):
    """A test that the service detected as flaky."""

    id: Annotated[str | None, "UUID of the test"] = None
    scope: Annotated[str | None, "group of the test, such as its class"] = None
    name: Annotated[str | None, "name of the test"] = None
    location: Annotated[str | None, "file and line"] = None
    file_name: Annotated[str | None, "file"] = None
    instances: Annotated[int | None, "number of detected flakes"] = None
    latest_occurrence_at: Annotated[Moment | None, "when it last flaked"] = None
    most_recent_instance_at: Annotated[Moment | None, "when the newest of its flakes was recorded"] = None
    last_resolved_at: Annotated[Moment | None, "when someone last marked it as resolved"] = None
    ownership_team_ids: Annotated[list[str] | None, "UUIDs of the teams that own it"] = None
    web_url: Annotated[str | None, "web page"] = None


class FlakyTestFilters(TypedDict, total=False):
    """Filters of lists of flaky tests."""

    search: Annotated[str, "name or scope contains this text"]
    branch: Annotated[str, "flaked at least once on this branch"]
    period: Annotated[str, "flaked within this time, such as `7days`; hosted service only"]


@endpoint(
    "GET /analytics/organizations/{org}/suites/{suite}/flaky-tests",
    returns=FlakyTest,
    scope="read_suites",
    paginated=True,
)
def list_flaky_tests(org: Name, suite: Name, /, **filters: Unpack[FlakyTestFilters]) -> None:
    """Flaky tests of a test suite."""
