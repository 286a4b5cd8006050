"""Convert arguments to requests and responses to pages, records or errors. Pure functions: sends nothing."""

from __future__ import annotations

import datetime as dt
import ipaddress
import numbers
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, get_args
from urllib.parse import parse_qs, quote, urlencode, urlsplit
from uuid import UUID

import msgspec

from buildframe import errors
from buildframe.errors import BadInput, Malformed
from buildframe.http import not_found
from buildframe.http.body_limits import check_size
from buildframe.http.json_bodies import TooLargeToRepair, decode_json, is_json
from buildframe.http.request_body import body_of
from buildframe.http.response import (
    Response,
    TooLarge,
    check_links,
    date_of,
    error_body,
    link_relations,
    refused,
    retry_after,
)
from buildframe.spec import Build, Check, Endpoint, Filter, JobState, Moment, Parameter, Resource, forms, key_of, when
from buildframe.spec.decoders import decoder_of
from buildframe.spec.odd_values import OddValue, TooManyValues
from buildframe.spec.reading import convert_record
from buildframe.terminal import nearest, shorten, show

API = "/v2"
VERSION_HEADER = "Buildkite-Version"
_MOST_DIGITS = 18  # of the number of a page or build
T = TypeVar("T")


class Request(NamedTuple):
    """A request: `target` is the path with its query, percent-encoded, and `body` is JSON.

    `repeatable` says whether it may be sent again if its response is lost. `is_signed` marks a
    query that may contain a signature and is not shown. `version` is the version of the API that it
    asks for, a date; None for none.
    """

    endpoint: Endpoint
    target: str
    body: bytes | None = None
    repeatable: bool = True
    accept: str = "application/json"
    is_signed: bool = False
    version: str | None = None

    @property
    def where(self) -> str:
        """Method and path, for messages."""
        is_shown = self.target.startswith(f"{API}/") and not self.is_signed
        return f"{self.endpoint.method} {shorten(self.target if is_shown else self.target.split('?')[0])}"

    def __repr__(self) -> str:
        return f"<Request {self.where}>"  # tracebacks must not print bodies


@dataclass(frozen=True)
class Page:
    """One page of a list: its rows, the link to the next page, the service's time of the response.

    `of` is the number of pages, if the service reports it. `open` marks a page that may not be the
    last although it has no link to a next one: a proxy may have dropped its `Link` header. `odd`
    are values of the rows that do not fit. `size` is the number of rows that were requested, if
    that can show which page is the last, and `short` marks an open page without links that has
    fewer.
    """

    rows: Sequence[Any]
    next: str | None
    at: Moment
    of: int | None = None
    open: bool = False
    odd: Sequence[OddValue] = ()
    size: int | None = None
    short: bool = False

    @property
    def is_last(self) -> bool:
        """Whether the list ends with this page."""
        return self.next is None and not self.open


# --- requests ---------------------------------------------------------------------------------------------------------


def request_for(endpoint: Endpoint, /, *arguments: str | int, **keywords: Any) -> Request:
    """Return the request for an endpoint. Keywords are filters of a GET, and properties of the body otherwise.

    Unknown names, and values that the service would refuse or misread, raise BadInput.
    """
    named = zip(endpoint.parameters, arguments, strict=True)
    path = API + endpoint.path.format(**{entry.name: _segment(entry, value) for entry, value in named})
    if endpoint.method != "GET":
        return Request(endpoint, path, body_of(endpoint, keywords), repeatable=False)
    for name in keywords:
        if name not in endpoint.filter_names:
            raise BadInput(f"There is no filter {show(name)}.{nearest(name, endpoint.filter_names)}")
    chosen = [entry for entry in endpoint.filters if keywords.get(entry.name) is not None]
    pairs = [pair for entry in chosen for pair in _pairs(entry, keywords[entry.name])]
    return Request(endpoint, with_query(path, pairs), version=endpoint.version)


def page_request(endpoint: Endpoint, *arguments: str | int, per_page: int, number: int = 1, **filters: Any) -> Request:
    """Return the request for a page of a list with `per_page` rows."""
    request = request_for(endpoint, *arguments, **filters)
    joint = "&" if "?" in request.target else "?"
    page = f"page={number}&" if number > 1 else ""
    return request._replace(target=f"{request.target}{joint}{page}per_page={per_page}")


