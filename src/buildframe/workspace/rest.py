"""Read any REST path of the service as records or as a table. Knows paths and JSON; does not know resources."""

from __future__ import annotations

import datetime as dt
import math
import re
import warnings
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import parse_qs, parse_qsl, quote, unquote, urlsplit

import msgspec
import pandas as pd
import pyarrow as pa

from buildframe.errors import BadInput, Malformed
from buildframe.fetching import arrow, records
from buildframe.fetching.control_characters import replace_controls
from buildframe.fetching.metadata import ListingMetadata
from buildframe.fetching.options import BuildListOptions
from buildframe.fetching.source import PAGE_SIZE, ListSource
from buildframe.fetching.time_ranges import TimeRange
from buildframe.formatting import format_count
from buildframe.http import protocol
from buildframe.http.body_limits import check_size
from buildframe.http.client import Client
from buildframe.http.protocol import API, Page, Request
from buildframe.http.response import Response
from buildframe.spec import ENDPOINTS, when
from buildframe.spec.operations import endpoint
from buildframe.terminal import replace_terminal_controls, show

_ALLOWED = "/%:@!$&'()*+,;=~"  # in paths, beside letters, digits and `-._`
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d")


@endpoint("GET /", returns=None, scope=None, paginated=True)
def get_path() -> None:
    """Any path below /v2 that the token may read."""


Version: TypeAlias = str | dt.date | None
"""Version of the API that a request asks for: a date."""


def get(
    client: Client, path: str, parameters: Mapping[str, Any], options: Mapping[str, Any], version: Version = None
) -> Any:
    """Return all records of the list at a path, or the object."""
    reader = _RecordReader(client)
    records, metadata = _records(_PathSource.of(client, path, parameters, version), reader, options)
    if metadata.why is not None:
        warnings.warn(f"Incomplete: {metadata.why}.", stacklevel=4)
    return records if reader.is_list or len(records) != 1 else records[0]


def table(
    client: Client, path: str, parameters: Mapping[str, Any], options: Mapping[str, Any], version: Version = None
) -> pd.DataFrame:
    """Return the records at a path as a frame with a column for each key; an object is one row."""
    reader = _RecordReader(client)
    records, metadata = _records(_PathSource.of(client, path, parameters, version), reader, options)
    if metadata.why is not None:
        warnings.warn(f"Incomplete: {metadata.why}. See attrs['why'] of the frame.", stacklevel=4)
    return metadata.attach(frame_of(records), path)


def _records(
    source: ListSource, reader: _RecordReader, options: Mapping[str, Any]
) -> tuple[list[Any], ListingMetadata]:
    convert = attrgetter("rows")
    key = attrgetter("identity")
    pages, metadata = records.list_pages(source, reader.read, convert, key, options)
    if reader.is_unknown_page:
        metadata = replace(metadata, why=_UNKNOWN_PAGE, remaining=[TimeRange()])
    return [row.record for rows in pages for row in rows], metadata


