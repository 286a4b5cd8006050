"""Fetch the log of a job, retry it, and unblock a block step, by what the job says.

Does not know frames or lists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, Self, TypeAlias

import msgspec
import pandas as pd

from buildframe import spec
from buildframe.errors import BadInput, Malformed, ServiceError
from buildframe.fetching import records
from buildframe.http import protocol, urls
from buildframe.http.client import Client
from buildframe.http.protocol import Request
from buildframe.http.request_body import body_of
from buildframe.http.response import Response
from buildframe.http.retry import fetch
from buildframe.http.urls import SplitUrl
from buildframe.spec import Job
from buildframe.spec.operations import endpoint
from buildframe.terminal import (
    escape_control_characters,
    remove_escape_sequences,
    shorten,
    show,
)

MAX_REDIRECTS = 3

JobReference: TypeAlias = "Job | Mapping[str, Any] | pd.Series[Any] | str"
"""A job as a record, as a row of a frame, or the URL of its log."""


@endpoint("GET /log", returns=None, scope=None)
def get_log() -> None:
    """The log of a job, at the URL in the job."""


class _LogBody(msgspec.Struct):
    content: str


class Log(str):
    """
    The text of a log, harmless for a terminal, and so is every part of it.

    Control characters and escape sequences are replaced by visible characters, such as "␛" for an escape. Newlines and
    tabs stay; a carriage return before a newline is removed.

    Attributes
    ----------
    raw : str
        The text as the service sent it. If you print it, a terminal runs the escape sequences in it.
    plain : str
        The text to read or search: without escape sequences, such as colors and the timestamps of agents. Of a line
        that was overwritten, such as a progress bar, only the last text stays.
    """

    raw: str

    def __new__(cls, raw: str) -> Self:
        """Return the log with this text."""
        log = super().__new__(cls, escape_control_characters(raw.replace("\r\n", "\n")))
        log.raw = raw
        return log

    @property
    def plain(self) -> str:
        """The text without escape sequences."""
        return remove_escape_sequences(self.raw)


class _Redirect(str):
    """The URL that a response redirects to."""


def fetch_log(client: Client, job: JobReference) -> Log:
    """Return the log of a job; invalid UTF-8 is replaced.

    Up to three redirects are followed. After the first one that leads to another host, the token is not sent any more.
    """
    service = SplitUrl.parse(client.base_url)
    url, sends_token = _check_url(_url_of(job), service), True
    for _ in range(MAX_REDIRECTS + 1):
        sends_token = sends_token and url.origin == service.origin
        text = _fetch_log(client, url, sends_token)
        if not isinstance(text, _Redirect):
            return Log(text)
        try:
            url = _check_url(urls.join(url.origin + url.target, text), service)
        except ValueError as why:  # also BadInput: the service wrote this URL, not the user
            reason = shorten(str(why))
            raise Malformed(f"The log was redirected to a URL that is not followed: {reason}") from None
    raise Malformed(f"The log was redirected more than {MAX_REDIRECTS} times.")


def _url_of(job: JobReference) -> str:
    _check_is_job(job)
    if isinstance(job, str):
        return job
    url = value_in(job, "raw_log_url") or value_in(job, "log_url")
    if url is None:
        hint = "" if _has(job, "raw_log_url") or _has(job, "log_url") else " Was it omitted by columns=?"
        raise BadInput(f"This job has no log: it has neither raw_log_url nor log_url. Pass a job that ran.{hint}")
    return url


def _check_is_job(job: object) -> None:
    """Raise BadInput for what cannot be a job: a frame, or a build as a record or as a row."""
    if isinstance(job, pd.DataFrame):
        raise BadInput("job= is a frame. Pass one row, such as jobs.iloc[0].")
    if _has(job, "number") and not _has(job, "build_number"):
        raise BadInput("job= is a build. Pass one of its jobs: an entry of build.jobs, or a row such as jobs.iloc[0].")
    if not isinstance(job, str) and not any(_has(job, name) for name in _JOB_FIELDS):
        raise BadInput(f"job={show(job)} is not a job. Pass an entry of build.jobs, or a row such as jobs.iloc[0].")


def _has(job: object, name: str) -> bool:
    return name in job if isinstance(job, Mapping | pd.Series) else hasattr(job, name)


def value_in(job: JobReference, name: str) -> str | None:
    """Return a text of a job that is a record or a row; None if it is missing or empty."""
    value = job.get(name) if isinstance(job, Mapping | pd.Series) else getattr(job, name, None)
    return value if isinstance(value, str) and value else None


def _check_url(text: str, service: SplitUrl) -> SplitUrl:
    try:
        url = SplitUrl.parse(text)
    except ValueError as why:
        raise BadInput(f"The log's URL {protocol.shown(text)!r} cannot be used: {why}.") from None
    if not url.is_private or (url.origin.startswith("http:") and not service.origin.startswith("http:")):
        raise BadInput(f"The log's URL {url.origin} is not https, so others could read or change the log.")
    return url


def _fetch_log(client: Client, url: SplitUrl, sends_token: bool) -> str:
    """Fetch a log. Errors of a request without the token say nothing about the token, so they get the base type."""
    request = Request(get_log, url.target, accept="text/plain", is_signed=True)
    host = client.for_origin(url.origin, sends_token=sends_token)
    try:
        return fetch(host, request, _read, timeout=client.log_timeout)
    except ServiceError as why:
        if sends_token:
            raise
        location = shorten(f"{url.origin}{url.target.split('?')[0]}")
        where = f"GET {location}, the location of the log; the token was not sent there"
        raise ServiceError(why.status, why.message, where=where) from None


def _read(request: Request, response: Response) -> str:
    location = response.headers.get("location")
    if 300 <= response.status < 400 and location:
        return _Redirect(location)
    protocol.check(request, response)
    if "json" in response.headers.get("content-type", ""):
        return protocol.read_as(request, response, _LogBody, is_text=True).content
    return response.body.decode("utf-8", "replace")


# --- retries ----------------------------------------------------------------------------------------------------------

_JOB_PATH = re.compile(
    protocol.API + re.sub(r"{(\w+)}", r"(?P<\1>[^/?]+)", spec.list_build_jobs.path) + "/(?P<job>[^/?]+)"
)
_JOB_URLS = ("log_url", "raw_log_url", "artifacts_url")
_JOB_FIELDS = ("id", "unblock_url", *_JOB_URLS)
"""A job has at least one of them, however few columns were selected."""

_BUILD_COLUMNS = ("organization", "pipeline", "build_number", "id")


class _JobPlace(NamedTuple):
    """Where a job is: the parameters of its path."""

    organization: str
    pipeline: str
    number: int
    id: str


def retry(client: Client, job: JobReference, inside: tuple[str, ...] = ()) -> spec.Job:
    """Retry a job, which must belong to `inside`: an organization, or that and a pipeline."""
    place = _find_place(client, job)
    _check_inside(place.organization, place.pipeline, inside, "retry_job")
    request = protocol.request_for(spec.retry_job, *place)
    advice = f"Look at .pipeline({place.pipeline!r}).job({place.number}, {place.id!r}): `retried` is True if it was."
    return records.record(client, request, spec.Job, advice)


def _find_place(client: Client, job: JobReference) -> _JobPlace:
    """Return where a job is, from the columns of a row, else from one of its URLs."""
    _check_is_job(job)
    if isinstance(job, str):
        return _place_in(client, job)
    if isinstance(job, Mapping | pd.Series) and all(name in job for name in _BUILD_COLUMNS):
        organization, pipeline, number, id = (job[name] for name in _BUILD_COLUMNS)
        return _JobPlace(organization, pipeline, number, id)
    urls = (value_in(job, name) for name in _JOB_URLS)
    url = next((url for url in urls if url is not None), None)
    if url is None:
        raise BadInput(
            "This job does not say which build it belongs to. Pass a row with organization, pipeline, build_number and"
            " id, or a job with a log_url. Only jobs that run commands can be retried."
        )
    return _place_in(client, url)


def _place_in(client: Client, url: str) -> _JobPlace:
    try:
        found = _JOB_PATH.match(client.target_of(url) or "")
    except ValueError:
        found = None
    if found is None or not found["number"].isdecimal() or len(found["number"]) > 18:
        raise BadInput(
            f"job={protocol.shown(url)!r} is not the API URL of a job at {client.base_url}; nothing was sent. Pass a"
            " job that this workspace fetched."
        )
    return _JobPlace(found["org"], found["pipeline"], int(found["number"]), found["job"])


def _check_inside(organization: str, pipeline: str, inside: tuple[str, ...], action: str) -> None:
    """Raise BadInput if a job does not belong to an organization, or to that and a pipeline."""
    if [str(name).lower() for name in (organization, pipeline)][: len(inside)] != [name.lower() for name in inside]:
        raise BadInput(
            f"The job belongs to the pipeline {organization}/{pipeline}, not to {'/'.join(inside)}; nothing was sent. "
            f"Use connect({organization!r}).pipeline({pipeline!r}).{action}(job)."
        )


# --- block steps ------------------------------------------------------------------------------------------------------

_UNBLOCK_PATH = re.compile(protocol.API + re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", spec.unblock_job.path))


def unblock(client: Client, job: JobReference, properties: Mapping[str, Any], inside: tuple[str, ...] = ()) -> spec.Job:
    """Unblock the block step of a job, which must belong to `inside`: an organization, or that and a pipeline."""
    body_of(spec.unblock_job, properties)  # invalid properties raise BadInput first
    organization, pipeline, number, id = _split(client, _unblock_url_of(job))
    _check_inside(organization, pipeline, inside, "unblock")
    request = protocol.request_for(spec.unblock_job, organization, pipeline, number, id, **properties)
    advice = f"Look at .pipeline({pipeline!r}).build({number}).jobs: an unblocked job has a time in unblocked_at."
    return records.record(client, request, spec.Job, advice)


def _unblock_url_of(job: JobReference) -> str:
    _check_is_job(job)
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
        found = _UNBLOCK_PATH.fullmatch(client.target_of(url) or "")
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
