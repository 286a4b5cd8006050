"""Handlers of test suites, their runs, tests with metrics, and failed executions.

Runs follow from the builds of the suite's pipeline; metrics, from these and from the flakes of each
test.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from buildframe import spec
from buildframe.sandbox_server.db.serializers import ORIGIN, JsonObject, format_time, graphql_id
from buildframe.sandbox_server.error_responses import get_first_or_404
from buildframe.sandbox_server.handlers import lookup, routes
from buildframe.sandbox_server.handlers.flaky_tests import SimulatedTest, SuiteRegistry, parse_period
from buildframe.sandbox_server.handlers.registry import ApiRequest, ApiResponse, HandlerGroup, handles
from buildframe.sandbox_server.world.build_state import BuildRun
from buildframe.sandbox_server.world.model import Organization, Suite
from buildframe.spec.flaky_tests import DEFAULT_PERIOD
from buildframe.spec.suite_tests import METRICS_VERSION

_MOST_FAILED = 4
_FLAKED = 0.1
"""Share of passed builds in which a test failed, and passed when it was repeated."""


class _Window(NamedTuple):
    """The executions that metrics refer to: since a time, on a branch or on all."""

    since: int
    now: int
    branch: str | None


class SuiteHandlers(HandlerGroup):
    """Handles test suites."""

    @functools.cached_property
    def _tests(self) -> SuiteRegistry:
        return SuiteRegistry(self._db)

    def _find_suite(self, path: Mapping[str, str]) -> tuple[Organization, Suite]:
        return lookup.find_organization(self._db, path), lookup.find_suite(self._db, path)

    @handles(routes.list_suites)
    def _list_suites(self, request: ApiRequest) -> ApiResponse:
        organization = lookup.find_organization(self._db, request.path)
        suites = [self._suite(organization, suite) for suite in organization.suites]
        return ApiResponse(request.page.slice(suites), len(suites))

    @handles(routes.get_suite)
    def _get_suite(self, request: ApiRequest) -> ApiResponse:
        return ApiResponse(self.suite(request.path))

    def suite(self, path: Mapping[str, str]) -> JsonObject:
        """Serialize the suite that the parts of a path name. Raises 404 without it."""
        return self._suite(*self._find_suite(path))

    def _suite(self, organization: Organization, suite: Suite) -> JsonObject:
        id = self._db.serializer.suite_id(organization, suite)
        return {
            "id": id,
            "graphql_id": graphql_id("Suite", id),
            "slug": suite.slug,
            "name": suite.slug.replace("-", " ").title(),
            "default_branch": "main",
            "url": _api_url(organization.slug, suite.slug),
            "web_url": _web_url(organization.slug, suite.slug),
        }

    # --- runs

    @handles(routes.list_runs)
    def _list_runs(self, request: ApiRequest) -> ApiResponse:
        organization, suite = self._find_suite(request.path)
        runs = [self._run(organization, suite, build) for build in self._builds(organization, suite)]
        return ApiResponse(request.page.slice(runs), len(runs))

    @handles(routes.get_run)
    def _get_run(self, request: ApiRequest) -> ApiResponse:
        return ApiResponse(self.run(request.path))

    def run(self, path: Mapping[str, str]) -> JsonObject:
        """Serialize the run that the parts of a path name. Raises 404 without it."""
        organization, suite = self._find_suite(path)
        return self._run(organization, suite, self._find_run(path, organization, suite))

    def _builds(self, organization: Organization, suite: Suite) -> Iterator[BuildRun]:
        """Yield the builds that ran a suite, newest first."""
        condition = "pipeline_key = ? AND state IN ('passed', 'failed') AND over = 1"
        builds = self._db.load_builds(condition, f"{organization.slug}/{suite.pipeline}")
        yield from reversed(list(builds))

    def _find_run(self, path: Mapping[str, str], organization: Organization, suite: Suite) -> BuildRun:
        id = path["run"].lower()
        builds = self._builds(organization, suite)
        return get_first_or_404((build for build in builds if self._db.serializer.run_id(suite, build) == id), "run")

    def _run(self, organization: Organization, suite: Suite, build: BuildRun) -> JsonObject:
        id = self._db.serializer.run_id(suite, build)
        return {
            "id": id,
            "branch": build.commit.branch,
            "commit_sha": build.commit.sha,
            "state": "finished",
            "result": "failed" if self._failed_tests(organization, suite, build) else "passed",
            "build_id": build.id,
            "created_at": format_time(build.created),
            "url": f"{_api_url(organization.slug, suite.slug)}/runs/{id}",
            "web_url": f"{_web_url(organization.slug, suite.slug)}/runs/{id}",
        }

    @handles(spec.list_failed_executions)
    def _list_failed_executions(self, request: ApiRequest) -> ApiResponse:
        organization, suite = self._find_suite(request.path)
        build = self._find_run(request.path, organization, suite)
        tests = self._failed_tests(organization, suite, build)
        executions = [self._execution(organization, suite, build, test) for test in tests]
        return ApiResponse(request.page.slice(executions), len(executions))

    def _failed_tests(self, organization: Organization, suite: Suite, build: BuildRun) -> list[SimulatedTest]:
        """Return the tests that failed in a run.

        These are some if its build failed. Rarely it is one that passed when it was repeated.
        """
        random = self._db.serializer.random
        count = 1 + int(random.uniform(build.id, suite.slug, "failed") * _MOST_FAILED)
        if build.state != "failed":
            count = int(random.happens(_FLAKED, build.id, suite.slug, "flaked"))
        tests = self._tests.list_all_tests(organization.slug, suite.slug) if count else []
        return sorted(tests, key=lambda test: random.uniform(build.id, test.id, "failed"))[:count]

    def _execution(self, organization: Organization, suite: Suite, build: BuildRun, test: SimulatedTest) -> JsonObject:
        random = self._db.serializer.random
        run = self._db.serializer.run_id(suite, build)
        id = random.uuid("execution", build.id, test.id)
        pages = _web_url(organization.slug, suite.slug)
        return {
            "execution_id": id,
            "run_id": run,
            "run_name": run,
            "test_id": test.id,
            "test_name": f"{test.text['scope']} {test.text['name']}".strip(),
            "location": test.text["location"],
            "branch": build.commit.branch,
            "commit_sha": build.commit.sha,
            "failure_reason": "Failure: expected 3, got <4>",
            "duration": round(self._mean_duration(test) * random.uniform_between(0.6, 2.0, id, "duration"), 5),
            "created_at": format_time(build.finished),
            "run_url": f"{pages}/runs/{run}",
            "test_url": f"{pages}/tests/{test.id}",
            "test_execution_url": f"{pages}/tests/{test.id}?execution_id={id}",
        }

    # --- tests

    @handles(spec.list_tests)
    def _list_tests(self, request: ApiRequest) -> ApiResponse:
        organization, suite = self._find_suite(request.path)
        filters = request.filters
        now = self._db.load_now()
        period = parse_period(str(filters.get("period", DEFAULT_PERIOD)))
        branch = filters.get("branch")
        window = _Window(now - period, now, None if branch is None else str(branch))
        n_runs = self._count_runs(organization, suite, window)
        has_tests = n_runs > 0 and filters.get("state", "enabled") == "enabled"
        bodies = []
        for test in self._tests.list_all_tests(organization.slug, suite.slug) if has_tests else ():
            body = self._test(test, now)
            if filters.get("label") in (None, *body["labels"]):
                if request.version >= METRICS_VERSION:
                    body |= self._metrics(test, n_runs, window)
                bodies.append(body)
        return ApiResponse(request.page.slice(bodies), len(bodies))

    @handles(routes.get_test)
    def _get_test(self, request: ApiRequest) -> ApiResponse:
        return ApiResponse(self.test(request.path))

    def test(self, path: Mapping[str, str]) -> JsonObject:
        """Serialize the test that the parts of a path name. Raises 404 without it."""
        organization, suite = self._find_suite(path)
        id = path["test"].lower()
        tests = self._tests.list_all_tests(organization.slug, suite.slug)
        test = get_first_or_404((test for test in tests if test.id == id), "test")
        return self._test(test, self._db.load_now())

    def _count_runs(self, organization: Organization, suite: Suite, window: _Window) -> int:
        sql = "SELECT count(*) FROM builds WHERE pipeline_key = ? AND state IN ('passed', 'failed') AND over = 1"
        values = f"{organization.slug}/{suite.pipeline}", window.since, window.branch, window.branch
        ((count,),) = self._db.query(f"{sql} AND finished >= ? AND (branch = ? OR ? IS NULL)", values)
        return int(count)

    def _test(self, test: SimulatedTest, now: int) -> JsonObject:
        flakes = test.flakes(now)
        is_resolved = bool(flakes) and flakes[-1].resolved is not None and flakes[-1].resolved <= now
        return {
            "id": test.id,
            "url": f"{_api_url(test.organization, test.suite.slug)}/tests/{test.id}",
            "web_url": f"{_web_url(test.organization, test.suite.slug)}/tests/{test.id}",
            **{name: test.text[name] for name in ("scope", "name", "location", "file_name")},
            "labels": ["flaky"] if flakes and not is_resolved else [],
        }

    def _metrics(self, test: SimulatedTest, runs: int, window: _Window) -> JsonObject:
        """Return the metrics of a test that each of `runs` runs executed.

        Each flake in the window is a failure.
        """
        flakes = zip(test.flakes(window.now), test.branches(window.now), strict=True)
        recorded = [branch for flake, branch in flakes if flake.recorded >= window.since]
        failed = sum(window.branch in (None, branch) for branch in recorded)
        executions = max(runs, failed)
        mean = self._mean_duration(test)
        passed = executions - failed
        return {
            "reliability": round(passed / executions, 4),
            "duration_avg": round(mean, 3),
            "duration_sum": round(mean * executions, 3),
            "duration_min": round(mean * 0.5, 3),
            "duration_max": round(mean * 3, 3),
            "executions_count": executions,
            "executions_count_by_result": {"passed": passed, "failed": failed},
        }

    def _mean_duration(self, test: SimulatedTest) -> float:
        """Return the mean duration of a test in seconds."""
        return self._db.serializer.random.lognormal(0.4, 0.8, test.id, "duration")


def _api_url(organization: str, suite: str) -> str:
    return f"{ORIGIN}/v2/analytics/organizations/{organization}/suites/{suite}"


def _web_url(organization: str, suite: str) -> str:
    return f"{ORIGIN}/organizations/{organization}/analytics/suites/{suite}"
