"""Unblock a block step given by a record, a row of a frame or a URL; refused arguments send nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import buildframe as bf
from buildframe import spec
from buildframe.errors import BadInput, Forbidden, Invalid
from buildframe.workspace import Workspace
from tests.conftest import Scripted, says
from tests.http.test_client import connected
from tests.refusals import wrong_refusals
from tests.worlds import sandbox

STEP = "/v2/organizations/acme/pipelines/web/builds/7/jobs/0190b3aa-0000-7000-8000-0000000000bb/unblock"


@pytest.fixture(scope="module")
def acme() -> Iterator[Workspace]:
    """A separate sandbox, since the tests change its builds."""
    with sandbox(builds=1000, days=8) as workspace:
        yield workspace


def waiting(acme: Workspace) -> Any:
    """The row of a block step that waits, from a frame of jobs."""
    jobs = acme.jobs(state="blocked")
    return jobs[(jobs["type"] == "manual") & (jobs["state"] == "blocked")].iloc[0]


def as_record(acme: Workspace, row: Any) -> spec.Job:
    jobs = acme.pipeline(row["pipeline"]).build(int(row["build_number"])).jobs
    return next(job for job in jobs or () if job.id == row["id"])


FORMS: dict[str, Callable[[Workspace, Any], Any]] = {
    "a row": lambda acme, row: row,
    "a mapping": lambda acme, row: row.to_dict(),
    "a record": as_record,
    "a URL": lambda acme, row: row["unblock_url"],
}


def test_a_blocked_step_is_unblocked_once(acme: Workspace) -> None:
    for form in FORMS.values():
        row = waiting(acme)
        job = acme.unblock(form(acme, row))
        assert (job.id, job.state) == (row["id"], "unblocked")
        assert job.unblocked_at is not None
        again = as_record(acme, row)
        assert (again.state, again.unblocked_at) == ("unblocked", job.unblocked_at)
        with pytest.raises(Invalid, match="isn't blocked"):
            acme.unblock(row)


def test_fields_become_meta_data_of_the_build(acme: Workspace) -> None:
    row = waiting(acme)
    pipeline = acme.pipeline(row["pipeline"])
    pipeline.unblock(row, fields={"release-notes": "none"})
    build = pipeline.build(int(row["build_number"]))
    assert (build.meta_data or {})["release-notes"] == "none"
    found = pipeline.builds(meta_data={"release-notes": "none"})
    assert list(found["number"]) == [build.number]


def test_another_member_can_be_named_as_unblocker(acme: Workspace) -> None:
    row, member = waiting(acme), acme.members().iloc[-1]
    with pytest.raises(Invalid, match="unblocker"):
        acme.unblock(row, unblocker="0190b3aa-0000-7000-8000-0000000000cc")
    with pytest.raises(BadInput, match="unblocker"):
        acme.unblock(row, unblocker="Ada")
    acme.unblock(row, unblocker=member["id"])
    unblocked_by = as_record(acme, row).unblocked_by
    assert unblocked_by is not None
    assert unblocked_by.id == member["id"]


def test_the_error_names_the_missing_scope(acme: Workspace) -> None:
    reader = acme.sandbox.token(scopes=["read_builds"])

    with bf.connect("acme", base_url=acme.base_url, token=reader) as limited, pytest.raises(Forbidden) as refused:
        limited.unblock(waiting(acme))
    assert "write_builds" in str(refused.value)


def test_a_pipeline_unblocks_only_its_own_jobs(acme: Workspace) -> None:
    row = waiting(acme)
    other = next(slug for slug in acme.pipelines()["slug"] if slug != row["pipeline"])
    with pytest.raises(BadInput, match=f"pipeline acme/{row['pipeline']}, not to acme/{other};"):
        acme.pipeline(other).unblock(row)
    token = acme.sandbox.token(scopes=["write_builds"])
    with (
        bf.connect("globex", base_url=acme.base_url, token=token) as globex,
        pytest.raises(BadInput, match="not to globex"),
    ):
        globex.unblock(row)
    assert as_record(acme, row).state == "blocked"


def test_anything_but_a_single_job_is_refused_with_advice(acme: Workspace) -> None:
    row = waiting(acme)
    for job, text in (
        (row.to_frame().T, r"one row, such as jobs\.iloc\[0\]"),
        (row["id"], "is an id"),
        (row.drop("unblock_url"), "omitted by columns="),
    ):
        with pytest.raises(BadInput, match=text):
            acme.unblock(job)


ELSEWHERE = [
    "https://example.com" + STEP,
    "//example.com" + STEP,
    "ftp://127.0.0.1" + STEP,
    "{service}/v2/organizations/acme/pipelines/web/builds/7/cancel",
    "{service}/v2/organizations/acme/pipelines/web",
    "{service}" + STEP + "?x=1",
    "{service}" + STEP.replace("/7/", "/seven/"),
    "{service}" + STEP.replace("/7/", f"/{'7' * 5000}/"),
    "not an address",
    "",
]


def test_no_request_is_sent_to_another_url_or_for_another_job(scripted: Callable[..., Scripted]) -> None:
    server = scripted(says(b'{"id":"j"}'))
    ws: Any = connected(server)
    addresses = [address.format(service=server.url) for address in ELSEWHERE]
    cases: list[tuple[Any, str]] = [(address, "unblock_url") for address in addresses]
    cases += [({"unblock_url": address}, "unblock_url") for address in addresses]
    cases += [(job, "block steps") for job in ({"id": "j", "type": "script"}, {"unblock_url": None}, spec.Job(id="j"))]
    assert wrong_refusals(cases, ws.unblock) == {}
    assert server.requests == []
