"""Suggest the nearest pipeline if a slug is misspelled. Sends one request at most, and raises nothing itself."""

from __future__ import annotations

import msgspec

from buildframe import spec
from buildframe.errors import BuildframeError, NotFound
from buildframe.http import not_found, protocol
from buildframe.http.body_limits import check_size
from buildframe.http.budget import Canceled, RequestBudget
from buildframe.http.client import Client
from buildframe.http.protocol import Request
from buildframe.spec.decoders import decoder_of
from buildframe.terminal import nearest_name

_PAGE_SIZE = 100  # pipelines that are compared: the first page of the list
_TIMEOUT_S = 5.0


class _Named(msgspec.Struct):
    slug: str


def with_suggestion(client: Client, request: Request, failure: NotFound) -> NotFound:
    """Return the error of a request, with the nearest pipeline if the requested one is missing and another is near."""
    missing = not_found.missing_pipeline(request.target, failure.message)
    near = None if missing is None else _nearest_pipeline(client, *missing)
    if near is None:
        return failure
    return NotFound(
        failure.status,
        failure.message,
        where=failure.where,
        errors=failure.errors,
        missing=not_found.describe(request.target, failure.message, client.redact(near)),
        request_id=failure.request_id,
    )


def _nearest_pipeline(client: Client, organization: str, slug: str) -> str | None:
    """Return the slug of the nearest pipeline; None if none is near, or the token may not list pipelines."""
    try:
        request = protocol.page_request(spec.list_pipelines, organization, per_page=_PAGE_SIZE)
        response = client.send(request, RequestBudget(seconds=_TIMEOUT_S), _TIMEOUT_S)
        if response.status != request.endpoint.success:
            return None
        check_size(response.body)
        listed = decoder_of(list[_Named]).decode(response.body)
    except (BuildframeError, Canceled, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return nearest_name(slug, [one.slug for one in listed])