def check_version(version: str | dt.date | None) -> str | None:
    """Return a version of the API as the text of its header; raise BadInput if it is not a date."""
    if version is None:
        return None
    if isinstance(version, dt.date) and not isinstance(version, dt.datetime):
        return version.isoformat()
    text = version if isinstance(version, str) else ""
    try:
        if re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
            return dt.date.fromisoformat(text).isoformat()
    except ValueError:
        pass
    raise BadInput(f"version={show(version)} is not a version of the API. Pass its date, such as '2026-08-01'.")


_PER_PAGE = re.compile(r"(?<=[?&]per_page=)[0-9]+(?=&|$)")


def rows_per_page(request: Request) -> int | None:
    """Return the number of rows per page that a request names; None if it names none."""
    return _number_in(request.target, "per_page")


def has_page_number(request: Request) -> bool:
    """Whether a request names a page by its number, not by a cursor."""
    return _number_in(request.target, "page") is not None


def with_page_size(request: Request, rows: int) -> Request:
    """Return a request with another number of rows per page, if it names one."""
    return request._replace(target=_PER_PAGE.sub(str(rows), request.target))


def without_jobs(request: Request) -> Request:
    """Return a request for builds that asks for them without their jobs."""
    joint = "&" if "?" in request.target else "?"
    return request._replace(target=f"{request.target}{joint}exclude_jobs=true")


HALF_SURROGATE = "contains half of a surrogate pair, which a URL cannot contain. Remove it."
_MOST_LENGTH = 60_000  # of a path with its query; httpx takes addresses of 65,536


def with_query(path: str, pairs: Iterable[tuple[str, str]]) -> str:
    """Return a path with a query, percent-encoded; raise BadInput if a URL cannot contain it."""
    lengths = Counter(path=len(path))
    parts = []
    for name, text in pairs:
        try:
            parts.append(urlencode([(name, text)], quote_via=quote, safe=""))
        except UnicodeEncodeError:
            raise BadInput(f"{name}={show(text)} {HALF_SURROGATE}") from None
        lengths[name.split("[")[0]] += len(parts[-1])
    check_length(max(lengths, key=lengths.__getitem__), lengths.total())
    return f"{path}?{'&'.join(parts)}" if parts else path


def check_length(name: str, length: int) -> None:
    """Raise BadInput if a URL of `length` characters is too long; `name` is the longest argument in it."""
    if length > _MOST_LENGTH:
        raise BadInput(
            f"{name} is too long: the URL would have {length:,} characters, and the limit is {_MOST_LENGTH:,}. "
            "Nothing was sent. Pass some of the values per call, and concatenate the results."
        )


def _segment(entry: Parameter, value: Any) -> str:
    if entry.type is int:
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:  # also numpy's
            raise BadInput(f"{entry.name}={show(value)}: pass the build's number, a whole number from 1.")
        if int(value) >= 10**_MOST_DIGITS:  # Python may refuse to print it
            raise BadInput(f"{entry.name}: a build's number has at most {_MOST_DIGITS} digits.")
        return str(value)
    if entry.check == Check("uuid"):
        return _uuid(value, f"{entry.name}={show(value)}: pass the {entry.name.removesuffix('_id')}'s UUID.")
    return slug_segment(entry, value)


def slug_segment(entry: Parameter, value: Any) -> str:
    """Return a slug as it appears in a path; raise BadInput, with a suggestion, if the value is not a slug."""
    name, collection, place = _SLUGS[entry.name]
    assert entry.check is not None
    if not isinstance(value, str):
        raise BadInput(f"{name}={show(value)}: pass the slug, which is text.")
    if (wrong := forms.find_problem(entry.check.form, value)) is None:
        return value
    meant = forms.guess_slug(value, collection, place)
    advice = f"Did you mean {meant!r}?" if meant else "Copy it from the URL of its page."
    raise BadInput(f"{name}={show(value)} is not a slug: it {wrong}. {advice}")


_SLUGS = {
    "org": ("organization", "organizations", 0),
    "pipeline": ("pipeline", "pipelines", 1),
    "suite": ("suite", "suites", 2),
}
"""For each slug in a path: the argument, the collection before it in API URLs, its position in other URLs."""


def _uuid(value: Any, complaint: str) -> str:
    try:
        return str(UUID(value))
    except (ValueError, AttributeError, TypeError):
        raise BadInput(complaint) from None


