"""Verify webhook deliveries and convert them to rows. Knows signatures and event shapes; not HTTP servers or stores.

Call `verify(headers, body, secret)`, `parse(body, headers)` and `frames(events)` with the raw bytes of the body.
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

from buildframe.errors import BadInput, Malformed, Unverified
from buildframe.fetching import arrow
from buildframe.fetching.decoder import may_be_shown
from buildframe.guards.arguments import checked_names
from buildframe.guards.secrets import confined
from buildframe.http.json_bodies import decode_repaired
from buildframe.spec import Build, Job, Moment, Pipeline, Resource, when
from buildframe.spec.members import User
from buildframe.spec.odd_values import OddValues
from buildframe.spec.reading import convert_exact_record, convert_record
from buildframe.spec.rows import read_row, row_type
from buildframe.terminal import shorten, show


@runtime_checkable
class HasItems(Protocol):
    """Describe a mapping of headers, such as a dict or the headers class of a web framework."""

    def items(self) -> Iterable[tuple[Any, Any]]: ...


Headers = HasItems | Iterable[tuple[Any, Any]]
"""Headers of a delivery: a mapping, or pairs as in ASGI. Names and values are str or bytes; case is ignored."""

__all__ = [
    "HEADER_NAMES",
    "MAX_AGE",
    "Event",
    "HeaderNames",
    "WebhookFrames",
    "frames",
    "parse",
    "signed_at",
    "verify",
]

MAX_AGE = dt.timedelta(minutes=5)
_SIGNATURE = re.compile(rb"timestamp=([0-9]{1,12}),\s*signature=([0-9a-fA-F]{64})")


@dataclass(frozen=True)
class HeaderNames:
    """
    Name the headers that carry the token, the signature and the event.

    Parameters
    ----------
    token : tuple of str, default ("X-Service-Token", "X-Buildkite-Token")
        Headers that contain the secret token.
    signature : tuple of str, default ("X-Buildkite-Signature",)
        Headers that contain the signature.
    event : tuple of str, default ("X-Buildkite-Event",)
        Headers that contain the name of the event.

    Raises
    ------
    BadInput
        If a value is not a tuple of str.

    Examples
    --------
    >>> HeaderNames(token=("X-My-Token",)).token
    ('X-My-Token',)
    """

    token: tuple[str, ...] = ("X-Service-Token", "X-Buildkite-Token")
    signature: tuple[str, ...] = ("X-Buildkite-Signature",)
    event: tuple[str, ...] = ("X-Buildkite-Event",)

    def __post_init__(self) -> None:
        names: Any
        for names in (self.token, self.signature, self.event):
            if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
                raise BadInput(
                    f"{show(names)} is not a tuple of header names: pass a tuple such as ('X-Service-Token',)."
                )


HEADER_NAMES = HeaderNames()


def _checked(names: HeaderNames) -> HeaderNames:
    if not isinstance(names, HeaderNames):
        raise BadInput(f"names={show(names)}: pass a HeaderNames, such as HeaderNames(token=('X-Service-Token',)).")
    return names


@dataclass(frozen=True)
class Event:
    """
    Hold a parsed delivery. `parse` creates events.

    Parameters
    ----------
    name : str
        Name such as `ping`, `build.finished` or `job.started`. Unknown names are allowed.
    received_at : Moment
        Time at which the delivery was received.
    body : bytes
        The whole delivery as JSON, with unknown fields.
    build : Build, optional
        Build without its jobs. Its state can be specific to events, such as `blocked`, `started` or `finished`.
    job : Job, optional
        Job. Its state can be specific to events, too.
    pipeline : Pipeline, optional
        Pipeline of the build.
    sender : User, optional
        User who caused the event.
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
        """Decoded body."""
        return msgspec.json.decode(self.body, type=dict[str, Any])


class WebhookFrames(NamedTuple):
    """
    Hold the builds and jobs of events as two frames.

    Attributes
    ----------
    builds : DataFrame
        One row per build, with the columns of the table `builds`.
    jobs : DataFrame
        One row per job, with the columns of the table `jobs`.
    """

    builds: pd.DataFrame
    jobs: pd.DataFrame


