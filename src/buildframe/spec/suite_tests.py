"""Declare the tests of a suite with their metrics, and failed executions of tests."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict, Unpack

from buildframe.spec.declare import KEY, PLAIN, Resource, table
from buildframe.spec.operations import Name, Uuid, endpoint, keywords
from buildframe.spec.times import Moment

METRICS_VERSION = "2026-08-01"
"""First version of the API whose list of tests has metrics."""


@table("tests")
class SuiteTest(Resource):
    """A test of a suite, and metrics of its executions within the requested time."""

    id: Annotated[str | None, "UUID of the test", PLAIN, KEY] = None
    scope: Annotated[str | None, "group of the test, such as its class", PLAIN] = None
    name: Annotated[str | None, "name of the test", PLAIN] = None
    location: Annotated[str | None, "file and line", PLAIN] = None
    file_name: Annotated[str | None, "file", PLAIN] = None
    labels: Annotated[list[str] | None, "its labels, such as `flaky`", PLAIN] = None
    reliability: Annotated[
        float | None, "passed executions as a share of passed and failed ones; null if there are none", PLAIN
    ] = None
    duration_avg: Annotated[float | None, "mean duration in seconds", PLAIN] = None
    duration_sum: Annotated[float | None, "sum of durations in seconds", PLAIN] = None
    duration_min: Annotated[float | None, "shortest duration in seconds", PLAIN] = None
    duration_max: Annotated[float | None, "longest duration in seconds", PLAIN] = None
    executions_count: Annotated[int | None, "number of executions", PLAIN] = None
    executions_count_by_result: Annotated[
        dict[str, Any] | None, "number of executions by result, such as `passed`", PLAIN
    ] = None
    url: Annotated[str | None, "API URL", PLAIN] = None
    web_url: Annotated[str | None, "web page", PLAIN] = None


@table("failed_executions")
class FailedExecution(Resource):
    """One failed execution of a test in a run of its suite."""

    execution_id: Annotated[str | None, "UUID of the execution", PLAIN, KEY] = None
    run_id: Annotated[str | None, "UUID of the run", PLAIN] = None
    run_name: Annotated[str | None, "name of the run", PLAIN] = None
    test_id: Annotated[str | None, "UUID of the test", PLAIN] = None
    test_name: Annotated[str | None, "name of the test", PLAIN] = None
    location: Annotated[str | None, "file and line", PLAIN] = None
    branch: Annotated[str | None, "branch of the run", PLAIN] = None
    commit_sha: Annotated[str | None, "commit of the run", PLAIN] = None
    failure_reason: Annotated[str | None, "message of the failure (untrusted text)", PLAIN] = None
    duration: Annotated[float | None, "duration in seconds", PLAIN] = None
    created_at: Annotated[Moment | None, "when it was recorded", PLAIN] = None
    run_url: Annotated[str | None, "web page of the run", PLAIN] = None
    test_url: Annotated[str | None, "web page of the test", PLAIN] = None
    test_execution_url: Annotated[str | None, "web page of the execution", PLAIN] = None


@keywords
class SuiteTestFilters(TypedDict, total=False):
    """Filters of lists of tests."""

    label: Annotated[str, "with this label, such as `flaky`"]
    branch: Annotated[str, "executed on this branch; its executions count"]
    state: Annotated[str, "in this state, such as `enabled`"]
    period: Annotated[str, "executed within this time, such as `7days` or `28days`, to which the metrics refer"]


_SUITE = "/analytics/organizations/{org}/suites/{suite}"


@endpoint(
    f"GET {_SUITE}/tests",
    returns=SuiteTest,
    scope="read_suites",
    paginated=True,
    documented=False,
    version=METRICS_VERSION,
)
def list_tests(org: Name, suite: Name, /, **filters: Unpack[SuiteTestFilters]) -> None:
    """Tests of a test suite, with metrics of their executions."""


@endpoint(
    f"GET {_SUITE}/runs/{{run}}/failed_executions",
    returns=FailedExecution,
    scope="read_suites",
    paginated=True,
    documented=False,
)
def list_failed_executions(org: Name, suite: Name, run: Uuid, /) -> None:
    """Failed executions of tests in a run of a test suite."""