# --- requests ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _PathSource(ListSource):
    """A path with its query, as a list."""

    path: str = ""
    query: tuple[tuple[str, str], ...] = ()
    version: str | None = None

    @classmethod
    def of(cls, client: Client, path: str, parameters: Mapping[str, Any], version: Version = None) -> _PathSource:
        below, query = _split(client, path)
        try:
            pairs = [*query, *(pair for name, value in parameters.items() for pair in _pairs(name, value))]
        except RecursionError:
            raise BadInput(
                f"{' or '.join(parameters)} is nested too deeply, or contains itself. Pass fewer levels."
            ) from None
        for name in parameters.keys() & _OPTIONS:
            raise BadInput(
                f"{name} is not an option of get() and table(). To send a parameter of that name: '...?{name}=...'."
            )
        for name, text in pairs:
            if name == "page":
                raise BadInput("page: all pages are read. Leave it out, and select rows of the result.")
            if name == "per_page" and not re.fullmatch(r"0*[1-9][0-9]{0,17}", text, re.ASCII):
                raise BadInput(f"per_page={show(text)}: pass a whole number from 1, or leave it out for {PAGE_SIZE}.")
        return cls(client, get_path, path=below, query=tuple(pairs), version=protocol.check_version(version))

    @property
    def name(self) -> str:
        """What the list contains."""
        return "records"

    def url(self, filters: Mapping[str, Any]) -> str:
        """Return the URL without page numbers."""
        return self.client.base_url + protocol.with_query(self.path, self.query)

    @property
    def page_size(self) -> int:
        """Rows per page: the parameter `per_page`, or the usual number."""
        return next((int(text) for name, text in self.query if name == "per_page"), super().page_size)

    def page(self, filters: Mapping[str, Any], number: int = 1, per_page: int | None = None) -> Request:
        """Return the request for a page."""
        paging = [("page", str(number))] if number > 1 else []
        if all(name != "per_page" for name, _ in self.query):
            paging.append(("per_page", str(self.page_size)))
        request = Request(get_path, protocol.with_query(self.path, [*self.query, *paging]), version=self.version)
        if per_page is None or per_page == self.page_size:
            return request
        return protocol.with_page_size(request, per_page)


_OPTIONS = BuildListOptions.__annotations__.keys() - {"progress", "max_requests", "deadline"}
"""Options of other lists. As query parameters they would have no effect, without an error."""


def _split(client: Client, path: str) -> tuple[str, list[tuple[str, str]]]:
    """Return a path, percent-encoded, and its query; raise BadInput if it leads to another host."""
    if not isinstance(path, str):
        raise BadInput(f"path={show(path)}: pass text such as '/organizations/acme/agents'.")
    protocol.check_length("path", len(path))
    below, _, query = _below(client, path).partition("?")
    if any(part in {".", ".."} for part in unquote(below).split("/")) or re.search(r"[\x00-\x20\x7f\\#]", path):
        raise BadInput(
            f"path={show(path)} contains a space, `..`, `#` or a backslash. "
            "Percent-encode them if they belong to a name."
        )
    try:
        return quote(below, safe=_ALLOWED), parse_qsl(query, keep_blank_values=True)
    except UnicodeEncodeError:
        raise BadInput(f"path={show(path)} {protocol.HALF_SURROGATE}") from None


def _below(client: Client, path: str) -> str:
    """Return a path, or a URL of this service, as a path that begins with /v2."""
    if path.startswith("/") and not path.startswith("//"):
        return path if re.match(rf"{protocol.API}(?=[/?]|$)", path) else protocol.API + path
    try:
        below = client.target_of(path)
    except ValueError:
        raise BadInput(
            f"path={protocol.shown(path)!r} is not a path. Begin with a slash: '/organizations/acme/agents'."
        ) from None
    if below is None or not below.startswith(f"{protocol.API}/"):
        raise BadInput(
            f"path={protocol.shown(path)!r} is not below {client.base_url}{protocol.API}, and the token must "
            "not be sent elsewhere. Pass a path such as '/organizations/acme/agents'."
        )
    return below


def _pairs(name: str, value: Any) -> list[tuple[str, str]]:
    """Return a query parameter as the service parses it: lists as `name[]`, mappings as `name[key]`."""
    if getattr(getattr(value, "dtype", None), "kind", None) in _PLAIN_KINDS:  # NumPy or pandas
        value = value.tolist()
    if value is None:
        return []
    if isinstance(value, str | bytes) or not isinstance(value, Mapping | Sequence):
        return [(name, _text(name, value))]
    if not value:
        raise BadInput(f"{name}={show(value)}: an empty list or mapping sends nothing. Leave the parameter out.")
    if isinstance(value, Mapping):
        return [pair for key, inner in value.items() for pair in _pairs(f"{name}[{key}]", inner)]
    return [pair for inner in value for pair in _pairs(f"{name}[]", inner)]


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dt.date) and not pd.isna(value):  # datetimes, too
        return when(value, name).text()
    if isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return str(value)
    raise BadInput(f"{name}={show(value)}: pass a str, a number, a bool, a time, or a list or mapping of these.")


