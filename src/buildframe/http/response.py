"""Represent a response; read its body, the service's time and rate limits. Does not know endpoints or clients."""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import re
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from io import BytesIO
from typing import Any, NamedTuple

import msgspec

from buildframe.errors import Malformed
from buildframe.spec import Moment
from buildframe.spec.times import VALID_YEARS


class TooLarge(Malformed):
    """A body has more bytes than are read.

    The next response to the same request would be as large.
    """

    retryable = False


class Response(NamedTuple):
    """A response as it came: header names in lower case; `next` and `last` are links as the server wrote them."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    next: str | None = None
    last: str | None = None

    def __repr__(self) -> str:
        return f"<Response {self.status}, {len(self.body)} bytes>"  # tracebacks must not print what a server echoes


def refused(why: str) -> Malformed:
    """Return the error of a response that would be the same again: its request is not repeated."""
    failure = Malformed(why)
    failure.retryable = False
    return failure


ACCEPTED = "gzip"  # the only accepted encoding; httpx would also accept those of installed optional packages

LARGEST = 256 * 2**20
"""Bytes of a body after decompression: 100 builds of 1,000 jobs each, and more than the log of a job may have."""

_PIECE = 2**20
_GZIP = 16 + zlib.MAX_WBITS


def read_body(pieces: Iterable[bytes], encoding: str, largest: int | None = None) -> bytes:
    """Return the whole body; raise Malformed if it is larger, encoded in another way, or cut off."""
    largest = LARGEST if largest is None else largest
    name = encoding.strip().lower()
    if name not in {"", "identity", "gzip", "x-gzip"}:
        raise Malformed(f"The response has encoding {encoding!r}, which is not accepted (Accept-Encoding: {ACCEPTED}).")
    whole, size = BytesIO(), 0
    for piece in _gunzipped(pieces) if "gzip" in name else pieces:
        size += len(piece)
        if size > largest:
            raise TooLarge(
                f"The response has more than {largest:,} bytes after decompression, and the rest was not read. "
                "Request less at once: a shorter time range, fewer builds, or builds without jobs."
            )
        whole.write(piece)
    return whole.getvalue()


def _gunzipped(pieces: Iterable[bytes]) -> Iterator[bytes]:
    member = None
    try:
        for piece in pieces:
            while piece:
                member = member or zlib.decompressobj(_GZIP)
                yield member.decompress(piece, _PIECE)
                piece = member.unconsumed_tail or member.unused_data
                member = None if member.eof else member
        if member is not None:
            yield member.flush()
    except zlib.error as why:
        raise Malformed(f"The response's gzip cannot be decompressed: {why}.") from None
    if member is not None and not member.eof:
        raise Malformed("The response is incomplete: its gzip data is cut off.")


_MOST_LINK_LENGTH = 2**16
"""Characters of a `Link` header that are parsed: as many as httpx allows for one URL."""


def is_link_parsed(header: str) -> bool:
    """Whether a `Link` header is short enough to be parsed."""
    return len(header) <= _MOST_LINK_LENGTH


def check_links(response: Response) -> None:
    """Raise Malformed if the `Link` header of a page is too long to be parsed."""
    header = response.headers.get("link", "")
    if not is_link_parsed(header):
        raise refused(
            f"The Link header of the response has {len(header):,} characters; at most "
            f"{_MOST_LINK_LENGTH:,} are read. Check that base_url is the service's API, and "
            "whether a proxy in between adds links."
        )


def link_relations(header: str) -> set[str]:
    """Return the relations in a `Link` header in lower case, such as `next`. Takes linear time."""
    relations: set[str] = set()
    for parameter in re.split("[;,]", header):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "rel":
            relations.update(value.lower().replace('"', " ").replace("'", " ").split())
    return relations


_MOST_ERROR_BYTES = 2**20


def error_body(response: Response) -> Any:
    """Return the decoded body of an error; None if it is no JSON, or longer than any error."""
    if len(response.body) > _MOST_ERROR_BYTES:
        return None
    try:
        return msgspec.json.decode(response.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class ReportedLimit(NamedTuple):
    """A rate limit in the headers: its name, the requests left, and the seconds until its window ends."""

    name: str
    remaining: int
    reset: float


_NEXT_DATE = re.compile(r",\s*(?=[A-Za-z]{3,9},)")
"""Separates several `Date` headers, each of which begins with a weekday and a comma."""


def date_of(response: Response) -> Moment:
    """Return the service's time of a response: the first readable `Date`.

    Raise Malformed if there is none.

    A proxy may add a second header, or remove it from single responses.
    """
    header = response.headers.get("date")
    for text in _NEXT_DATE.split(header or ""):
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            at = Moment.of(parsedate_to_datetime(text))
            if at.year in VALID_YEARS:
                return at
    reason = f": {header!r}." if header else ". A proxy may have removed it."
    raise Malformed(f"The response has no readable Date header, which lists need{reason}")


SIMULATED = "x-simulated-time"
"""Header of services whose clock runs faster than real time, or stands still: sandboxes."""


class ServiceTime:
    """The service's time at the first response of a call. Threads share it.

    A `Date` may be wrong, as one server or proxy of many may have a wrong clock. A time that is too late loses rows
    and one that is too early only costs requests, so the estimate `at` is the earliest that any response implies.
    """

    def __init__(self) -> None:
        self.at: Moment | None = None
        self.is_simulated = False
        self._begin = time.monotonic()
        self._lock = threading.Lock()

    def read(self, response: Response) -> None:
        """Take the time of a response into account; one without a readable `Date` has none."""
        try:
            date = date_of(response)
        except Malformed:
            return
        with self._lock:
            self.is_simulated = self.is_simulated or SIMULATED in response.headers
            self.see(date)

    def see(self, date: Moment) -> None:
        """Take a time of the service into account that was read just now."""
        if self.at is None:
            self.at = date
        elif date < self.at:  # the clock of an earlier response was ahead
            passed = dt.timedelta(seconds=time.monotonic() - self._begin)
            self.at = Moment.of((date - passed).replace(microsecond=0))


LONGEST_WINDOW = 3600.0
"""Seconds. A larger number is not the time until a window ends, but something else, such as a Unix time."""

_QUOTAS = ("ratelimit", "ratelimit-user", "rate-limit")


def reported_limits(response: Response) -> list[ReportedLimit]:
    """Return the rate limits in the headers of a response."""
    reported = [(name, _number(response, f"{name}-remaining"), _number(response, f"{name}-reset")) for name in _QUOTAS]
    return [
        ReportedLimit(name, int(left), reset)
        for name, left, reset in reported
        if left is not None and reset is not None
    ]


def blocked_for(response: Response) -> float | None:
    """Return the seconds for which a 429 blocks all requests, whatever its limits say: its Retry-After.

    If its headers contain neither that nor a limit that is used up, this is the reset in its body.
    """
    if response.status != 429:
        return None
    found = _retry_after_header(response)
    if found is not None or any(limit.remaining <= 0 for limit in reported_limits(response)):
        return found
    return _reset_in_body(response)


def retry_after(response: Response) -> float | None:
    """Return the seconds to wait by Retry-After, or else by the latest reset of a limit that is used up."""
    if response.status != 429 and response.status < 500:
        return None
    found = [
        _retry_after_header(response),
        *(limit.reset for limit in reported_limits(response) if limit.remaining <= 0 and limit.reset <= LONGEST_WINDOW),
    ]
    if response.status == 429:
        found.append(_reset_in_body(response))
    return max((seconds for seconds in found if seconds is not None), default=None)


def _retry_after_header(response: Response) -> float | None:
    """Return the seconds of Retry-After, which is a number or a date."""
    seconds = _number(response, "retry-after")
    if seconds is not None:
        return seconds
    try:
        at = Moment.of(parsedate_to_datetime(response.headers["retry-after"]))
        return max(0.0, (at - date_of(response)).total_seconds())
    except (KeyError, ValueError, TypeError, OverflowError, Malformed):
        return None


def _reset_in_body(response: Response) -> float | None:
    body = error_body(response)
    reset = body.get("reset") if isinstance(body, dict) else None
    return float(reset) if isinstance(reset, int | float) and 0 <= reset <= LONGEST_WINDOW else None


def _number(response: Response, header: str) -> float | None:
    try:
        number = float(response.headers.get(header, ""))
    except ValueError:
        return None
    return max(0.0, number) if math.isfinite(number) else None
