"""The receiving side of webhooks: is a delivery genuine, what does it tell, which rows does it give.

verify(headers, body, secret), then parse(body, headers), then frames(events). All take the raw bytes of the body.
"""

from __future__ import annotations

import datetime as dt
import hmac
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, get_args, runtime_checkable

import msgspec
import pandas as pd
import pyarrow as pa

from buildframe import tables, wire
from buildframe.arguments import checked_names
from buildframe.errors import BadInput, Malformed, Unverified
from buildframe.secret import confined
from buildframe.spec import Build, Job, Moment, Pipeline, Resource, when
from buildframe.spec.people import User
from buildframe.spec.reading import exact_record_in, record_in
from buildframe.spec.rows import row_type


@runtime_checkable
class HasItems(Protocol):
    """A dict, or what a server's framework has for headers."""

    def items(self) -> Iterable[tuple[Any, Any]]: ...


Headers = HasItems | Iterable[tuple[Any, Any]]
"""A delivery's headers: a mapping, or pairs as ASGI hands them over; texts or bytes, names in any case."""

FIVE_MINUTES = dt.timedelta(minutes=5)
_SIGNATURE = re.compile(rb"timestamp=([0-9]{1,12}),\s*signature=([0-9a-fA-F]{64})")


@dataclass(frozen=True)
class HeaderNames:
    """Which headers carry the secret token, the signature, and the name of the event."""

    token: tuple[str, ...] = ("X-Service-Token", "X-Buildkite-Token")
    signature: tuple[str, ...] = ("X-Buildkite-Signature",)
    event: tuple[str, ...] = ("X-Buildkite-Event",)

    def __post_init__(self) -> None:
        names: Any
        for names in (self.token, self.signature, self.event):
            if isinstance(names, str) or not all(isinstance(name, str) for name in names):
                raise BadInput(f"{names!r}: pass a tuple of header names, such as ('X-Service-Token',).")


HEADER_NAMES = HeaderNames()


@dataclass(frozen=True)
class Event:
    """One delivery as it was read: `body` (JSON) holds all of it, the records what of it has a declared shape.

    `name` is such as `ping`, `build.finished` or `job.started`; names and fields that are not known are kept.
    A build carries no jobs; its `state`, and a job's, may be words of notifications: `blocked`, `started`, `finished`.
    """

    name: str
    received_at: Moment
    body: bytes = field(repr=False)
    build: Build | None = None
    job: Job | None = None
    pipeline: Pipeline | None = None
    sender: User | None = None

    @property
    def document(self) -> dict[str, Any]:
        """All of it, decoded."""
        return msgspec.json.decode(self.body, type=dict[str, Any])


class Received(NamedTuple):
    """The builds and jobs that events told of."""

    builds: pd.DataFrame
    jobs: pd.DataFrame


# --- is it genuine ----------------------------------------------------------------------------------------------------


@checked_names
@confined
def verify(
    headers: Headers,
    body: bytes,
    secret: str,
    *,
    now: dt.datetime | None = None,
    max_age: dt.timedelta = FIVE_MINUTES,
    names: HeaderNames = HEADER_NAMES,
) -> None:
    """Raise Unverified unless the delivery was made by one who knows `secret`, the webhook's token.

    Where there is a signature it alone decides: it must be that of `body`, and made at most `max_age` before or after
    `now` (this machine's clock unless given). Else the token's header must equal the secret. A secret or body that
    cannot be one raises BadInput.
    """
    if not isinstance(max_age, dt.timedelta):
        raise BadInput(f"max_age={max_age!r}: pass a timedelta.")
    body, key, at = _raw(body), _key(secret), _or_now(now, "now")
    signature = _only(headers, names.signature)
    if signature is not None:
        _check_signature(signature, body, key, at, max_age)
    elif not hmac.compare_digest(_only(headers, names.token) or b"", key):
        raise Unverified("There is no signature, and no token's header that holds the secret.")


def _check_signature(signature: bytes, body: bytes, key: bytes, now: Moment, max_age: dt.timedelta) -> None:
    match = _SIGNATURE.fullmatch(signature.strip())
    if match is None:
        raise Unverified("The signature's header is not of the form `timestamp=<unix time>,signature=<64 hex digits>`.")
    made = hmac.new(key, match[1] + b"." + body, "sha256").hexdigest().encode()
    if not hmac.compare_digest(made, match[2].lower()):
        raise Unverified("The signature is not that of this body with this secret.")
    age = now.timestamp() - int(match[1])
    if abs(age) > max_age.total_seconds():
        raise Unverified(f"The signature is {age:.0f} s old, not within {max_age} of now: a replay, or a wrong clock.")


@checked_names
@confined
def signed_at(headers: Headers, *, names: HeaderNames = HEADER_NAMES) -> Moment | None:
    """When a delivery that passed `verify` was signed, by the sender's clock; None where it is not signed."""
    signature = _only(headers, names.signature)
    match = None if signature is None else _SIGNATURE.fullmatch(signature.strip())
    return None if match is None else Moment.from_us(int(match[1]) * 1_000_000)


def _key(secret: str) -> bytes:
    if not isinstance(secret, str) or not secret or not secret.isascii() or secret != secret.strip():
        raise BadInput("The secret is empty, or no plain text without spaces around: pass the webhook's token.")
    return secret.encode()


def _raw(body: bytes) -> bytes:
    if not isinstance(body, bytes):
        raise BadInput(f"The body is {type(body).__name__}; pass the raw bytes, as they came.")
    return body


def _or_now(instant: dt.datetime | None, name: str) -> Moment:
    return Moment.of(dt.datetime.now(dt.UTC)) if instant is None else when(instant, name)


