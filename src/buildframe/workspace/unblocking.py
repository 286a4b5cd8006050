"""Unblock a block step by the URL in its job. Does not know lists or frames."""

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
from buildframe.workspace.logs import JobReference, value_in

_PATH = re.compile(protocol.API + re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", spec.unblock_job.path))


def unblock(client: Client, job: JobReference, properties: Mapping[str, Any], inside: tuple[str, ...] = ()) -> spec.Job:
    """Unblock the block step of a job, which must belong to `inside`: an organization, or that and a pipeline."""
    body_of(spec.unblock_job, properties)  # invalid properties raise BadInput first
    organization, pipeline, number, id = _split(client, _url_of(job))
    if [name.lower() for name in (organization, pipeline)][: len(inside)] != [name.lower() for name in inside]:
        raise BadInput(
            f"The job belongs to the pipeline {organization}/{pipeline}, not to {'/'.join(inside)}; nothing was sent. "
            f"Use connect({organization!r}).pipeline({pipeline!r}).unblock(job)."
        )
    request = protocol.request_for(spec.unblock_job, organization, pipeline, number, id, **properties)
    advice = f"Look at .pipeline({pipeline!r}).build({number}).jobs: an unblocked job has a time in unblocked_at."
    return records.record(client, request, spec.Job, advice)


def _url_of(job: JobReference) -> str:
    if isinstance(job, pd.DataFrame):
        raise BadInput("job= is a frame. Pass one row, such as jobs.iloc[0].")
    if isinstance(job, str) and re.fullmatch(r"[0-9A-Fa-f-]{36}", job):
        raise BadInput(f"job={job!r} is an id. Pass the job itself, or the URL in its unblock_url.")
    if isinstance(job, str):
        return job
    url = value_in(job, "unblock_url")
    if url is None:
        hint = " Was it omitted by columns=?" if isinstance(job, pd.Series) and "unblock_url" not in job else ""
        raise BadInput(f"This job has no unblock_url. Only block steps (jobs of the type 'manual') have one.{hint}")
    return url


def _split(client: Client, url: str) -> tuple[str, str, int, str]:
    """Return the organization, pipeline, build number and job id in a URL.

    Rows can come from anywhere, so only the path of this action at this service is accepted.
    """
    try:
        found = _PATH.fullmatch(client.target_of(url) or "")
    except ValueError as why:
        raise BadInput(f"unblock_url={protocol.shown(url)!r} is not a URL: {why}. Fetch the build again.") from None
    if found is None:
        raise BadInput(
            f"unblock_url={protocol.shown(url)!r} is not the URL of a block step at {client.base_url}; "
            "nothing was sent. Pass a job that this workspace fetched."
        )
    org, pipeline, number, job = found["org"], found["pipeline"], found["number"], found["job"]
    if not number.isdecimal() or len(number) > 18:
        raise BadInput(
            f"unblock_url={protocol.shown(url)!r} has an invalid build number {number!r}. Fetch the build again."
        )
    return org, pipeline, int(number), job
