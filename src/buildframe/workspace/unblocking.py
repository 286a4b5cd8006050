"""Unblock a block step by the address that its job carries. Knows jobs and addresses; does not know lists or frames."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pandas as pd

from buildframe import spec
from buildframe.errors import BadInput
from buildframe.fetching import records
from buildframe.http import protocol
from buildframe.http.client import Client
from buildframe.http.request_body import body_of
from buildframe.http.urls import SplitUrl
from buildframe.workspace.logs import AnyJob

_PATH = re.compile(protocol.API + re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", spec.unblock_job.path))


def unblock(client: Client, job: AnyJob, properties: Mapping[str, Any], inside: tuple[str, ...] = ()) -> spec.Job:
    """Unblock the block step of a job, which must belong to `inside`: an organization, or that and a pipeline."""
    body_of(spec.unblock_job, properties)  # a misspelt property is refused first
    organization, pipeline, number, id = _place(client, _address(job))
    if [name.lower() for name in (organization, pipeline)][: len(inside)] != [name.lower() for name in inside]:
        raise BadInput(
            f"The job belongs to the pipeline {organization}/{pipeline}, not to {'/'.join(inside)}; nothing was sent. "
            f"Use connect({organization!r}).pipeline({pipeline!r}).unblock(job)."
        )
    request = protocol.request_for(spec.unblock_job, organization, pipeline, number, id, **properties)
    advice = f"Look at .pipeline({pipeline!r}).build({number}).jobs: an unblocked job has a time in unblocked_at."
    return records.record(client, request, spec.Job, advice)


def _address(job: AnyJob) -> str:
    if isinstance(job, pd.DataFrame):
        raise BadInput(
            "job: pass one row of the frame, such as jobs.iloc[0]: only one block step is unblocked at a time."
        )
    if isinstance(job, str) and re.fullmatch(r"[0-9A-Fa-f-]{36}", job):
        raise BadInput(f"job={job!r} is only an id. Pass the job itself, or the address in its unblock_url.")
    if isinstance(job, str):
        return job
    address = job.get("unblock_url") if isinstance(job, Mapping | pd.Series) else getattr(job, "unblock_url", None)
    if not isinstance(address, str) or not address:
        hint = " Was it left out of columns=?" if isinstance(job, pd.Series) and "unblock_url" not in job else ""
        raise BadInput(f"This job has no unblock_url. Only block steps (jobs of the type 'manual') have one.{hint}")
    return address


def _place(client: Client, address: str) -> tuple[str, str, int, str]:
    """The organization, pipeline, build number and job id that an address names.

    Rows can come from anywhere, so nothing but the path of this very action on this service is accepted.
    """
    try:
        place = SplitUrl.parse(address)
    except ValueError as why:
        raise BadInput(
            f"unblock_url={protocol.shown(address)!r} is no address: {why}. Fetch the build again."
        ) from None
    home = SplitUrl.parse(client.base_url)
    found = _PATH.fullmatch(place.target.removeprefix(home.target.rstrip("/")))
    if place.origin != home.origin or found is None:
        raise BadInput(
            f"unblock_url={protocol.shown(address)!r} is not the address of a block step at {client.base_url}; "
            "nothing was sent. Pass a job that this workspace fetched."
        )
    org, pipeline, number, job = found["org"], found["pipeline"], found["number"], found["job"]
    if not number.isdecimal() or len(number) > 18:
        raise BadInput(
            f"unblock_url={protocol.shown(address)!r} names no build: {number!r} is not a number. "
            "Fetch the build again."
        )
    return org, pipeline, int(number), job