_PLAIN_KINDS = {*"biufOU"}  # of dtypes: bool, numbers, str and objects; NumPy's timestamps have no zone


# --- responses --------------------------------------------------------------------------------------------------------


class _RecordReader:
    """Reads pages of JSON. A page that is not a list counts as one record; see `is_list`.

    A page may also be an object with `items` and `links`, whose `next` is the next page, or with
    such links and a single list of another name. The other pages of that list need not have a next
    link. `is_unknown_page` says that an object looks like a page of a list, but does not say how to
    get the next one. An undeclared list may have no pages. Then the request for the second page
    returns the first one again.
    """

    def __init__(self, client: Client) -> None:
        self.is_list = False
        self.is_unknown_page = False
        self._client = client
        self._items_name: str | None = None
        self._probed: list[_Row] | None = None

    def read(self, request: Request, response: Response) -> Page:
        """Return the page in a response."""
        protocol.check(request, response)
        check_size(response.body)
        if response.headers.get("content-type", "").startswith("text/plain"):
            raise BadInput(f"{request.where} returned plain text, not JSON. For the log of a job use ci.log(job).")
        envelope = _read_envelope(response.body, self._items_name)
        if isinstance(envelope, _EnvelopedPage) and self._items_name is None:
            envelope = envelope if self._can_start(request, envelope) else "unknown"
        if isinstance(envelope, _EnvelopedPage):
            self.is_list = True
            self._items_name = envelope.name
            next_link = envelope.next or response.next
            opened = response._replace(body=bytes(envelope.items), next=next_link, last=None)
            page = protocol.read_page(request, opened, _DECODER)
            return replace(page, rows=_with_identity(page.rows), open=False, size=None, short=False)
        self.is_unknown_page = envelope is not None
        self.is_list = response.body.lstrip().startswith(b"[")
        body = response.body if self.is_list or not response.body.strip() else b"[" + response.body + b"]"
        page = protocol.read_page(request, response._replace(body=body), _DECODER)
        sizes = parse_qs(urlsplit(request.target).query).get("per_page", [])  # empty in a link of the service
        rows, size = _with_identity(page.rows), sizes[0].lstrip("0") if sizes else ""
        if rows and rows == self._probed:
            return replace(page, rows=[], open=False)
        is_open = page.open and self.is_list and not _has_whole_list(request)
        has_own_size = is_open and str(len(rows)) != size  # the service chooses the page size, or has no pages
        self._probed = rows if has_own_size and "page" not in parse_qs(urlsplit(request.target).query) else None
        return replace(page, rows=rows, open=is_open, short=page.short and is_open)

    def _can_start(self, request: Request, page: _EnvelopedPage) -> bool:
        """Whether the next link of a first page leads to this service. Links of `items` raise if not."""
        if page.name == "items" or page.next is None:
            return True
        try:
            self._client.follow(request, page.next)
        except Malformed:
            return False
        return True


_UNKNOWN_PAGE = (
    "the response is an object that looks like a page of a list, and its links to other pages are not known; it is"
    " returned as one record"
)
_ITEMS = {"items", "data", "results", "records", "entries", "values"}
_LINKS = {"self", "next", "prev", "previous", "first", "last"}
_LINK_FIELDS = ("links", "_links")
_PAGING_FIELDS = {
    "next", "next_page", "next_url", "next_cursor", "cursors", "page_info", "pageInfo", "paging", "pagination",
    "has_more",
}  # fmt: skip
"""Fields that a single record hardly has: an object with one of them and any list looks like a page."""

