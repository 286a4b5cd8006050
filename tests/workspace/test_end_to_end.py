"""Actions and smaller lists end to end: a user's call, real HTTP and the sandbox's database."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

import buildframe as bf
from buildframe import spec
from buildframe.spec import TABLES
from buildframe.workspace import Workspace
from tests import worlds
from tests.fetching.test_arrow import assert_declared

YAML = "steps:\n  - label: ':hammer: \"all\"'\n    command: make\n"


@pytest.fixture(scope="module")
def ci() -> Iterator[Workspace]:
    """A workspace on a separate sandbox, which these tests change."""
    with worlds.sandbox(builds=150, days=5) as workspace:
        yield workspace


@pytest.fixture
def hello(ci: Workspace) -> Iterator[spec.Pipeline]:
    """A pipeline that is deleted after the test."""
    created = ci.create_pipeline(name="Hello  World", cluster_id=None, repository="git@git.example.com:acme/hello.git",
                              configuration=YAML, tags=[":wave:"], env={"DEPTH": "all"})  # fmt: skip
    yield created
    for slug in set(ci.pipelines()["slug"]) & {"hello-world", "hello-you"}:
        ci.pipeline(slug).delete()


@pytest.fixture(scope="module")
def team(ci: Workspace) -> str:
    return next(iter(ci.sandbox.teams().values()))


def test_a_build_is_created_canceled_and_built_again(ci: Workspace) -> None:
    web = ci.pipeline("web")
    newest = web.builds()["number"].max()
    build = web.create_build(
        commit="HEAD", branch="main", message="Ship it \U0001f680", env={"A": "ü"}, meta_data={"release": "1"},
        author={"name": "Ada", "email": "ada@example.com"},
    )  # fmt: skip
    assert build.number == newest + 1
    assert (build.state, build.branch, build.message) == ("scheduled", "main", "Ship it \U0001f680")
    assert (build.env, build.meta_data) == ({"A": "ü"}, {"release": "1"})
    assert web.cancel(build.number).state in {"canceled", "canceling"}
    with pytest.raises(bf.Invalid, match="can't be canceled"):
        web.cancel(build.number)
    again = web.rebuild(build.number)
    assert again.rebuilt_from is not None
    assert (again.rebuilt_from.number, again.number) == (build.number, build.number + 1)
    found = web.builds(branch="main", created_from="1h").set_index("number")
    assert found.loc[again.number, "rebuilt_from"] == build.number


def test_a_pipeline_is_updated_archived_and_deleted(ci: Workspace, hello: spec.Pipeline) -> None:
    assert (hello.slug, hello.configuration, hello.tags, hello.cluster_id) == ("hello-world", YAML, [":wave:"], None)
    pipeline = ci.pipeline("hello-world")
    changed = pipeline.update(name="Hello You", description="Says hello")
    assert (changed.id, changed.slug, pipeline.slug) == (hello.id, "hello-you", "hello-you")
    assert pipeline.get().description == "Says hello"
    assert pipeline.archive().archived_at is not None
    with pytest.raises(bf.Invalid, match="could not be archived"):
        pipeline.archive()
    assert pipeline.unarchive().archived_at is None
    pipeline.delete()
    with pytest.raises(bf.NotFound):
        pipeline.get()


def test_a_pipeline_with_steps_is_created_and_a_duplicate_name_is_refused(ci: Workspace, hello: spec.Pipeline) -> None:
    with pytest.raises(bf.Invalid, match="name already_exists"):
        ci.create_pipeline(name=hello.name or "", cluster_id=None, repository="r", configuration=YAML)
    created = ci.create_pipeline(
        name="Hello You", cluster_id=None, repository="git@git.example.com:acme/hello.git",
        steps=[{"type": "script", "command": "make"}, {"type": "waiter"}, {"type": "manual", "label": "Go?"}],
    )  # fmt: skip
    assert [step["type"] for step in created.steps or ()] == ["script", "waiter", "manual"]


def test_a_team_gets_a_pipeline_by_rest(ci: Workspace, team: str, hello: spec.Pipeline) -> None:
    assert hello.id is not None
    created = ci.create_team_pipeline(team, pipeline_id=hello.id, access_level="read_only")
    assert (created.pipeline, created.access_level) == ("hello-world", "read_only")
    assert ci.update_team_pipeline(team, hello.id, access_level="build_and_read").access_level == "build_and_read"
    assert ci.team_pipeline(team, hello.id).access_level == "build_and_read"
    rows = ci.team_pipelines(team).set_index("pipeline_id")
    assert rows.loc[hello.id, "access_level"] == "build_and_read"
    ci.delete_team_pipeline(team, hello.id)
    assert hello.id not in set(ci.team_pipelines(team)["pipeline_id"])
    with pytest.raises(bf.NotFound):
        ci.team_pipeline(team, hello.id)


def test_a_team_gets_a_pipeline_by_graphql(ci: Workspace, team: str, hello: spec.Pipeline) -> None:
    assert hello.id is not None
    for level in ("read_only", "manage_build_and_read"):
        ci.set_team(hello, team, level)
        assert ci.team_pipeline(team, hello.id).access_level == level
    ci.remove_team("hello-world", team)
    with pytest.raises(bf.BadInput, match="no access"):
        ci.remove_team(ci.pipeline("hello-world"), team)
    with pytest.raises(bf.GraphQLError):
        ci.graphql("{ no_such_field }")


def failed_run_of(runs: pd.DataFrame) -> str:
    return str(runs.loc[runs["result"] == "failed", "id"].iloc[0])


def annotated_build_of(ci: Workspace) -> int:
    web = ci.pipeline("web")
    numbers = web.builds(state=["passed", "failed"])["number"]
    return next(int(number) for number in numbers if len(web.annotations(int(number))))


def test_each_small_list_is_a_frame(ci: Workspace, team: str) -> None:
    suite = ci.sandbox.suites()[0]
    runs = ci.table(f"/analytics/organizations/acme/suites/{suite}/runs")
    arguments: dict[str, tuple[Any, ...]] = {
        "team_pipelines": (team,),
        "annotations": (annotated_build_of(ci),),
        "flaky_tests": (suite,),
        "tests": (suite,),
        "failed_executions": (suite, failed_run_of(runs)),
    }
    for table in sorted(TABLES.keys() - {"builds", "jobs"}):
        place: Any = ci.pipeline("web") if table == "annotations" else ci
        frame: pd.DataFrame = getattr(place, table)(*arguments.get(table, ()))
        assert_declared(frame, table)
        assert len(frame), table
        assert (frame["fetched_at"] == ci.sandbox.clock.now()).all(), table
        assert (frame.attrs["table"], frame.attrs["complete"]) == (table, True)
        assert frame.attrs["as_of"] == ci.sandbox.clock.now().text()
        more: pd.DataFrame = getattr(place, table)(*arguments.get(table, ()), raw=True)
        assert list(more) == [*(column.name for column in TABLES[table]), "raw"]


def test_flaky_tests_are_filtered_by_the_service(ci: Workspace) -> None:
    suite = ci.sandbox.suites()[0]
    every = ci.flaky_tests(suite)
    some = every["name"].iloc[0]
    found = ci.flaky_tests(suite, search=some)
    assert 0 < len(found) < len(every)
    assert "search=" in found.attrs["source"]
    none = ci.flaky_tests(suite, search="no test has this name")
    assert_declared(none, "flaky_tests")
    assert len(none) == 0
    with pytest.raises(bf.NotFound):
        ci.flaky_tests("no-such-suite")


def test_a_member_is_found_by_id(ci: Workspace) -> None:
    row = ci.members().iloc[0]
    member = ci.member(row["id"])
    assert repr(member).startswith(f"Member(id={row['id']!r}, name=")
    with pytest.raises(bf.NotFound):
        ci.member("0190b3aa-0000-7000-8000-00000000ffff")


def test_the_log_of_a_job(ci: Workspace) -> None:
    jobs = ci.jobs()
    ran = jobs[(jobs["type"] == "script") & (jobs["state"] == "passed")].iloc[0]
    text = ci.log(ran)
    assert "$ git checkout" in text
    assert ci.log(ran["log_url"]) == text
    record = next(
        job for job in ci.pipeline(ran["pipeline"]).build(ran["build_number"]).jobs or () if job.id == ran["id"]
    )
    assert ci.log(record) == text


def test_the_error_names_the_missing_scope(ci: Workspace) -> None:
    reader = bf.connect("acme", base_url=ci.sandbox.url, token=ci.sandbox.token())
    with pytest.raises(bf.Forbidden, match="scope write_builds"):
        reader.pipeline("web").create_build(commit="HEAD", branch="main")
    with pytest.raises(bf.Forbidden, match="scope GraphQL"):
        reader.graphql("{ a }")
    assert len(reader.emojis())


def test_the_repr_of_a_record_is_short(ci: Workspace) -> None:
    jobs = ci.jobs(created_from=ci.sandbox.clock.now() - dt.timedelta(days=5))
    biggest = jobs.groupby(["pipeline", "build_number"]).size().idxmax()
    build = ci.pipeline(biggest[0]).build(int(biggest[1]))
    assert f"jobs=<{len(build.jobs or ())} items>" in repr(build)
    assert len(repr(build)) < 2500
    assert len(repr(ci.pipeline("web").get())) < 3500