# --- verification -----------------------------------------------------------------------------------------------------


@checked_names
@confined
def verify(
    headers: Headers,
    body: bytes,
    secret: str,
    *,
    now: dt.datetime | None = None,
    max_age: dt.timedelta = MAX_AGE,
    names: HeaderNames = HEADER_NAMES,
) -> None:
    """
    Verify that a delivery was sent by someone who knows the secret of the webhook.

    If there is a signature header, only the signature counts. Otherwise the token header must equal the secret.

    Parameters
    ----------
    headers : mapping or iterable of pairs
        Headers of the delivery. Names and values are str or bytes; case is ignored.
    body : bytes
        Raw body of the delivery.
    secret : str
        Token of the webhook, as shown by the service.
    now : datetime, optional
        Current time with a zone. By default the clock of this machine.
    max_age : timedelta, default 5 minutes
        Maximum difference between the time of the signature and `now`, in either direction.
    names : HeaderNames
        Names of the headers.

    Raises
    ------
    Unverified
        If the signature or the token is missing, wrong or ambiguous, or the signature is too old.
    BadInput
        If the body is not bytes, or the secret cannot be a token.

    See Also
    --------
    parse : Convert the body to an event.

    Examples
    --------
    >>> verify({"X-Service-Token": "s3cret"}, b'{"event": "ping"}', "s3cret")
    """
    if not isinstance(max_age, dt.timedelta):
        raise BadInput(f"max_age={show(max_age)} is not a duration. Pass a timedelta.")
    if not isinstance(secret, str) or not secret or not secret.isascii() or secret != secret.strip():
        raise BadInput("The secret is empty, not ASCII, or surrounded by spaces. Pass the token of the webhook.")
    body, key, at = _raw(body), secret.encode(), _or_now(now, "now")
    signature = _only(headers, _checked(names).signature)
    if signature is not None:
        _check_signature(signature, body, key, at, max_age)
    elif not hmac.compare_digest(_only(headers, names.token) or b"", key):
        raise Unverified("The delivery has neither a signature nor a token header with the secret.")


def _check_signature(signature: bytes, body: bytes, key: bytes, now: Moment, max_age: dt.timedelta) -> None:
    match = _SIGNATURE.fullmatch(signature.strip())
    if match is None:
        raise Unverified(
            "The signature header does not have the form `timestamp=<unix time>,signature=<64 hex digits>`."
        )
    made = hmac.new(key, match[1] + b"." + body, "sha256").hexdigest().encode()
    if not hmac.compare_digest(made, match[2].lower()):
        raise Unverified("The signature does not match the body and the secret.")
    age = now.timestamp() - int(match[1])
    if abs(age) > max_age.total_seconds():
        raise Unverified(f"The signature is {age:.0f} s old, not within {max_age} of now: a replay, or a wrong clock.")


@checked_names
@confined
def signed_at(headers: Headers, *, names: HeaderNames = HEADER_NAMES) -> Moment | None:
    """
    Return the time at which a verified delivery was signed.

    Parameters
    ----------
    headers : mapping or iterable of pairs
        Headers of a delivery that passed `verify`.
    names : HeaderNames
        Names of the headers.

    Returns
    -------
    Moment or None
        Time of the sender's clock. None if the delivery has no signature.

    Raises
    ------
    Unverified
        If there are several different signatures.

    Examples
    --------
    >>> signed_at({"X-Service-Token": "s3cret"}) is None
    True
    """
    signature = _only(headers, _checked(names).signature)
    match = None if signature is None else _SIGNATURE.fullmatch(signature.strip())
    return None if match is None else Moment.from_us(int(match[1]) * 1_000_000)


def _raw(body: bytes) -> bytes:
    if not isinstance(body, bytes):
        raise BadInput(f"The body is {type(body).__name__}. Pass the raw bytes of the request.")
    return body


def _or_now(instant: dt.datetime | None, name: str) -> Moment:
    return Moment.of(dt.datetime.now(dt.UTC)) if instant is None else when(instant, name)