def _pairs(entry: Filter, value: Any) -> list[tuple[str, str]]:
    if entry.kind == "map":
        return _map_pairs(entry, value)
    if entry.kind == "timestamp":
        return [(entry.name, when(value, entry.name).text())]
    if entry.kind == "flag":
        if not isinstance(value, bool):
            raise BadInput(f"{entry.name}={show(value)}: pass True or False.")
        return [(entry.name, "true" if value else "false")]
    if not entry.many or (isinstance(value, str) and not entry.always_list):
        return [(entry.name, _text(entry, value))]
    return _list_pairs(entry, [value] if isinstance(value, str) else value)


def _list_pairs(entry: Filter, value: Any) -> list[tuple[str, str]]:
    is_frame = getattr(value, "ndim", 1) != 1  # its items are the names of its columns
    if not isinstance(value, Iterable) or isinstance(value, bytes | Mapping | Iterator) or is_frame:
        raise BadInput(f"{entry.name}={show(value)}: pass a str or a list of str.")
    pairs = [(f"{entry.name}[]", _text(entry, each)) for each in value]
    if not pairs:
        raise BadInput(f"{entry.name}=[]: an empty list does not filter. Leave the filter out, or pass values.")
    return pairs


def _map_pairs(entry: Filter, value: Any) -> list[tuple[str, str]]:
    if not isinstance(value, Mapping) or not value:
        raise BadInput(f"{entry.name}={show(value)}: pass a mapping from str to str, such as {{'key': 'value'}}.")
    for key, text in value.items():
        if not isinstance(key, str) or not isinstance(text, str) or not key or set(key) & set("[]"):
            raise BadInput(f"{entry.name}={show({key: text})}: pass str keys without brackets, and str values.")
    return [(f"{entry.name}[{key}]", text) for key, text in value.items()]


def _text(entry: Filter, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"{entry.name}={show(value)}: pass a str that is not empty.")
    if entry.choices and value not in entry.choices:
        states = "state of a job" if entry.choices == get_args(JobState) else "state of a build"
        kind = states if entry.name in ("state", "job_states") else entry.name
        raise BadInput(f"{entry.name}={show(value)} is not a {kind}.{nearest(value, entry.choices)}")
    if entry.check == Check("uuid"):
        return _uuid(value, f"{entry.name}={show(value)} is not a UUID. Take one from the column `{entry.name}_id`.")
    return _sha(entry.name, value) if entry.check == Check("sha") else value


def _sha(name: str, value: str) -> str:
    if re.fullmatch(r"[0-9a-fA-F]+", value) and len(value) not in {40, 64}:
        raise BadInput(
            f"{name}={show(value)} is a shortened SHA, for which the service finds nothing. "
            f"Pass all 40 digits (git rev-parse {value})."
        )
    return value.lower() if len(value) in {40, 64} else value


def shown(address: str) -> str:
    """Return a URL for messages: without user, password and query, which may contain a signature."""
    scheme, slashes, rest = address.split("?")[0].partition("//")
    return scheme + slashes + rest.rpartition("@")[2]


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# --- responses --------------------------------------------------------------------------------------------------------


class _Envelope(msgspec.Struct):
    items: msgspec.Raw
    links: dict[str, Any] = {}


def open_envelope(request: Request, response: Response) -> Response:
    """Return the response of an enveloped list as if its items were the body.

    Return any other response as it is.
    """
    is_object = response.body.lstrip().startswith(b"{")
    if not request.endpoint.enveloped or not is_object or not 200 <= response.status < 300:
        return response
    envelope = read_as(request, response, _Envelope)
    link = (envelope.links or {}).get("next")
    return response._replace(body=bytes(envelope.items), next=link if isinstance(link, str) else None)


class PageBodyDecoder(Protocol):
    """Decodes the body of a page to its rows."""

    def decode(self, body: bytes, /) -> list[Any]:
        """Return the rows; raise msgspec's errors if the body cannot be read."""
        ...


