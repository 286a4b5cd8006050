"""The protocol as pure functions: arguments -> Request; (status, headers, body) -> Page, record or error."""

from __future__ import annotations

import ipaddress
import json
import numbers
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qs, quote, urlencode, urlsplit
from uuid import UUID

import msgspec

from buildframe import errors
from buildframe.errors import BadInput, Malformed
from buildframe.http import not_found
from buildframe.http.request_body import body_of, nearest
from buildframe.http.response import Answer, date_of, retry_after
from buildframe.spec import Check, Endpoint, Filter, Moment, Parameter, Resource, forms, when
from buildframe.spec.reading import decode_record

API = "/v2"
T = TypeVar("T")


class Request(NamedTuple):
    """One request, placed: `target` is the path with its query, all percent-encoded.

    `body` is JSON. `repeatable` tells whether it may be sent again when its answer is lost. `is_signed` marks a
    query that may hold a signature, and is not shown.
    """

    endpoint: Endpoint
    target: str
    body: bytes | None = None
    repeatable: bool = True
    accept: str = "application/json"
    is_signed: bool = False

    @property
    def where(self) -> str:
        """Method and address, to be shown."""
        is_shown = self.target.startswith(f"{API}/") and not self.is_signed
        return f"{self.endpoint.method} {self.target if is_shown else self.target.split('?')[0]}"

    def __repr__(self) -> str:
        return f"<Request {self.where}>"  # a traceback must not print what a body holds


@dataclass(frozen=True)
class Page:
    """One page of a list: rows as read, the link to the next page, the service's time of the answer.

    `of` is the number of pages where the service reports it. `open` marks a page that may not be the last although it
    links to no next one: a proxy may have dropped its `Link` header.
    """

    rows: Sequence[Any]
    next: str | None
    at: Moment
    of: int | None = None
    open: bool = False

    @property
    def is_last(self) -> bool:
        """Whether the list ends with this page."""
        return self.next is None and not self.open


# --- requests ---------------------------------------------------------------------------------------------------------


def place(endpoint: Endpoint, /, *arguments: str | int, **keywords: Any) -> Request:
    """The request for `endpoint`: keywords are filters of a GET, properties of the body of any other method.

    Unknown names and values that the service would refuse or misread raise BadInput.
    """
    path = _path(endpoint, arguments)
    if endpoint.method != "GET":
        return Request(endpoint, path, body_of(endpoint, keywords), repeatable=False)
    pairs = [pair for entry in _chosen(endpoint, keywords) for pair in _pairs(entry, keywords[entry.name])]
    try:
        return Request(endpoint, with_query(path, pairs))
    except UnicodeEncodeError as why:
        raise _half_a_pair(why) from None


def _half_a_pair(why: UnicodeEncodeError) -> BadInput:
    return BadInput(f"{why.object!r} holds half of a surrogate pair, which no address can carry.")


def place_page(endpoint: Endpoint, *arguments: str | int, per_page: int, number: int = 1, **filters: Any) -> Request:
    """The request for a page of a list, so many rows long."""
    request = place(endpoint, *arguments, **filters)
    joint = "&" if "?" in request.target else "?"
    page = f"page={number}&" if number > 1 else ""
    return request._replace(target=f"{request.target}{joint}{page}per_page={per_page}")


_MOST_LENGTH = 60_000  # of a path with its query; httpx takes addresses of 65,536


def with_query(path: str, pairs: Iterable[tuple[str, str]]) -> str:
    """A path with a query, percent-encoded; BadInput if that is too long for an address."""
    lengths = Counter(path=len(path))
    parts = []
    for pair in pairs:
        parts.append(urlencode([pair], quote_via=quote, safe=""))
        lengths[pair[0].split("[")[0]] += len(parts[-1])
    check_length(max(lengths, key=lengths.__getitem__), lengths.total())
    return f"{path}?{'&'.join(parts)}" if parts else path