def _only(headers: Headers, names: Sequence[str]) -> bytes | None:
    """Return the value of the header with one of these names, or None. Raise Unverified if values differ."""
    values = _values(headers, names)
    if not all(isinstance(value, str | bytes) for value in values) or len(distinct := set(map(_bytes, values))) > 1:
        raise Unverified(f"The header {' or '.join(names)} has several values, or one that is not text.")
    return distinct.pop() if distinct else None


def _values(headers: Headers, names: Sequence[str]) -> list[Any]:
    lower_names = {name.lower().encode() for name in names}
    if not isinstance(headers, HasItems | Iterable):
        raise BadInput(f"The headers are {type(headers).__name__}. Pass a mapping, or pairs of name and value.")
    pairs = list(headers.items() if isinstance(headers, HasItems) else headers)
    if not all(isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2 for pair in pairs):
        raise BadInput("The headers are not pairs of name and value. Pass a mapping, or pairs.")  # not shown: secrets
    return [value for name, value in pairs if isinstance(name, str | bytes) and _bytes(name).lower() in lower_names]


def _bytes(text: str | bytes) -> bytes:
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


# --- parsing ---------------------------------------------------------------------------------------------------------


@checked_names
@confined
def parse(
    body: bytes,
    headers: Headers | None = None,
    *,
    received_at: dt.datetime | None = None,
    names: HeaderNames = HEADER_NAMES,
) -> Event:
    """
    Parse the body of a delivery. Does not verify it.

    Parameters
    ----------
    body : bytes
        Raw body of the delivery: a JSON object.
    headers : mapping or iterable of pairs, optional
        Headers that name the event if the body does not.
    received_at : datetime, optional
        Time with a zone that becomes `fetched_at` of the rows. By default the clock of this machine.
    names : HeaderNames
        Names of the headers.

    Returns
    -------
    Event
        The event with its build, job, pipeline and sender.

    Raises
    ------
    Malformed
        If the body is not a JSON object, names no event, or contains an invalid build, job, pipeline or sender.
    BadInput
        If the body is not bytes, or `received_at` has no zone.

    See Also
    --------
    verify : Verify the sender of a delivery.
    frames : Convert events to frames.

    Examples
    --------
    >>> parse(b'{"event": "ping"}').name
    'ping'
    """
    names = _checked(names)
    readable, document = _read(_raw(body))
    name = _text(document.get("event"))
    if not name:
        sent = _values(() if headers is None else headers, names.event)
        name = _text(sent[0]) if len(sent) == 1 else None
    if not name:
        raise Malformed(
            f"The delivery names no event, neither in its body nor in the header {' or '.join(names.event)}."
        )
    return _event(name, _or_now(received_at, "received_at"), readable, document)


def _event(name: str, received_at: Moment, body: bytes, document: Mapping[str, Any]) -> Event:
    """Return the event. Values of another type than declared become None, or text."""
    try:
        return Event(name, received_at, body, **_records(document, convert_exact_record))
    except (msgspec.ValidationError, Malformed, RecursionError):
        pass
    try:
        event = Event(name, received_at, body, **_records(document, convert_record))
    except (msgspec.ValidationError, RecursionError) as why:
        raise Malformed(f"The delivery cannot be parsed: {shorten(str(why))}.") from None
    return event


def _records(document: Mapping[str, Any], read: Callable[[type[Resource], Any], Any]) -> dict[str, Any]:
    """Return the records of a delivery.

    Without a build and a job that can be identified, it is refused.
    """
    kinds: dict[str, type[Resource]] = {"build": Build, "job": Job, "pipeline": Pipeline, "sender": User}
    records = {}
    for key, kind in kinds.items():
        if document.get(key) is not None:
            try:
                records[key] = read(kind, document[key])
            except msgspec.ValidationError:
                if kind in (Build, Job) or read is convert_exact_record:
                    raise
    return records


