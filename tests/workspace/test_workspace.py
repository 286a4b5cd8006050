"""Methods of the workspace, against the sandbox over real HTTP."""

from __future__ import annotations

import datetime as dt
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from matplotlib import pyplot as plt

import buildframe as bf
from buildframe import plots, spec
from buildframe.sandbox_server import Fault
from buildframe.spec import TABLES
from buildframe.workspace import Workspace
from tests import worlds
from tests.conftest import Scripted, says
from tests.refusals import wrong_refusals


def names(table: str) -> list[str]:
    return [column.name for column in TABLES[table]]


def test_builds_and_jobs_of_an_organization(ci: Workspace) -> None:
    history = ci.history()
    builds, jobs = history
    assert list(builds) == names("builds")
    assert list(jobs) == names("jobs")
    assert builds["id"].is_unique
    assert jobs["id"].is_unique
    assert builds["created_at"].is_monotonic_decreasing
    assert set(builds["organization"]) == {"acme"}
    assert set(jobs["build_id"]) <= set(builds["id"])
    assert builds.attrs["complete"] is True
    assert builds.attrs["as_of"] == ci.sandbox.clock.now().text()
    assert (builds["fetched_at"] == ci.sandbox.clock.now()).all()
    pd.testing.assert_frame_equal(ci.jobs(), jobs)
    lean = ci.builds()
    pd.testing.assert_frame_equal(lean, builds)
    assert "exclude_jobs=true" in lean.attrs["source"]


def test_a_pipeline_lists_only_its_own_builds(ci: Workspace) -> None:
    everything = ci.builds()
    web = ci.pipeline("web").builds()
    expected = everything[everything["pipeline"] == "web"].reset_index(drop=True)
    pd.testing.assert_frame_equal(web, expected)


def test_without_an_organization_all_builds_of_the_token_are_listed() -> None:
    with worlds.sandbox(builds=60, days=3) as ci:
        everywhere = bf.connect(base_url=ci.sandbox.url, token=ci.sandbox.token())
        builds = everywhere.builds()
        assert set(builds["organization"]) == {"acme", "globex"}
        only = bf.connect(base_url=ci.sandbox.url, token=ci.sandbox.token(organizations=["globex"]))
        assert set(only.builds()["organization"]) == {"globex"}
        with pytest.raises(bf.BadInput, match="BUILDFRAME_ORG"):
            everywhere.pipelines()


def test_pipelines(ci: Workspace) -> None:
    pipelines = ci.pipelines()
    assert list(pipelines) == names("pipelines")
    assert "web" in set(pipelines["slug"])
    record = ci.pipeline("web").get()
    row = pipelines.set_index("slug").loc["web"]
    assert (record.id, record.created_at) == (row["id"], row["created_at"])


def test_one_build_as_a_record(ci: Workspace) -> None:
    row = ci.builds(state="passed").iloc[0]
    build = ci.pipeline(row["pipeline"]).build(int(row["number"]))
    assert (build.id, build.state, build.created_at) == (row["id"], "passed", row["created_at"])
    assert build.organization == "acme"
    assert build.jobs
    assert {job.type for job in build.jobs} <= {"script", "waiter", "manual", "trigger"}
    assert "Build(id=" in repr(build)


@pytest.mark.long
def test_retried_jobs_are_included_by_default(ci: Workspace) -> None:
    jobs = ci.jobs(created_from="5d")
    last = ci.jobs(created_from="5d", include_retried_jobs=False)
    assert jobs["retried"].sum() > 0
    assert last["retried"].sum() == 0
    assert len(last) == len(jobs) - jobs["retried"].sum()


def test_time_ranges_exclude_their_end_and_ages_follow_the_services_clock(ci: Workspace) -> None:
    builds = ci.builds()
    edge = builds["created_at"].iloc[30]
    from_edge, to_edge = ci.builds(created_from=edge), ci.builds(created_to=edge)
    assert len(from_edge) + len(to_edge) == len(builds)
    assert from_edge["created_at"].min() == edge
    recent = ci.builds(created_from="48h")
    since = ci.sandbox.clock.now() - dt.timedelta(hours=48)
    assert set(recent["id"]) == set(builds[builds["created_at"] >= since]["id"])
    assert len(recent) < len(builds)