def read_page(request: Request, response: Response, rows: PageBodyDecoder) -> Page:
    """Return a page of a list; raise the ServiceError of an error status, and Malformed for anything unreadable."""
    check(request, response)
    check_links(response)
    check_size(response.body)
    decoded, of = _decode(request, response, rows.decode), _number_in(response.last, "page")
    endpoint = request.endpoint
    _check_requested_number(request, decoded)
    has_size = endpoint.paginated and not (endpoint.enveloped or endpoint.ends_without_link)
    size = _number_in(request.target, "per_page") if has_size else None
    is_open = _is_open(request, response, len(decoded), of)
    is_short = is_open and len(decoded) < (size or 1) and not _has_other_last_page(request, of)
    next_link = response.next or None
    at = date_of(response)
    return Page(decoded, next_link, at, of, open=is_open, size=size, short=is_short)


def _check_requested_number(request: Request, rows: Sequence[Any]) -> None:
    """Raise Malformed if a page of a declared list has more rows than were requested.

    A row that a proxy repeats counts once.
    """
    endpoint = request.endpoint
    is_page = endpoint.paginated and not endpoint.ends_without_link and endpoint.returns is not None
    requested = _number_in(request.target, "per_page")
    if not is_page or requested is None or len(rows) <= requested:
        return
    distinct = {getattr(row, "id", None) or position for position, row in enumerate(rows)}
    if len(distinct) > requested:
        raise refused(
            f"The service sent a page of {len(distinct):,} rows, and {requested:,} were requested.\n"
            f"Request: {request.where}\nIt ignores per_page=, or a proxy changes requests. "
            "Use page_size= if its pages always have a certain number of rows up to 100."
        )


_PAGE_RELATIONS = {"next", "prev", "previous", "first"}


def _is_open(request: Request, response: Response, rows: int, of: int | None) -> bool:
    """Whether a page without a link to a next one may still not be the last.

    A proxy may drop links, so a full page may not be the last. Neither may a page that has a different number than the
    last one, nor a page without the `Link` header: the service sends it with each page and may choose the page size.
    """
    endpoint = request.endpoint
    has_whole_list = not endpoint.paginated or endpoint.enveloped or endpoint.ends_without_link
    if response.next or has_whole_list or not rows:
        return False
    if _has_other_last_page(request, of):
        return True
    header = response.headers.get("link")
    has_links = header is not None and (not header.strip() or not _PAGE_RELATIONS.isdisjoint(link_relations(header)))
    return not has_links or rows >= (_number_in(request.target, "per_page") or 1)


def _has_other_last_page(request: Request, of: int | None) -> bool:
    """Whether the list has another number of pages than the requested page's number."""
    return of is not None and of != (_number_in(request.target, "page") or 1)


def _number_in(address: str | None, name: str) -> int | None:
    """Return the whole number of a query parameter, or None."""
    numbers = parse_qs(urlsplit(address or "").query).get(name, [])
    is_number = bool(numbers) and numbers[0].isdecimal() and len(numbers[0]) <= _MOST_DIGITS
    return int(numbers[0]) if is_number else None


def read_date(request: Request, response: Response) -> Moment:
    """Return the service's time of a response."""
    check(request, response)
    return date_of(response)


def read_record(request: Request, response: Response, odd: list[OddValue] | None = None) -> Resource:
    """Return the typed record of the endpoint; add its values that do not fit to `odd`."""
    check(request, response)
    returns = request.endpoint.returns
    assert returns is not None
    found: list[OddValue] = []
    check_size(response.body)
    record = _decode(request, response, lambda body: convert_record(returns, msgspec.json.decode(body), found.append))
    if odd is not None:
        odd[:] = found
    check_identity(request, record)
    return record


def check_identity(request: Request, record: Any) -> None:
    """Raise Malformed if the response has another record than the request names, or none.

    The record's URL says which it is, else its key. For a build that is to be created, only the
    pipeline is compared.
    """
    endpoint, returns = request.endpoint, request.endpoint.returns
    assert returns is not None
    key, is_other = endpoint.key, False
    if returns is Build or endpoint.method != "GET":
        is_other = not all(getattr(record, name) for name in key_of(returns))
    if returns is Build or key is not None:
        path = endpoint.path if key is not None else endpoint.path.partition("/builds")[0]
        named = re.sub(r"{\w+}", "([^/?]+)", path[: path.rindex("}") + 1])
        requested, found = (re.search(named, url.lower()) for url in (request.target, getattr(record, "url", "") or ""))
        assert requested is not None
        if found is not None:
            is_other |= found[0] != requested[0]
        elif key is not None:
            is_other |= str(getattr(record, key)).lower() != requested[requested.re.groups]
    if is_other:
        raise refused(
            f"The response has another record than the requested one, or one without {key or 'id'}.\n"
            f"Request: {request.where}\nTry again. If this error stays, check that base_url is the service's API."
        )