def _read(body: bytes) -> tuple[bytes, dict[str, Any]]:
    """Return the body, with invalid characters repaired if needed, and its decoded content."""
    try:
        return decode_repaired(body, lambda text: msgspec.json.decode(text, type=dict[str, Any]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as why:
        raise Malformed(f"The delivery cannot be parsed ({len(body)} bytes): {shorten(str(why))}.") from None


def _text(value: Any) -> str | None:
    """Return a str, or the bytes of a header as str; None for other types."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None


# --- rows -------------------------------------------------------------------------------------------------------------


@checked_names
def frames(events: Iterable[Event]) -> WebhookFrames:
    """
    Convert events to frames of builds and jobs.

    Parameters
    ----------
    events : iterable of Event
        Events in any order, as returned by `parse`.

    Returns
    -------
    WebhookFrames
        `builds` and `jobs`, with the same columns and dtypes as listed ones. Each `id` has one row, from the event
        that was received last. `fetched_at` is the time of that event. Fields that an event does not contain are null.

    Raises
    ------
    BadInput
        If `events` is not a list of events.
    Malformed
        If a number is too large for its column.

    Examples
    --------
    >>> builds, jobs = frames([parse(b'{"event": "ping"}')])
    >>> len(builds), len(jobs)
    (0, 0)
    """
    events = check_events(events)
    builds, jobs = frames_per_event(events, [event.received_at for event in events])
    return WebhookFrames(_latest("builds", builds), _latest("jobs", jobs))


def check_events(events: Iterable[Event]) -> list[Event]:
    """Return the events as a list; raise BadInput for other values."""
    is_list = isinstance(events, Iterable) and not isinstance(events, str | bytes | Mapping)
    checked_events: list[Any] = list(events) if is_list else [events]
    for event in checked_events:
        if not isinstance(event, Event):
            raise BadInput(
                f"events={show(event):.80} is not an event. Pass a list of events, such as [webhooks.parse(body)]."
            )
    return checked_events


def frames_per_event(events: Sequence[Event], fetched_at: Sequence[Moment]) -> WebhookFrames:
    """Return frames with a row for each build and job of each event, with these times as `fetched_at`."""
    odd = OddValues(may_be_shown("builds"))
    rows = [_row(event, odd) for event in events]
    heads = arrow.from_rows("builds", rows, Moment.from_us(0), report=odd.add)
    place = heads.column_names.index("fetched_at")
    stamp = heads.schema.field(place)
    stamps = pa.array([moment.us for moment in fetched_at], pa.int64()).cast(stamp.type)
    heads = heads.set_column(place, stamp, stamps)
    jobs = arrow.to_frame("jobs", [arrow.jobs_of(heads, rows, report=odd.add)])
    has_build = [event.build is not None for event in events]
    builds = arrow.to_frame("builds", [heads.filter(pa.array(has_build, pa.bool_()))])
    for frame in (builds, jobs):
        frame.attrs["odd"] = odd.entries(str)
    return WebhookFrames(builds, jobs)


_INSIDE = {part.name: part.type for part in msgspec.structs.fields(row_type(Build))}
DELIVERY_ROWS = msgspec.defstruct(
    "DeliveryRows",
    [  # the types of a build row: all rows of a table need the same types
        ("build", row_type(Build) | None, None),
        ("job", get_args(get_args(_INSIDE["jobs"])[0])[0] | None, None),
        ("pipeline", _INSIDE["pipeline"], None),
    ],
)


def _row(event: Event, odd: OddValues) -> Any:
    """Return a build row with the job of the event inside, as in a list of builds.

    Add its odd values to `odd`.
    """
    rows, found = read_row(DELIVERY_ROWS, event.body)
    row: Any = rows.build or row_type(Build)()
    for value in found:  # of the build, of a job in it, or of another record of the delivery
        record, _, field = value.field.partition(".")
        if value.job is not None:
            odd.add(value._replace(row=row))
        elif record == "job":
            odd.add(value._replace(field=field or record, row=row, job=rows.job))
        else:
            odd.add(value._replace(field=field if record == "build" and field else value.field, row=row))
    row.pipeline = row.pipeline or rows.pipeline
    row.jobs = [rows.job] if rows.job else row.jobs
    return row


def _latest(table: str, frame: pd.DataFrame) -> pd.DataFrame:
    frame = frame.sort_values("fetched_at", kind="stable").drop_duplicates("id", keep="last", ignore_index=True)
    frame.attrs["table"] = table
    return frame


def __dir__() -> list[str]:
    return __all__