def test_filters_reach_the_service(ci: Workspace) -> None:
    builds = ci.builds()
    branch = builds["branch"].value_counts().index[1]
    assert set(ci.builds(branch=[branch])["branch"]) == {branch}
    commit = builds["commit"].iloc[5]
    assert set(ci.builds(commit=commit)["commit"]) == {commit}
    failed = ci.builds(state=["failed", "canceled"])
    assert set(failed["state"]) == {"failed", "canceled"}
    assert "changed during the listing" in failed.attrs["note"]
    creator = builds["creator_id"].dropna().iloc[0]
    assert set(ci.builds(creator=creator)["creator_id"]) == {creator}
    assert len(ci.builds(branch="no such branch")) == 0
    assert list(ci.builds(branch="no such branch").dtypes) == list(builds.dtypes)


def test_the_pipeline_column_is_filled_if_pipelines_are_excluded(ci: Workspace) -> None:
    lean = ci.builds(exclude_pipeline=True)
    assert lean["pipeline_id"].isna().all()
    assert list(lean["pipeline"]) == list(ci.builds()["pipeline"])


def test_extra_columns_by_path_and_raw_records(ci: Workspace) -> None:
    extra = {"repo": "pipeline.repository", "again": "number"}
    job_extra = {"of": "build.message", "step_uuid": "step.id"}
    builds, jobs = ci.history(created_from="2d", extra=extra, job_extra=job_extra, raw=True)
    assert list(builds["again"]) == [str(number) for number in builds["number"]]
    assert builds["repo"].str.contains("example").all()
    assert list(jobs.loc[jobs["type"] == "script", "step_uuid"]) == list(jobs.loc[jobs["type"] == "script", "step_id"])
    message = builds.set_index("id")["message"]
    assert list(jobs["of"]) == list(message.loc[jobs["build_id"]])
    assert builds["raw"].str.startswith("{").all()
    assert jobs.dtypes["raw"] == builds.dtypes["repo"] == "str"
    cases: list[tuple[Any, str]] = [(bad, "extra=.*a mapping from text") for bad in ({"x": 5}, ["a"], {"x": [1]})]
    cases.append(({"state": "meta_data.state"}, "already have these columns"))
    assert wrong_refusals(cases, lambda extra: ci.builds(extra=extra)) == {}
    with pytest.warns(UserWarning, match=r"'meta_dta.team'"):
        ci.builds(created_from="2d", extra={"team": "meta_dta.team"})


def test_bad_time_ranges_and_contradictions_are_refused_before_anything_is_sent(ci: Workspace) -> None:
    with pytest.raises(bf.BadInput, match="Swap created_from"):
        ci.builds(created_from="2026-10-20", created_to="2026-10-10")
    with pytest.raises(bf.BadInput, match="Use builds"):
        ci.jobs(exclude_jobs=True)
    with pytest.raises(bf.BadInput, match="Did you mean 'branch'"):
        ci.builds(brnach="main")  # type: ignore[call-arg]
    with pytest.raises(bf.BadInput, match="slug"):
        ci.pipeline("")


def test_errors_say_what_to_do_next(ci: Workspace) -> None:
    errors: list[tuple[str, tuple[str, ...], type[bf.ServiceError], str]] = [
        ("nowhere", ("read_builds",), bf.NotFound, "no organization 'nowhere'.*Check its slug"),
        ("globex", ("read_builds",), bf.NotFound, "No organization found.*authorized"),
        ("acme", ("read_pipelines",), bf.Forbidden, "read_builds.*Use a token that has the scope read_builds"),
    ]
    for organization, scopes, kind, words in errors:
        token = ci.sandbox.token(scopes=scopes, organizations=["acme"])
        with pytest.raises(kind, match=f"(?s){words}") as caught:
            bf.connect(organization, base_url=ci.sandbox.url, token=token).builds()
        assert token not in str(caught.value)