def check_length(name: str, length: int) -> None:
    """Raise BadInput if an address would have so many characters; `name` is the argument that takes most of them."""
    if length > _MOST_LENGTH:
        raise BadInput(
            f"{name} is too long: the address would have {length:,} characters, and {_MOST_LENGTH:,} is the limit; "
            "nothing was sent. Ask in parts, each with some of the values, and put the results together."
        )


def _path(endpoint: Endpoint, arguments: Sequence[str | int]) -> str:
    named = zip(endpoint.parameters, arguments, strict=True)
    return API + endpoint.path.format(**{entry.name: _segment(entry, value) for entry, value in named})


def _segment(entry: Parameter, value: Any) -> str:
    if entry.type is int:
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:  # numpy's, too
            raise BadInput(f"{entry.name}={value!r}: pass the build's number, a whole number from 1.")
        if int(value) >= 10**_MOST_DIGITS:  # Python may refuse to write it
            raise BadInput(f"{entry.name}: a build's number has at most {_MOST_DIGITS} digits.")
        return str(value)
    return _uuid_segment(entry.name, value) if entry.check == Check("uuid") else slug_segment(entry, value)


def slug_segment(entry: Parameter, value: Any) -> str:
    """A slug, which stands in a path as it is; BadInput for what cannot be one, with the slug that was meant."""
    name, collection, place = _SLUGS[entry.name]
    assert entry.check is not None
    if not isinstance(value, str):
        raise BadInput(f"{name}={value!r}: pass the slug, which is text.")
    if (wrong := forms.problem(entry.check.form, value)) is None:
        return value
    meant = forms.guess_slug(value, collection, place)
    advice = f"Did you mean {meant!r}?" if meant else "Take it from the service's web addresses."
    raise BadInput(f"{name}={forms.short(value)} is not a slug: it {wrong}. {advice}")


_SLUGS = {
    "org": ("organization", "organizations", 0),
    "pipeline": ("pipeline", "pipelines", 1),
    "suite": ("suite", "suites", 2),
}
"""For each slug in a path: the argument, what stands before it in addresses of the API, its place in other ones."""


def _uuid_segment(name: str, value: Any) -> str:
    try:
        return str(UUID(value))
    except (ValueError, AttributeError, TypeError):
        raise BadInput(f"{name}={value!r}: pass the {name.removesuffix('_id')}'s UUID.") from None


def _chosen(endpoint: Endpoint, filters: Mapping[str, Any]) -> list[Filter]:
    for name in filters:
        if name not in endpoint.filter_names:
            raise BadInput(f"There is no filter {name!r}.{nearest(name, endpoint.filter_names)}")
    return [entry for entry in endpoint.filters if filters.get(entry.name) is not None]


def _pairs(entry: Filter, value: Any) -> list[tuple[str, str]]:
    if entry.kind == "map":
        return _map_pairs(entry, value)
    if entry.kind == "moment":
        return [(entry.name, when(value, entry.name).text())]
    if entry.kind == "flag":
        return [(entry.name, _flag(entry, value))]
    if isinstance(value, str) or not entry.many:
        return [(entry.name, _text(entry, value))]
    return [(f"{entry.name}[]", text) for text in _texts(entry, value)]


def _flag(entry: Filter, value: Any) -> str:
    if not isinstance(value, bool):
        raise BadInput(f"{entry.name}={value!r}: pass True or False.")
    return "true" if value else "false"


def _map_pairs(entry: Filter, value: Any) -> list[tuple[str, str]]:
    if not isinstance(value, Mapping) or not value:
        raise BadInput(f"{entry.name}={value!r}: pass a mapping of texts, such as {{'key': 'value'}}.")
    for key, text in value.items():
        if not isinstance(key, str) or not isinstance(text, str) or not key or set(key) & set("[]"):
            raise BadInput(f"{entry.name}: {key!r}: {text!r} - keys (without brackets) and values are texts.")
    return [(f"{entry.name}[{key}]", text) for key, text in value.items()]


