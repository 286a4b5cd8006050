"""One build as two frames, equal to those of a listing."""

from __future__ import annotations

import pytest
import tenacity
from pandas.testing import assert_frame_equal

import buildframe as bf
from buildframe.http import retry
from tests.conftest import says

ONLY_ALONE = ["agent_hostname", "agent_meta_data"]


def test_a_single_build_equals_the_listed_one_except_for_details_of_agents(ci):
    builds, jobs = ci.pipeline("web").history(progress=False)
    number = int(jobs.loc[jobs["retried"].fillna(False), "build_number"].iloc[0])
    found = ci.pipeline("web").history_of(number)
    assert_frame_equal(found.builds, builds[builds["number"] == number].reset_index(drop=True))
    listed = jobs[jobs["build_number"] == number].reset_index(drop=True)
    assert_frame_equal(found.jobs.drop(columns=ONLY_ALONE), listed.drop(columns=ONLY_ALONE))
    assert found.jobs.loc[found.jobs["agent"].notna(), "agent_hostname"].notna().all()
    assert listed["agent_hostname"].isna().all()


def test_without_retried_attempts(ci):
    jobs = ci.pipeline("web").jobs(progress=False)
    number = int(jobs.loc[jobs["retried"].fillna(False), "build_number"].iloc[0])
    last = ci.pipeline("web").history_of(number, include_retried_jobs=False).jobs
    assert not last["retried"].fillna(False).any()
    assert len(last) < (jobs["build_number"] == number).sum()


def test_attrs_contain_the_source(ci):
    number = int(ci.pipeline("web").builds(columns=["number"], progress=False)["number"].iloc[0])
    found = ci.pipeline("web").history_of(number)
    for name, frame in zip(("builds", "jobs"), found, strict=True):
        assert {"table": name, "complete": True, "requests": 1}.items() <= frame.attrs.items()
        assert f"/pipelines/web/builds/{number}" in frame.attrs["source"]
        assert frame.attrs["as_of"] == ci.sandbox.clock.now().text()


def test_one_that_is_not_there(ci):
    with pytest.raises(bf.NotFound, match="No build found"):
        ci.pipeline("web").history_of(10**9)


def test_another_build_than_the_requested_one_is_refused_and_not_requested_again(scripted, monkeypatch):
    monkeypatch.setattr(retry, "_backoff", tenacity.wait_none())
    server = scripted(says(b"{}"))
    pipeline = bf.connect("acme", base_url=server.url, token="a-secret-token").pipeline("web")
    for body in (b'{"id":"b7","number":7}', b'{"id":"b5"}', b'{"id":"","number":5}'):
        server.responses = [says(body)]
        for read in (pipeline.build, pipeline.history_of):
            server.requests.clear()
            with pytest.raises(bf.Malformed, match="another record"):
                read(5)
            assert len(server.requests) == 1
        with pytest.raises(bf.OutcomeUnknown, match="another record"):
            pipeline.cancel(5)


def test_a_rebuild_has_another_number(scripted):
    server = scripted(says(b'{"id":"b7","number":7}'))
    assert bf.connect("acme", base_url=server.url, token="a-secret-token").pipeline("web").rebuild(5).number == 7
