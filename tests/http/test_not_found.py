"""Errors of a 404 name the missing resource: the one that the server names, or else the last one in the path."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import buildframe as bf
from buildframe.http import not_found
from buildframe.workspace import Workspace
from tests.conftest import Scripted, hang_up, says
from tests.refusals import wrong_refusals

ACME = "/v2/organizations/acme"
ID = "0190b3aa-0000-7000-8000-0000000000aa"


def test_a_404_names_the_missing_resource() -> None:
    named = {
        (f"{ACME}/pipelines/web/builds/7?x=1", "No build found"): "build 7 of pipeline 'web' of organization 'acme'",
        (f"{ACME}/pipelines/web/builds/7", "No pipeline found"): "pipeline 'web' of organization 'acme'",
        (f"{ACME}/pipelines/web/builds/7/cancel", "Not Found"): "build 7 of pipeline 'web' of organization 'acme'",
        (f"{ACME}/pipelines/web/builds?page=2", "No organization found"): "organization 'acme'",
        (
            "/v2/analytics/organizations/acme/suites/rspek/flaky-tests",
            "",
        ): "test suite 'rspek' of organization 'acme'",
        (f"{ACME}/teams/{ID}/pipelines", "No team found"): f"team '{ID}' of organization 'acme'",
        (f"{ACME}/members/{ID}", "No user found"): f"member '{ID}' of organization 'acme'",
        (f"{ACME}/clusters/c1/queues/q1", ""): "queue 'q1' of cluster 'c1' of organization 'acme'",
        (f"{ACME}/pipelines/we%20b", ""): "pipeline 'we b' of organization 'acme'",
    }
    found = {one: not_found.describe(*one).partition(", or this token may not see it.")[0] for one in named}
    assert found == {one: f"There is no {name}" for one, name in named.items()}


def test_a_404_of_an_unknown_route_or_without_slugs_names_no_resource() -> None:
    paths = ["/v2/builds", "/graphql", "/", "", f"{ACME.removesuffix('/acme')}"]
    paths += [f"{ACME}/agentz", f"{ACME}/agentz?per_page=100", f"{ACME}/pipelines"]
    messages = {path: f"No route matches {path.split('?')[0].strip('/')}" for path in paths}
    assert {path: not_found.describe(path, message) for path, message in messages.items()} == dict.fromkeys(paths, "")


def test_a_404_of_the_sandbox_names_the_missing_resource(ci: Workspace) -> None:
    calls: list[tuple[Callable[[Workspace], object], str]] = [
        (lambda ws: ws.flaky_tests("rspek"), "no test suite 'rspek' of organization 'acme'.*URL of the suite's page"),
        (lambda ws: ws.team_pipelines(ID), f"no team '{ID}' of organization 'acme'.*UUID"),
        (lambda ws: ws.member(ID), f"no member '{ID}' of organization 'acme'.*members"),
        (lambda ws: ws.pipeline("wbe").builds(), r"no pipeline 'wbe' of organization 'acme'.*pipelines\(\)"),
        (lambda ws: ws.pipeline("wbe").get(), r"may not see it\. Did you mean 'web'\? Workspace\.pipelines\(\)"),
        (lambda ws: ws.pipeline("wbe").create_build(commit="HEAD", branch="main"), r"Did you mean 'web'\?"),
        (lambda ws: ws.get(f"{ACME}/pipelines/wbe"), r"Did you mean 'web'\?"),
        (lambda ws: ws.pipeline("web").build(10**9), r"no build 1000000000 of pipeline 'web'.*builds\(\)"),
        (lambda ws: ws.log(f"{ws.base_url}{ACME}/pipelines/web/builds/1/jobs/{ID}/log"), f"no job '{ID}' of build 1"),
    ]
    assert wrong_refusals([(call, f"404.*{words}") for call, words in calls], lambda one: one(ci), bf.NotFound) == {}


def test_a_404_of_a_path_without_slugs_advises_to_check_the_url(scripted: Callable[..., Scripted]) -> None:
    server = scripted(says(b'{"message":"No route matches"}', 404))
    with pytest.raises(bf.NotFound, match="base_url= or BUILDFRAME_URL"):
        bf.connect(base_url=server.url, token="a-test-token").builds()


NO_PIPELINE = says(b'{"message": "No pipeline found"}', 404)


def test_a_misspelled_pipeline_costs_one_more_request_and_never_another_error(
    scripted: Callable[..., Scripted],
) -> None:
    for number, (response, suggestion) in enumerate(
        [
            (says(b'[{"slug": "web"}, {"slug": "api"}]'), "Did you mean 'web'?"),
            (says(b'[{"slug": "\\u202ewbe"}]'), r"Did you mean '\u202ewbe'?"),
            (says(b'[{"slug": "docs"}]'), ""),
            (says(b'[{"slug": null}]'), ""),
            (says(b"[{"), ""),
            (says(b"{}"), ""),
            (says(b'{"message": "No"}', 403), ""),
            (says(b'{"message": "Slower"}', 429, RateLimit_Reset="600"), ""),
            (says(b"", 503), ""),
            (hang_up, ""),
        ]
    ):
        server = scripted(NO_PIPELINE, response)
        with pytest.raises(bf.NotFound) as missing:
            bf.connect("acme", base_url=server.url, token="a-test-token").pipeline("wbe").builds()
        assert server.requests[1:] == [f"{ACME}/pipelines?per_page=100"], number
        assert (missing.value.status, missing.value.message) == (404, "No pipeline found"), number
        assert ("Did you mean" in str(missing.value)) == bool(suggestion), number
        assert suggestion in str(missing.value), number


def test_a_missing_build_or_organization_suggests_no_pipeline(scripted: Callable[..., Scripted]) -> None:
    for message in (b'{"message": "No build found"}', b'{"message": "No organization found"}'):
        server = scripted(says(message, 404))
        with pytest.raises(bf.NotFound):
            bf.connect("acme", base_url=server.url, token="a-test-token").pipeline("web").build(7)
        assert len(server.requests) == 1