def read_as(request: Request, response: Response, kind: type[T], *, is_text: bool = False) -> T:
    """Return the body as a type that msgspec can decode. A text (`is_text`) may have any commas."""
    check(request, response)
    if not is_text:
        check_size(response.body)
    return _decode(request, response, decoder_of(kind).decode, is_text=is_text)


def read_nothing(request: Request, response: Response) -> None:
    """Check the response to an action that returns no body, or an undocumented one.

    A body with another status than the documented one, or one that is not JSON, raises Malformed.
    """
    check(request, response)
    if response.body and response.status != request.endpoint.success:
        raise Malformed(f"The response has a body, and none is expected.\nRequest: {request.where}")
    if response.body:
        _decode(request, response, msgspec.json.decode)


def _decode(request: Request, response: Response, decode: Callable[[bytes], T], *, is_text: bool = False) -> T:
    try:
        return decode_json(response.body, decode, is_text=is_text)
    except TooManyValues as why:
        raise TooLarge(f"The response {why}. Request less at once.\nRequest: {request.where}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as why:
        kind = response.headers.get("content-type", "no content type")
        reason = " ".join(str(why).split())  # in one line, which is shortened without the token
        is_complete = is_json(response.body)
        is_too_large = is_complete and isinstance(why, TooLargeToRepair)
        failure = (TooLarge if is_too_large else Malformed)(
            f"The response cannot be read: {reason}.\nRequest: {request.where}\n"
            f"It has {len(response.body)} bytes of {kind}. "
            "If this error stays, check that base_url is the service's API."
        )
        failure.retryable = not is_complete
    raise failure


def check(request: Request, response: Response) -> None:
    """Raise the ServiceError of a status, except for success: the endpoint's status, and for actions any 2xx."""
    done = request.endpoint.method != "GET" and 200 <= response.status < 300
    if done or response.status == request.endpoint.success:
        return
    said, details = _message_and_details(response)
    message = shorten(said)
    scope = request.endpoint.scope if _lacks_scope(request, response, said) else None
    raise _ERRORS.get(response.status, errors.Unavailable if response.status >= 500 else errors.ServiceError)(
        response.status,
        message,
        where=request.where,
        errors=details,
        scope=scope,
        missing=not_found.describe(request.target, said) if response.status == 404 else "",
        retry_after=retry_after(response),
        request_id=response.headers.get("x-request-id"),
    )


_ERRORS: dict[int, type[errors.ServiceError]] = {
    **dict.fromkeys((400, 409, 422), errors.Invalid),
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    429: errors.RateLimited,
}


def _message_and_details(response: Response) -> tuple[str, list[Mapping[str, Any]]]:
    """Return the server's message and the elements of its `errors`."""
    if 300 <= response.status < 400:
        return _redirect_message(response), []
    body = error_body(response)
    if not isinstance(body, dict):
        return _plain_text(response), []
    message, details = str(body.get("message") or _plain_text(response)), body.get("errors")  # of any shape
    if isinstance(details, dict):
        return message, [{"field": field, "code": code} for field, code in details.items()]
    listed = details if isinstance(details, list) else [details] if details else []
    return message, [element if isinstance(element, dict) else {"code": element} for element in listed]


def _plain_text(response: Response) -> str:
    text = " ".join(response.body[:200].decode("utf-8", "replace").split())
    return text or "no message"


def _redirect_message(response: Response) -> str:
    location = shown(response.headers.get("location", ""))
    if response.status == 304:
        return (
            "not modified, although the request had no condition. A cache in between sends this; "
            "check the proxy, and whether base_url is the service's API"
        )
    if not location:
        return "redirected without a target. Check that base_url is the service's API"
    return f"redirected to {location!r}, which is not followed, because the token must not be sent there"


def _lacks_scope(request: Request, response: Response, message: str) -> bool:
    """Whether a 403 is about the scope: its text says so, or the reported scopes of the token lack it."""
    if response.status != 403 or request.endpoint.scope is None:
        return False
    held = response.headers.get("x-oauth-scopes")
    lacking = held is not None and request.endpoint.scope not in re.split(r"[,\s]+", held)
    return lacking or request.endpoint.scope in message