def _only(headers: Headers, names: Sequence[str]) -> bytes | None:
    """The value of the one header of these names; None where there is none, Unverified where it cannot be told."""
    values = _values(headers, names)
    if not all(isinstance(value, str | bytes) for value in values) or len(distinct := set(map(_bytes, values))) > 1:
        raise Unverified(f"The delivery has {' or '.join(names)} with several values, or not as a text.")
    return distinct.pop() if distinct else None


def _values(headers: Headers, names: Sequence[str]) -> list[Any]:
    wanted = {name.lower().encode() for name in names}
    if not isinstance(headers, HasItems | Iterable):
        raise BadInput(f"The headers are {type(headers).__name__}; pass a mapping, or pairs of name and value.")
    pairs = headers.items() if isinstance(headers, HasItems) else headers
    return [value for name, value in pairs if isinstance(name, str | bytes) and _bytes(name).lower() in wanted]


def _bytes(text: str | bytes) -> bytes:
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


# --- what it tells ----------------------------------------------------------------------------------------------------


@checked_names
@confined
def parse(
    body: bytes,
    headers: Headers | None = None,
    *,
    received_at: dt.datetime | None = None,
    names: HeaderNames = HEADER_NAMES,
) -> Event:
    """The event in a delivery's body; `headers` name it where the body does not.

    `received_at` (now, unless given) becomes `fetched_at` of its rows. What cannot be read (no JSON object, no name, a
    build, job, pipeline or sender that is none) raises Malformed.
    """
    readable, document = _read(_raw(body))
    name = _text(document.get("event")) or _name(() if headers is None else headers, names)
    if not name:
        raise Malformed(f"The delivery names no event, neither in its body nor in {' or '.join(names.event)}.")
    return _event(name, _or_now(received_at, "received_at"), readable, document)


def _event(name: str, received_at: Moment, body: bytes, document: Mapping[str, Any]) -> Event:
    """What is not exactly of its declared shape is good, too, if it gives rows."""
    try:
        return Event(name, received_at, body, **_records(document, exact_record_in))
    except (msgspec.ValidationError, Malformed, RecursionError):
        pass
    try:
        event = Event(name, received_at, body, **_records(document, record_in))
    except (msgspec.ValidationError, RecursionError) as why:
        raise Malformed(f"The delivery cannot be read: {why}.") from None
    frames([event])
    return event


def _records(document: Mapping[str, Any], read: Callable[[type[Resource], Any], Any]) -> dict[str, Any]:
    kinds: dict[str, type[Resource]] = {"build": Build, "job": Job, "pipeline": Pipeline, "sender": User}
    return {key: read(kind, document[key]) for key, kind in kinds.items() if document.get(key) is not None}


def _read(body: bytes) -> tuple[bytes, dict[str, Any]]:
    """The body, mended where it must be, and what it holds."""
    try:
        return body, msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as why:
        mended = wire.mended(body)
        if mended is not None:
            return _read(mended)
        raise Malformed(f"The delivery cannot be read: {why}. It has {len(body)} bytes.") from None


def _name(headers: Headers, names: HeaderNames) -> str | None:
    values = _values(headers, names.event)
    return _text(values[0]) if len(values) == 1 else None


def _text(value: Any) -> str | None:
    """`value` if it is a text; bytes of a header as text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None


# --- its rows ---------------------------------------------------------------------------------------------------------


def frames(events: Iterable[Event]) -> Received:
    """The builds and jobs of events as frames with the columns and dtypes of fetched ones.

    One row for each `id`, of the event that was received last (of equals, the last in `events`); `fetched_at` is when
    that was. A build without a pipeline of its own has the event's; a job stands beside its event's build.
    A number too large for its column raises Malformed.
    """
    told = list(events)
    builds, jobs = each(told, [event.received_at for event in told])
    return Received(_latest("builds", builds), _latest("jobs", jobs))


def each(events: Sequence[Event], at: Sequence[Moment]) -> Received:
    """The same with a row for each time that an event tells of a build or a job; `at` are their `fetched_at`."""
    rows = [_row(event) for event in events]
    heads = tables.from_rows("builds", rows, Moment.from_us(0))
    place = heads.column_names.index("fetched_at")
    stamp = heads.schema.field(place)
    stamps = pa.array([moment.us for moment in at], pa.int64()).cast(stamp.type)
    heads = heads.set_column(place, stamp, stamps)
    jobs = tables.to_frame("jobs", [tables.jobs_of(heads, rows)])
    has_build = [event.build is not None for event in events]
    return Received(tables.to_frame("builds", [heads.filter(pa.array(has_build, pa.bool_()))]), jobs)


_INSIDE = {part.name: part.type for part in msgspec.structs.fields(row_type(Build))}
_ROWS: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
    msgspec.defstruct(
        "DeliveryRows",
        [  # a build's own kinds of pipeline and job, since rows of a table are of one kind
            ("build", row_type(Build) | None, None),
            ("job", get_args(get_args(_INSIDE["jobs"])[0])[0] | None, None),
            ("pipeline", _INSIDE["pipeline"], None),
        ],
    ),
    strict=False,
)


def _row(event: Event) -> Any:
    """A build's row with the event's job inside, as if it came from a list."""
    try:
        rows = _ROWS.decode(event.body)
    except msgspec.ValidationError as why:
        raise Malformed(f"The delivery of {event.name} gives no rows: {why}.") from None
    row: Any = rows.build or row_type(Build)()
    row.pipeline = row.pipeline or rows.pipeline
    row.jobs = [rows.job] if rows.job else row.jobs
    return row


def _latest(table: str, frame: pd.DataFrame) -> pd.DataFrame:
    frame = frame.sort_values("fetched_at", kind="stable").drop_duplicates("id", keep="last", ignore_index=True)
    frame.attrs["table"] = table
    return frame
