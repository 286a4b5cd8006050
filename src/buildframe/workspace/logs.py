"""Fetch the log of a job, with the token from the service only. Does not know frames or lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, TypeAlias

import msgspec
import pandas as pd

from buildframe.errors import BadInput, Malformed, ServiceError
from buildframe.http import protocol
from buildframe.http.client import Client
from buildframe.http.protocol import Request
from buildframe.http.response import Response
from buildframe.http.retry import fetch
from buildframe.http.urls import SplitUrl
from buildframe.spec import Job
from buildframe.spec.operations import endpoint
from buildframe.terminal import escape_control_characters

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
    """

    raw: str

    def __new__(cls, raw: str) -> Self:
        """Return the log with this text."""
        log = super().__new__(cls, escape_control_characters(raw.replace("\r\n", "\n")))
        log.raw = raw
        return log


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
        text = _fetch_log(client, url) if sends_token else _fetch_anonymously(client, url)
        if not isinstance(text, _Redirect):
            return Log(text)
        url = _follow(url, text, service)
    raise Malformed(f"The log was redirected more than {MAX_REDIRECTS} times.")


def _url_of(job: JobReference) -> str:
    if isinstance(job, str):
        return job
    url = value_in(job, "raw_log_url") or value_in(job, "log_url")
    if url is None:
        raise BadInput("This job has no log: it has neither raw_log_url nor log_url. Pass a job that ran.")
    return url


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


def _follow(url: SplitUrl, redirect: _Redirect, service: SplitUrl) -> SplitUrl:
    try:
        return _check_url(url.join(redirect), service)
    except ValueError as why:  # also BadInput: the service wrote this URL, not the user
        raise Malformed(f"The log was redirected to a URL that is not followed: {why}") from None


def _fetch_log(client: Client, url: SplitUrl, *, sends_token: bool = True) -> str:
    request = Request(get_log, url.target, accept="text/plain", is_signed=True)
    host = client.for_origin(url.origin, sends_token=sends_token)
    return fetch(host, request, _read, timeout=client.log_timeout)


def _fetch_anonymously(client: Client, url: SplitUrl) -> str:
    """Fetch without the token. Errors of another host say nothing about the token, so they get the base type."""
    try:
        return _fetch_log(client, url, sends_token=False)
    except ServiceError as why:
        where = f"GET {url.origin}{url.target.split('?')[0]}, the location of the log; the token was not sent there"
        raise ServiceError(why.status, why.message, where=where) from None


def _read(request: Request, response: Response) -> str:
    location = response.headers.get("location")
    if 300 <= response.status < 400 and location:
        return _Redirect(location)
    protocol.check(request, response)
    if "json" in response.headers.get("content-type", ""):
        return protocol.read_as(request, response, _LogBody).content
    return response.body.decode("utf-8", "replace")