_FIELDS_OF_PAGES = {*_PAGING_FIELDS, *_LINK_FIELDS, "cursor", "page", "meta"}
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _EnvelopedPage(NamedTuple):
    """The items of a page, as JSON, the name of their field, and the link to the next page."""

    items: msgspec.Raw
    name: str
    next: str | None


def _read_envelope(body: bytes, items_name: str | None) -> _EnvelopedPage | Literal["unknown"] | None:
    """
    Return the page in an object, None for a single record; "unknown" for a page without known links.

    `items_name` is the field that had the items of the page before. A page after it is no record.
    """
    if not body.lstrip().startswith(b"{"):
        return None
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except _UNREADABLE:
        return None  # the error is raised when the whole body is decoded
    lists = [name for name, value in fields.items() if bytes(value).lstrip().startswith(b"[")]
    lists = [name for name in lists if name not in _LINK_FIELDS]
    links = _read_links(fields)
    name = items_name or _name_of_items(fields, lists, links)
    if name is None:
        return "unknown" if _looks_like_page(fields, lists, links) else None
    has_links = not fields.keys().isdisjoint(_LINK_FIELDS)
    is_known = not links or not _LINKS.isdisjoint(links)
    is_page = name in lists and is_known and (has_links or name != "items")
    return _page_of(fields, name, links.get("next")) if is_page else "unknown"


def _name_of_items(fields: Mapping[str, msgspec.Raw], lists: Sequence[str], links: Mapping[str, Any]) -> str | None:
    """Return the field with the items of a first page: `items`, or the only list beside a next link."""
    if "items" in lists and "links" in fields:
        return "items"
    is_record = "id" in fields  # which may have a list, too
    return lists[0] if len(lists) == 1 and "next" in links and not is_record else None


def _looks_like_page(fields: Mapping[str, msgspec.Raw], lists: Sequence[str], links: Mapping[str, Any]) -> bool:
    """Whether an object is hardly a single record: its list has a usual name, or other fields speak of pages."""
    has_usual_name = not _ITEMS.isdisjoint(lists)
    is_usual_page = has_usual_name and (len(fields) == 1 or not _FIELDS_OF_PAGES.isdisjoint(fields))
    has_paging = not _PAGING_FIELDS.isdisjoint(fields) or not (_LINKS - {"self"}).isdisjoint(links)
    return is_usual_page or (bool(lists) and has_paging)


def _page_of(fields: Mapping[str, msgspec.Raw], name: str, following: Any) -> _EnvelopedPage | Literal["unknown"]:
    """Return the page whose items are in a field; "unknown" if its next link is neither text nor null."""
    if not isinstance(following, str | None):
        return "unknown"
    return _EnvelopedPage(fields[name], name, following or None)


