"""An independent client of the hosted service, connected to the sandbox."""

from __future__ import annotations

import datetime as dt
import html
import re
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
from pybuildkite.buildkite import Buildkite, BuildState
from pybuildkite.jobs import LogFormat

from buildframe.sandbox_server import Sandbox

Body = dict[str, Any]
SCOPES = ("read_builds", "write_builds", "read_pipelines", "write_pipelines")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(builds=100, days=7, seed=5) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def client(sandbox: Sandbox) -> Buildkite:
    return pointed_at(sandbox, per_page=100)


def pointed_at(sandbox: Sandbox, per_page: int) -> Buildkite:
    client = Buildkite(per_page=per_page)
    client.base_url = f"{sandbox.url}/v2/"
    client.set_access_token(sandbox.token(scopes=SCOPES))
    return client


def paged(list_page: Any, *arguments: Any, **filters: Any) -> list[Body]:
    """All items, by the pages that its responses name."""
    items: list[Body] = []
    page = 0  # as it begins itself
    while True:
        response = list_page(*arguments, page=page, with_pagination=True, **filters)
        items += response.body
        if not response.next_page:
            return items
        page = response.next_page


def shown(line: str) -> str:
    """A line of a log without timestamp and colors."""
    return re.sub(r"\x1b_bk;t=\d+\x07|\x1b\[[\d;]*m", "", line)


def test_all_builds_by_its_paging(sandbox: Sandbox, client: Buildkite) -> None:
    everything = paged(client.builds().list_all)
    assert len(everything) > 100
    assert len({build["id"] for build in everything}) == len(everything)
    of_acme = [build["id"] for build in everything if "/organizations/acme/" in build["url"]]
    assert [build["id"] for build in paged(client.builds().list_all_for_org, "acme")] == of_acme
    of_web = [build["id"] for build in everything if "/organizations/acme/pipelines/web/" in build["url"]]
    few = pointed_at(sandbox, per_page=7)
    assert [build["id"] for build in paged(few.builds().list_all_for_pipeline, "acme", "web")] == of_web


def test_builds_by_its_filters(client: Buildkite) -> None:
    builds = client.builds()
    everything = paged(builds.list_all)

    def assert_lists(expected: list[Body], **filters: Any) -> None:
        assert 0 < len(expected) < len(everything)
        assert [build["id"] for build in paged(builds.list_all, **filters)] == [build["id"] for build in expected]

    assert_lists([b for b in everything if b["state"] == "failed"], states=[BuildState.FAILED])
    two = [b for b in everything if b["state"] in ("failed", "canceled")]
    assert_lists(two, states=[BuildState.FAILED, BuildState.CANCELED])
    assert_lists([b for b in everything if b["branch"] == "main"], branch="main")
    branches = sorted({b["branch"] for b in everything})[:2]
    assert_lists([b for b in everything if b["branch"] in branches], branch=branches)
    commit = everything[0]["commit"]
    assert_lists([b for b in everything if b["commit"] == commit], commit=commit)
    midnight = dt.date(2026, 10, 29)
    assert_lists([b for b in everything if b["created_at"][:10] >= "2026-10-29"], created_from=midnight)
    channel = [b for b in everything if b["meta_data"].get("channel") == "stable"]
    assert_lists(channel, meta_data={"channel": "stable"})


def test_times_with_an_unencoded_plus(client: Buildkite) -> None:
    """It writes `+00:00` into the query as it is, which arrives as a blank."""
    bound = dt.datetime(2026, 10, 29, 12, tzinfo=dt.UTC)
    late = paged(client.builds().list_all, created_from=bound)
    early = paged(client.builds().list_all, created_to=bound)
    assert late
    assert early
    assert len(late) + len(early) == len(paged(client.builds().list_all))
    assert all(pd.Timestamp(build["created_at"]) >= bound for build in late)


def test_a_build_with_all_attempts(client: Buildkite) -> None:
    retried = next(
        build
        for build in paged(client.builds().list_all, include_retried_jobs=True)
        if any(job.get("retried") for job in build["jobs"])
    )
    slug, number = retried["pipeline"]["slug"], retried["number"]
    organization = retried["url"].split("/organizations/")[1].split("/")[0]
    last = client.builds().get_build_by_number(organization, slug, number)
    every = client.builds().get_build_by_number(organization, slug, number, include_retried_jobs=True)
    assert {job["id"] for job in every["jobs"]} == {job["id"] for job in retried["jobs"]}
    assert len(last["jobs"]) < len(every["jobs"])


def test_the_life_of_a_build(sandbox: Sandbox, client: Buildkite) -> None:
    builds = client.builds()
    build = builds.create_build(
        "acme", "web", "HEAD", "main", message="Try", env={"A": "b"}, meta_data={"k": "v"}, clean_checkout=True
    )
    assert (build["state"], build["message"], build["env"]["A"], build["meta_data"]["k"]) == (
        "scheduled",
        "Try",
        "b",
        "v",
    )
    canceled = builds.cancel_build("acme", "web", build["number"])
    assert canceled["state"] == "canceled"
    again = builds.rebuild_build("acme", "web", build["number"])
    assert again["number"] > build["number"]
    assert again["rebuilt_from"]["id"] == build["id"]
    sandbox.clock.advance(dt.timedelta(hours=4))
    over = builds.get_build_by_number("acme", "web", again["number"])
    assert over["finished_at"]
    job = next(job for job in over["jobs"] if job.get("finished_at") and job.get("raw_log_url"))
    log = client.jobs().get_job_log("acme", "web", again["number"], job["id"], LogFormat.TEXT)
    assert b"$ " in log or job["command"].encode() in log
    page = client.jobs().get_job_log("acme", "web", again["number"], job["id"])  # HTML, by default
    assert html.unescape(page.decode()).splitlines() == [shown(line) for line in log.decode().splitlines()]


def test_pipelines_are_listed(client: Buildkite) -> None:
    slugs = [pipeline["slug"] for pipeline in paged(client.pipelines().list_pipelines, "acme")]
    assert "web" in slugs
    assert client.pipelines().get_pipeline("acme", "web")["slug"] == "web"


def test_the_life_of_a_pipeline(client: Buildkite) -> None:
    """It knows of no clusters, so it works in an organization that has none."""
    pipelines, repository = client.pipelines(), "git@github.com:example/new.git"
    made = [
        pipelines.create_pipeline("globex", "By Steps", repository),
        pipelines.create_yaml_pipeline("globex", "By Yaml", repository, "steps:\n  - command: make\n"),
    ]
    assert [(one["slug"], one["cluster_id"]) for one in made] == [("by-steps", None), ("by-yaml", None)]
    for slug in ("by-steps", "by-yaml"):
        changed = pipelines.update_pipeline("globex", slug, description="Changed", default_branch="trunk")
        assert (changed["description"], changed["default_branch"]) == ("Changed", "trunk")
        assert pipelines.archive_pipeline("globex", slug)["archived_at"]
        assert pipelines.unarchive_pipeline("globex", slug)["archived_at"] is None
        assert pipelines.delete_pipeline("globex", slug) is True
    left = {pipeline["slug"] for pipeline in paged(pipelines.list_pipelines, "globex")}
    assert not left & {"by-steps", "by-yaml"}


def test_emojis(client: Buildkite) -> None:
    emojis = client.emojis().list_emojis("acme")
    assert emojis
    assert all(emoji["name"] and emoji["url"].startswith("http") for emoji in emojis)