def test_an_invalid_organization_is_refused_when_connecting() -> None:
    cases = [(slug, "organization=") for slug in ("", " ", "acme/web", "https://ci.example.com/acme", 7)]
    assert wrong_refusals(cases, lambda slug: bf.connect(slug, token="a-test-token")) == {}


def test_wrong_tokens_and_unknown_names_raise_an_error(ci: Workspace) -> None:
    with pytest.raises(bf.Unauthorized, match=r"401.*Access Token"):
        bf.connect("acme", base_url=ci.sandbox.url, token="a-wrong-token").builds()
    with pytest.raises(bf.NotFound, match="No pipeline found"):
        ci.pipeline("nope").builds()
    with pytest.raises(bf.NotFound, match="No build found"):
        ci.pipeline("web").build(10**9)


@pytest.mark.long
def test_a_listing_is_complete_while_hundreds_of_builds_arrive() -> None:
    """The clock does not advance, so all new builds have the timestamp of the newest build of the first response."""
    with worlds.sandbox(builds=900, days=12) as ci:
        before = ci.builds()
        ci.sandbox.fault(Fault("arrive", route="list_builds", n=50))
        during = ci.builds(workers=4, created_to=before["created_at"].max() + dt.timedelta(days=1))
        ci.sandbox.clear_faults()
        arrived = set(ci.builds()["id"]) - set(before["id"])
    assert len(arrived) >= 200
    assert during.attrs["complete"]
    assert during.attrs["requests"] <= 20
    assert set(during["id"]) >= set(before["id"])
    assert during["id"].is_unique
    assert len(set(during["id"]) & arrived) <= 50  # those that arrived before the first response


@pytest.mark.long
def test_a_listing_filtered_by_state_is_complete() -> None:
    with worlds.sandbox(builds=900, days=12) as ci:
        every = ci.builds(columns=["id", "state"])
        for workers in (1, 4):
            passed = ci.builds(state="passed", columns=["id", "state"], workers=workers)
            assert passed.attrs["complete"]
            assert "filtered by state, which changes" in passed.attrs["note"]
            assert "did not report" not in passed.attrs["note"]
            assert set(passed["id"]) == set(every.loc[every["state"] == "passed", "id"])
            assert passed.attrs["requests"] <= every.attrs["requests"]


def test_signatures_and_docstrings_contain_the_filters() -> None:
    for method in (Workspace.builds, Workspace.jobs, Workspace.history):
        parameters = inspect.signature(method).parameters
        assert set(spec.list_builds.filter_names) <= set(parameters)
        assert "Created at or after" in (method.__doc__ or "")


def test_a_workspace_without_a_sandbox_raises_an_error() -> None:
    with pytest.raises(bf.BadInput, match=r"buildframe.sandbox\(\)"):
        _ = bf.connect("acme", token="a-test-token").sandbox


def test_history_does_not_warn(ci: Workspace) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ci.history(created_from="2d")


@pytest.mark.long
def test_steps_of_the_same_name_in_two_pipelines_are_drawn_separately(ci: Workspace) -> None:
    axes = plots.step_times(ci.jobs(), top=200)
    labels = {label.get_text().split("  (")[0] for label in axes.get_yticklabels()}
    assert {"web / lint", "api / lint"} <= labels
    plt.close("all")


def test_a_list_of_several_pages_notes_the_effect_of_deletions(scripted: Callable[..., Scripted]) -> None:
    second = "</v2/organizations/acme/members?page=2>"
    first = says(b'[{"id":"a"}]', Link=f'{second}; rel="next", {second}; rel="last"')
    server = scripted(first, says(b'[{"id":"b"}]'))
    ws = bf.connect("acme", base_url=server.url, token="a-secret-token")
    assert "deleted in the meantime" in ws.members().attrs["note"]
    assert ws.members().attrs["note"] is None
