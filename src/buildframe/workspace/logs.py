"""The log of a job: where it lies, and its text. The token goes to the service itself, nowhere else."""

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
from buildframe.http.urls import SplitUrl
from buildframe.spec import Job
from buildframe.spec.declare import endpoint
from buildframe.terminal import harmless

HOPS = 3

AnyJob: TypeAlias = "Job | Mapping[str, Any] | pd.Series[Any] | str"
"""A job as a record, as a row of a frame, or the address of its log."""


@endpoint("GET /log", returns=None, scope=None)
def get_log() -> None:
    """The log of a job, at whatever address its job names."""


class _Log(msgspec.Struct):
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
        log = super().__new__(cls, harmless(raw.replace("\r\n", "\n")))
        log.raw = raw
        return log


class _Moved(str):
    """Where an answer says that the log lies."""


def log_of(client: Client, job: AnyJob) -> Log:
    """The log of a job; bytes that are no UTF-8 are replaced.

    A redirect is followed, at most three times; from the first that leads away from the service, the token stays here.
    """
    home = SplitUrl.parse(client.base_url)
    place, known = _place(_address(job), home), True
    for _ in range(HOPS + 1):
        known = known and place.origin == home.origin
        said = _ask(client, place) if known else _ask_elsewhere(client, place)
        if not isinstance(said, _Moved):
            return Log(said)
        place = _next(place, said, home)
    raise Malformed(f"The log was moved more than {HOPS} times, so it is nowhere.")


def _address(job: AnyJob) -> str:
    if isinstance(job, str):
        return job
    named = [job.get(key) if isinstance(job, Mapping | pd.Series) else getattr(job, key, None) for key in _KEYS]
    found = next((address for address in named if isinstance(address, str) and address), None)
    if found is None:
        raise BadInput("This job has no log: neither raw_log_url nor log_url is there. Only jobs that ran have one.")
    return found


_KEYS = ("raw_log_url", "log_url")


def _place(address: str, home: SplitUrl) -> SplitUrl:
    try:
        place = SplitUrl.parse(address)
    except ValueError as why:
        raise BadInput(f"The log's address {protocol.shown(address)!r} cannot be used: {why}.") from None
    if not place.is_private or (place.origin.startswith("http:") and not home.origin.startswith("http:")):
        raise BadInput(f"The log's address {place.origin} is not https, so others could read it or change it.")
    return place


def _next(place: SplitUrl, moved: _Moved, home: SplitUrl) -> SplitUrl:
    try:
        return _place(place.join(moved), home)
    except ValueError as why:  # BadInput, too: it was not the user who wrote this address
        raise Malformed(f"The log was moved to an address that is not followed: {why}") from None


def _ask(client: Client, place: SplitUrl, *, sends_token: bool = True) -> str:
    request = Request(get_log, place.target, accept="text/plain", is_signed=True)
    there = client.for_origin(place.origin, sends_token=sends_token)
    return there.fetch(request, lambda response: _read(request, response), timeout=client.log_timeout)


def _ask_elsewhere(client: Client, place: SplitUrl) -> str:
    """Without the token; a refusal there is none of the service, and says nothing about the token."""
    try:
        return _ask(client, place, sends_token=False)
    except ServiceError as why:
        where = f"GET {place.origin}{place.target.split('?')[0]}, where the log lies; the token was not sent there"
        raise ServiceError(why.status, why.message, where=where) from None


def _read(request: Request, response: Response) -> str:
    location = response.headers.get("location")
    if 300 <= response.status < 400 and location:
        return _Moved(location)
    protocol.check(request, response)
    return _content(request, response) if "json" in response.headers.get("content-type", "") else _text(response)


def _text(response: Response) -> str:
    return response.body.decode("utf-8", "replace")


def _content(request: Request, response: Response) -> str:
    """The text in a log that came as JSON, with its size and the times of its headers."""
    return protocol.read_as(request, response, _Log).content