def _read_links(fields: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
    """Return the links of an object by their relation, such as `next`; "" for what has no relations."""
    name = next((name for name in _LINK_FIELDS if name in fields), None)
    if name is None:
        return {}
    try:
        links = msgspec.json.decode(fields[name])
    except _UNREADABLE:
        links = None
    if isinstance(links, list):
        return {str(link.get("rel")): link for link in links if isinstance(link, dict)}
    return links if isinstance(links, dict) else {"": links}


_WHOLE_LISTS = [
    re.compile(API + re.sub(r"{\w+}", "[^/]+", endpoint.path) + "/?")
    for endpoint in ENDPOINTS
    if endpoint.method == "GET" and endpoint.lists and (endpoint.ends_without_link or not endpoint.paginated)
]


def _has_whole_list(request: Request) -> bool:
    """Whether a path is that of a list whose response without a next link has all rows."""
    path = request.target.partition("?")[0]
    return any(pattern.fullmatch(path) for pattern in _WHOLE_LISTS)


_DECODER = msgspec.json.Decoder(list[Any])


class _Row(NamedTuple):
    """A record and the key that identifies it in the whole list."""

    record: Any
    identity: Hashable


def _with_identity(records: Sequence[Any]) -> list[_Row]:
    """Identify records by `id`, or by their content and its number of earlier occurrences, so that equal rows stay."""
    rows, counts = [], Counter[bytes]()
    for record in records:
        id = record.get("id") if isinstance(record, dict) else None
        if isinstance(id, str | int) and not isinstance(id, bool):
            rows.append(_Row(record, id))
            continue
        content = msgspec.json.encode(record, order="sorted")
        rows.append(_Row(record, (content, counts[content])))
        counts[content] += 1
    return rows


# --- records as a frame -----------------------------------------------------------------------------------------------


def frame_of(records: Sequence[Any]) -> pd.DataFrame:
    """Return records as a frame with a column for each key, whose Arrow type is inferred from the values."""
    rows = [record if isinstance(record, dict) else {"value": record} for record in records]
    names = dict.fromkeys(name for row in rows for name in row)
    n_cells = (len(rows) + _CELLS_OF_COLUMN) * len(names)
    if n_cells > max(_MAX_CELLS, 10 * sum(map(len, rows))):
        raise Malformed(
            f"The response has {len(names):,} different keys in {format_count(len(rows), 'row')}: too many for "
            "the columns of a frame. Use get(), which returns the rows as they are."
        )
    columns = {replace_terminal_controls(name): _column([row.get(name) for row in rows]) for name in names}
    if not columns:
        return pd.DataFrame(index=range(len(rows)))
    return replace_controls(pa.table(columns)).to_pandas(types_mapper=_dtype)


_MAX_CELLS = 10_000_000
"""Cells of a frame, unless one in ten has a value. Rows that share no keys would take gigabytes."""

_CELLS_OF_COLUMN = 1_000
"""A column takes as much time as so many cells, however few rows it has."""


def _dtype(kind: pa.DataType) -> Any:
    """Return the dtype that declared tables use, or Arrow's own; None, which is float64, for floating-point numbers."""
    return arrow.PANDAS_TYPES.get(kind) or (None if pa.types.is_floating(kind) else pd.ArrowDtype(kind))


def _column(values: list[Any]) -> pa.Array[Any]:
    """Return the values of one key as an array; as JSON text if they have no Arrow type in common."""
    if len({key for value in values if isinstance(value, dict) for key in value}) > _MOST_KEYS:
        return _as_json(values)
    try:
        array: pa.Array[Any] = pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, RecursionError):
        return _as_json(values)
    if pa.types.is_null(array.type):
        return array.cast(pa.large_string())
    if pa.types.is_string(array.type):
        return _times(values) or array.cast(pa.large_string())
    return array if _can_be_stored(array.type) else _as_json(values)


_MOST_KEYS = 200
"""Distinct keys of all objects in a column. If there are more, keys are data, and a struct type would grow by row."""

_MAX_DEPTH = 50
"""Levels of lists and objects. pandas, Arrow and Parquet recurse into a type and fail if it is nested deeply."""


def _can_be_stored(kind: pa.DataType, depth: int = 0) -> bool:
    """Whether a type is not too deep, and no part of it is without a type, such as an empty object."""
    parts = [kind.field(n).type for n in range(kind.num_fields)]
    is_untyped = pa.types.is_null(kind) or (pa.types.is_struct(kind) and not parts)
    return depth <= _MAX_DEPTH and not is_untyped and all(_can_be_stored(part, depth + 1) for part in parts)


def _as_json(values: list[Any]) -> pa.Array[Any]:
    return pa.array(map(arrow.as_text, values), pa.large_string())


def _times(values: list[str | None]) -> pa.Array[Any] | None:
    """Return texts as timestamps; None if a text is not a timestamp."""
    if not all(value is None or _TIME.match(value) for value in values):
        return None
    try:
        return arrow.timestamps(values)
    except Malformed:
        return None