def _texts(entry: Filter, values: Any) -> list[str]:
    if not isinstance(values, Iterable) or isinstance(values, bytes | Mapping):
        raise BadInput(f"{entry.name}={values!r}: pass a text or a list of texts.")
    texts = [_text(entry, value) for value in values]
    if not texts:
        raise BadInput(f"{entry.name}=[]: an empty list would not narrow at all; leave the filter out, or name some.")
    return texts


def _text(entry: Filter, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise BadInput(f"{entry.name}={value!r}: pass a text that is not empty.")
    if entry.choices and value not in entry.choices:
        raise BadInput(f"{entry.name}={value!r} is no state of a build.{nearest(value, entry.choices)}")
    return _CHECKS[entry.check.form](entry.name, value) if entry.check else value


def _sha(name: str, value: str) -> str:
    if re.fullmatch(r"[0-9a-fA-F]+", value) and len(value) not in {40, 64}:
        raise BadInput(
            f"{name}={value!r} is a shortened SHA, for which the service silently finds nothing; "
            f"pass all 40 digits (git rev-parse {value})."
        )
    return value.lower() if len(value) in {40, 64} else value


def _uuid(name: str, value: str) -> str:
    try:
        return str(UUID(value))
    except ValueError:
        raise BadInput(f"{name}={value!r} is no UUID; the column `{name}_id` of a frame holds them.") from None


_CHECKS: dict[forms.Form, Callable[[str, str], str]] = {"sha": _sha, "uuid": _uuid}


_USER = re.compile(r"//.*@", re.DOTALL)


def shown(address: str) -> str:
    """An address to be shown: without user and password, and without its query, which may hold a signature."""
    return _USER.sub("//", address.split("?")[0])


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# --- answers ----------------------------------------------------------------------------------------------------------


def read_page(request: Request, answer: Answer, rows: msgspec.json.Decoder[list[Any]]) -> Page:
    """A page of a list; an error status raises its ServiceError, anything unreadable raises Malformed."""
    check(request, answer)
    found, of = _decoded(request, answer, rows.decode), _number_in(answer.last, "page")
    return Page(found, answer.next or None, date_of(answer), of, _is_open(request, answer, len(found), of))


_PAGE_LINK = re.compile(r"""rel\s*=\s*["']?[^"',;]*\b(next|prev|previous|first)\b""", re.IGNORECASE)


def _is_open(request: Request, answer: Answer, rows: int, of: int | None) -> bool:
    """Whether a page that links to no next one may still not be the last.

    A full page proves no end, since a proxy may drop links. Nor does a page that another one is said to follow, or any
    page without the `Link` header, which the service sends with each: how many rows fill a page is its choice.
    """
    if answer.next or not request.endpoint.paginated or not rows:
        return False
    if of is not None and of != (_number_in(request.target, "page") or 1):
        return True
    header = answer.headers.get("link")
    has_links = header is not None and (not header.strip() or _PAGE_LINK.search(header))
    return not has_links or rows >= (_number_in(request.target, "per_page") or 1)


_MOST_DIGITS = 18  # of the number of a page or build; a longer one is none


def _number_in(address: str | None, name: str) -> int | None:
    """The whole number that a query gives `name`."""
    numbers = parse_qs(urlsplit(address or "").query).get(name, [])
    is_number = bool(numbers) and numbers[0].isdecimal() and len(numbers[0]) <= _MOST_DIGITS
    return int(numbers[0]) if is_number else None


def read_documents(request: Request, answer: Answer) -> list[dict[str, Any]]:
    """The same page as plain dicts, with every key that was sent."""
    return _decoded(request, answer, msgspec.json.Decoder(list[dict[str, Any]]).decode)


def read_date(request: Request, answer: Answer) -> Moment:
    """Only the service's time of an answer."""
    check(request, answer)
    return date_of(answer)


def read_record(request: Request, answer: Answer) -> Resource:
    """A single thing as the typed record that the endpoint returns."""
    check(request, answer)
    returns = request.endpoint.returns
    assert returns is not None
    return _decoded(request, answer, lambda body: decode_record(returns, body))


def read_as(request: Request, answer: Answer, kind: type[T]) -> T:
    """A single thing as another type than the endpoint's, any that msgspec reads."""
    check(request, answer)
    return _decoded(request, answer, msgspec.json.Decoder(kind).decode)


def read_nothing(request: Request, answer: Answer) -> None:
    """Only whether it succeeded, of an action whose answer has no body, or none that is documented.

    A body under another status than the documented one, or one that is no JSON, does not tell: Malformed.
    """
    check(request, answer)
    if answer.body and answer.status != request.endpoint.success:
        raise Malformed(f"The answer should have no body.\nRequest: {request.where}")
    if answer.body:
        _decoded(request, answer, msgspec.json.decode)


def _decoded(request: Request, answer: Answer, decode: Callable[[bytes], T]) -> T:
    try:
        answer.body.decode()  # msgspec skips keys that it does not know unread: a damaged one would become a null
        return decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as why:
        body = mended(answer.body)
        if body is not None:
            return _decoded(request, answer._replace(body=body), decode)
        raise Malformed(
            f"The answer cannot be read: {why}.\nRequest: {request.where}\n"
            f"It is {len(answer.body)} bytes of {answer.headers.get('content-type', 'no type')}. "
            "If it says so again, the address may not be the service's API."
        ) from None


_HALF_PAIR = re.compile(r"[\ud800-\udfff]")


def mended(body: bytes) -> bytes | None:
    """`body` with a replacement sign for each half of a surrogate pair (a cut emoji); None where that is no cure."""
    try:
        text = json.dumps(json.loads(body), ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
    return _HALF_PAIR.sub("\ufffd", text).encode() if _HALF_PAIR.search(text) else None


def check(request: Request, answer: Answer) -> None:
    """Raise the ServiceError for any status but the operation's success; of an action any 2xx is success."""
    done = request.endpoint.method != "GET" and 200 <= answer.status < 300
    if done or answer.status == request.endpoint.success:
        return
    message, details = _said(answer)
    scope = request.endpoint.scope if _lacks_scope(request, answer, message) else None
    raise _error_type(answer.status)(
        answer.status,
        message,
        where=request.where,
        errors=details,
        scope=scope,
        missing=not_found.named(request.target, message) if answer.status == 404 else "",
        retry_after=retry_after(answer),
        request_id=answer.headers.get("x-request-id"),
    )


_ERRORS: dict[int, type[errors.ServiceError]] = {
    400: errors.Invalid,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Invalid,
    422: errors.Invalid,
    429: errors.RateLimited,
}


def _error_type(status: int) -> type[errors.ServiceError]:
    return _ERRORS.get(status, errors.Unavailable if status >= 500 else errors.ServiceError)


def _said(answer: Answer) -> tuple[str, list[Mapping[str, Any]]]:
    """What the server said: its message and the elements of `errors`."""
    try:
        body = msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        body = None
    if not isinstance(body, dict):
        return _plain_text(answer), []
    return str(body.get("message") or _plain_text(answer)), _details(body.get("errors"))


def _details(errors: Any) -> list[Mapping[str, Any]]:
    """The elements of `errors`, whatever their shape: no document states it."""
    if isinstance(errors, dict):
        return [{"field": field, "code": code} for field, code in errors.items()]
    listed = errors if isinstance(errors, list) else [errors] if errors else []
    return [element if isinstance(element, dict) else {"code": element} for element in listed]


def _plain_text(answer: Answer) -> str:
    if 300 <= answer.status < 400:
        place = shown(answer.headers.get("location", ""))
        return f"redirected to {place!r}, which is not followed: the token stays here"
    text = " ".join(answer.body[:200].decode("utf-8", "replace").split())
    return text or "no message"


def _lacks_scope(request: Request, answer: Answer, message: str) -> bool:
    """Whether a 403 is about the scope: its text says so, or the token's scopes are told and do not hold it."""
    if answer.status != 403 or request.endpoint.scope is None:
        return False
    held = answer.headers.get("x-oauth-scopes")
    lacking = held is not None and request.endpoint.scope not in re.split(r"[,\s]+", held)
    return lacking or request.endpoint.scope in message
