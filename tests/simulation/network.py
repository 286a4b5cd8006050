"""The network as an adversary: what lies between a client and the service loses, cuts, alters, repeats and delays.

`Adversary.exchange` takes a request and returns the bytes of the response, with the seconds before each.
`SimulatedConnections` puts that in the place of sockets, below the HTTP library of the client, so that all above them
is real; `loopback` serves the same over real sockets.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import socket
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import format_datetime
from typing import Any, NamedTuple
from unittest import mock

import httpcore

from buildframe.spec import Moment
from tests.simulation import scheduler
from tests.simulation.service import SECOND, Answer, Service

DAY = 86_400
LAG = 240
"""Seconds by which a list may lag behind the service's time: within what a sync requests again."""

MOST_ROWS = 6
"""Of a page that does not take too long."""

ELSEWHERE = "elsewhere.example.com"


class Reply(NamedTuple):
    """What comes back: bytes, each after so many seconds; then the connection is kept, closed or reset."""

    chunks: Iterator[tuple[float, bytes]]
    end: str = "keep"


@dataclass
class Weather:
    """How often each fault happens, from 0 to 1, those that always do, and by how many seconds all dates are off."""

    rates: Mapping[str, float] = field(default_factory=dict)
    always: frozenset[str] = frozenset()
    skew: int = 0

    def __str__(self) -> str:
        rates = ", ".join(f"{name} {rate:.2g}" for name, rate in sorted(self.rates.items()))
        always = ", ".join(sorted(self.always)) or "nothing"
        return f"always: {always}; at times: {rates or 'nothing'}; all dates off by {self.skew} s"


@dataclass
class Exchange:
    """One request on its way: what faults change."""

    target: str
    token: str
    chance: random.Random
    service: Service
    at: int | None = None
    answer: Answer = field(default_factory=lambda: Answer(200, {}, b""))
    delays: tuple[float, float] = (0.0, 0.0)
    length: bool = True
    cut: int = 0
    trickle: float | None = None
    end: str = "keep"

    def head(self, **fields: str | None) -> None:
        """Change header fields; None drops one."""
        named = {name.replace("_", "-"): value for name, value in fields.items()}
        kept = {name: value for name, value in self.answer.headers.items() if name not in named}
        others = {name: value for name, value in named.items() if value is not None}
        self.answer = self.answer._replace(headers=kept | others)

    def refuse(self, status: int, body: bytes, **fields: str) -> None:
        """Answer with an error."""
        self.answer = Answer(status, {"Content-Type": "application/json", "Date": self.answer.headers["Date"]}, body)
        self.head(**fields)

    @property
    def link(self) -> str:
        return self.answer.headers.get("Link", "")


Fault = Callable[[Exchange], None]

# --- faults before a request reaches the service


def stale(it: Exchange) -> None:
    """A cache answers with what was so some time ago, and says when that was."""
    it.at = it.service.now - it.chance.randint(1, 3 * DAY) * SECOND


def lagging(it: Exchange) -> None:
    """A replica answers with what was so a little while ago, and gives the time of now."""
    it.at = it.service.now - it.chance.randint(1, LAG) * SECOND


def page_ignored(it: Exchange) -> None:
    """Something on the way drops the page's number."""
    it.target = re.sub(r"([?&])page=\d+&?", r"\1", it.target)


def bounds_ignored(it: Exchange) -> None:
    """Something on the way drops the requested times."""
    it.target = re.sub(r"created_(from|to)=[^&]*&?", "", it.target)


# --- faults of the answer


def status_500(it: Exchange) -> None:
    it.refuse(500, json.dumps({"message": f"Oops, said Bearer {it.token}"}).encode())


def status_502(it: Exchange) -> None:
    it.refuse(
        502, f"<html><h1>Bad Gateway</h1>Authorization: Bearer {it.token}</html>".encode(), Content_Type="text/html"
    )


def status_503(it: Exchange) -> None:
    it.refuse(503, b'{"message": "Down"}', Retry_After=it.chance.choice(["1", "30", "0", "-5", "soon", "90"]))


def large_pages(it: Exchange) -> None:
    """Pages of more rows than this take too long."""
    if int((re.findall(r"[?&]per_page=(\d+)", it.target) or ["1"])[0]) > MOST_ROWS:
        it.refuse(504, b'{"message": "upstream request timeout"}')


def limited(it: Exchange) -> None:
    reset = str(it.chance.choice([0, 1, 7, 45]))
    body = json.dumps({"message": "Too many", "scope": "rest", "limit": 200, "current": 201, "reset": int(reset)})
    it.refuse(429, body.encode(), RateLimit_Remaining="0", RateLimit_Limit="200", RateLimit_Reset=reset)


def odd_limits(it: Exchange) -> None:
    """Limits that cannot be."""
    odd = it.chance.choice(["-1", "1e9", "nan", "99999999999999999999", "many", "0"])
    it.head(RateLimit_Remaining=it.chance.choice(["0", "5", "-3", "x"]), RateLimit_Reset=odd)


def redirect(it: Exchange) -> None:
    it.refuse(302, b"", Location=f"https://{ELSEWHERE}{it.target}")


def portal(it: Exchange) -> None:
    """A page for people, as if all were well."""
    it.head(Content_Type="text/html", Link=None)
    it.answer = it.answer._replace(body=f"<html>Log in first: {it.token}</html>".encode())


def garbage(it: Exchange) -> None:
    """A flipped byte that leaves no JSON."""
    body = bytearray(it.answer.body)
    if body:
        body[it.chance.randrange(len(body))] = 0xFF
    it.answer = it.answer._replace(body=bytes(body))


def empty(it: Exchange) -> None:
    it.answer = it.answer._replace(body=b"")


def no_link(it: Exchange) -> None:
    it.head(Link=None)


def no_next(it: Exchange) -> None:
    it.head(Link=", ".join(link for link in it.link.split(", ") if 'rel="next"' not in link) or None)


def no_last(it: Exchange) -> None:
    it.head(Link=", ".join(link for link in it.link.split(", ") if 'rel="last"' not in link))


def wrong_last(it: Exchange) -> None:
    """A number of pages that is not so: too small, too large, absurd."""
    pages = it.chance.choice(["1", "2", "0", "3", "7", "50", "1000000000", "9" * 5000, "-4", "x"])
    it.head(Link=re.sub(r'([?&]page=)\d+([^>]*>; rel="last")', rf"\g<1>{pages}\2", it.link))


def link_elsewhere(it: Exchange) -> None:
    """The next page is at another host, which must not get the token."""
    it.head(Link=re.sub(r"https?://[^/]*(/[^>]*)>", rf"https://{ELSEWHERE}\1&t={it.token}>", it.link))


def no_date(it: Exchange) -> None:
    it.head(Date=None)


def odd_date(it: Exchange) -> None:
    odd = ["yesterday", "", "Thu, 32 Oct 2026 99:00:00 GMT", "Thu, 01 Jan 1970 00:00:00 GMT", "0", "\xff"]
    it.head(Date=it.chance.choice(odd))


def _moved(it: Exchange, seconds: int) -> None:
    moment = it.service.now + seconds * SECOND
    it.head(Date=format_datetime(Moment.from_us(moment), usegmt=True))


def date_ahead(it: Exchange) -> None:
    _moved(it, it.chance.choice([90, 3600, 2 * DAY]))


def date_behind(it: Exchange) -> None:
    _moved(it, -it.chance.choice([90, 3600, 2 * DAY]))


# --- faults of the delivery


def cut(it: Exchange) -> None:
    """The connection ends within the body."""
    it.cut = it.chance.randint(1, max(1, len(it.answer.body)))
    it.end = it.chance.choice(["close", "reset"])


def cut_unseen(it: Exchange) -> None:
    """The same where no length says how much there should be."""
    it.length, it.end = False, "close"
    it.cut = it.chance.randint(1, max(1, len(it.answer.body)))


def no_length(it: Exchange) -> None:
    """Whole, and its end is that of the connection."""
    it.length, it.end = False, "close"


def dropped(it: Exchange) -> None:
    it.cut, it.end = 10**9, it.chance.choice(["close", "reset"])


def hangs(it: Exchange) -> None:
    """Nothing comes back, and the connection stays."""
    it.cut = 10**9


def slow(it: Exchange) -> None:
    it.delays = (it.chance.uniform(0, 20), it.chance.uniform(0, 20))


def trickles(it: Exchange) -> None:
    """The body comes two bytes a second."""
    it.trickle = 0.5


def endless(it: Exchange) -> None:
    """A body of blanks that never ends."""
    it.trickle, it.length, it.end = 5.0, False, "close"
    it.answer = it.answer._replace(body=b"")


def doubled(it: Exchange) -> None:
    """Each row comes twice."""
    if it.answer.status == 200 and it.answer.body.startswith(b"["):
        rows = [row for row in json.loads(it.answer.body) for _ in range(2)]
        it.answer = it.answer._replace(body=json.dumps(rows).encode())


def zipped(it: Exchange) -> None:
    it.answer = it.answer._replace(body=gzip.compress(it.answer.body, 1))
    it.head(Content_Encoding="gzip")


def zipped_badly(it: Exchange) -> None:
    zipped(it)
    body = it.answer.body
    it.answer = it.answer._replace(body=body[: len(body) // 2] + b"?" + body[len(body) // 2 + 1 :])


BEFORE: dict[str, Fault] = {fault.__name__: fault for fault in (stale, lagging, page_ignored, bounds_ignored)}
AFTER: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (
        doubled, large_pages, status_500, status_502, status_503, limited, odd_limits, redirect, portal, garbage, empty,
        no_link, no_next, no_last, wrong_last, link_elsewhere, no_date, odd_date, date_ahead, date_behind,
        zipped, zipped_badly, slow, cut, cut_unseen, no_length, dropped, hangs, trickles, endless,
    )
}  # fmt: skip
LOSSES = frozenset({
    "large_pages", "status_500", "status_502", "status_503", "limited", "redirect", "portal", "garbage", "empty",
    "no_date", "odd_date", "zipped_badly", "cut", "cut_unseen", "dropped", "hangs", "trickles", "endless",
    "link_elsewhere",
})  # fmt: skip
"""Faults after which a request may have to be sent again."""

MOST_REQUESTS = 3000
"""Of one run, whatever it brings."""

MOST_IN_VAIN = 110
"""Answers in a row without a new row, after which a listing must have ended: 100, and those that are under way."""

REFUSED = "refused"  # of connections


class Adversary:
    """What lies between the clients and the service. `happened` counts the faults, `requests` what was sent.

    `oldest` is the earliest moment as of which an answer was, `in_vain` how many in a row had
    nothing new, each with the most that is allowed; `life` is called before and after each answer.
    """

    def __init__(self, service: Service, weather: Weather, chance: random.Random, token: str) -> None:
        self.service, self.weather, self.token = service, weather, token
        self._chance = chance
        self._seen: set[str] = set()
        self.in_vain = 0
        self.most_in_vain, self.most_requests = MOST_IN_VAIN, MOST_REQUESTS
        self.life: Callable[[], None] = lambda: None
        self.requests = 0
        self.happened: Counter[str] = Counter()
        self.oldest: int | None = None
        self.log: list[str] = []

    def begin(self) -> None:
        """A listing begins, for which all rows are new."""
        self._seen, self.in_vain = set(), 0

    def connects(self, host: str) -> bool:
        """Whether a connection can be made; one to elsewhere must not even be tried."""
        assert host != ELSEWHERE, "a connection to another host"
        return not self._strikes(REFUSED)

    def exchange(self, target: str, headers: Mapping[str, str]) -> Reply:
        """What comes back for a request."""
        assert headers.get("authorization") == f"Bearer {self.token}", "a request without the token"
        self.requests += 1
        if self.requests > self.most_requests:
            raise scheduler.Stuck(f"{self.requests} requests and no end")
        self.life()
        it = Exchange(target, self.token, self._chance, self.service)
        struck = [name for name in (*BEFORE, *AFTER) if self._strikes(name)]
        for name in struck:
            if name in BEFORE:
                BEFORE[name](it)
        it.answer = self.service.answer(it.target, it.at)
        if it.at is not None:
            self.oldest = it.at if self.oldest is None else min(self.oldest, it.at)
        self._count(struck)
        if self.weather.skew:
            _moved(it, self.weather.skew)
        for name in struck:
            if name in AFTER:
                AFTER[name](it)
        self.log.append(f"{scheduler.now():10.2f} {target} -> {it.answer.status} {' '.join(struck)}")
        self.life()
        return Reply(_bytes(it), it.end)

    def _count(self, struck: list[str]) -> None:
        """How many answers that arrived in a row had nothing new."""
        if LOSSES.intersection(struck):
            return
        self.in_vain = self.in_vain + 1 if self._seen.issuperset(self.service.sent) else 0
        if self.in_vain > self.most_in_vain:
            raise scheduler.Stuck(f"{self.in_vain} answers in a row without a new row")
        self._seen.update(self.service.sent)

    def _strikes(self, name: str) -> bool:
        rate = self.weather.rates.get(name, 0.0)
        struck = name in self.weather.always or (rate > 0 and self._chance.random() < rate)
        self.happened[name] += struck
        return struck


def _bytes(it: Exchange) -> Iterator[tuple[float, bytes]]:
    answer = it.answer
    fields = dict(answer.headers)
    if it.length:
        fields["Content-Length"] = str(len(answer.body))
    if it.end != "keep":
        fields["Connection"] = "close"
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    if it.cut >= 10**9:
        return
    yield it.chance.uniform(0.01, 0.2) + it.delays[0], f"HTTP/1.1 {answer.status} Said\r\n{head}\r\n".encode("latin-1")
    body = answer.body[: len(answer.body) - it.cut]
    if it.trickle is None:
        yield it.delays[1], body
        return
    for place in range(0, len(body), 2):
        yield it.trickle * 2, body[place : place + 2]
    while not answer.body:
        yield it.trickle, b" "


# --- in the place of sockets


class SimulatedConnections:
    """Connections of a client that end at an adversary, in simulated time."""

    def __init__(self, adversary: Adversary) -> None:
        self._adversary = adversary

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Replace the connections that are made meanwhile."""
        with mock.patch.object(httpcore.SyncBackend, "connect_tcp", self._connect):
            yield

    def _connect(self, host: str, *_: Any, **__: Any) -> httpcore.NetworkStream:
        scheduler.block(lambda: False, 0.01)
        if not self._adversary.connects(host):
            raise httpcore.ConnectError("[Errno 111] Connection refused")
        return _Stream(self._adversary)


class _Stream(httpcore.NetworkStream):
    """One connection. Its socket leads nowhere, but shows when the client cuts it off."""

    def __init__(self, adversary: Adversary) -> None:
        self._adversary = adversary
        self._near, self._far = socket.socketpair()
        self._far.setblocking(False)
        self._sent = b""
        self._coming: deque[tuple[float, bytes]] = deque()
        self._reply = Reply(iter(()))
        self._is_closed = False

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if self._is_cut():
            raise httpcore.WriteError("[Errno 32] Broken pipe")
        self._sent += buffer
        if b"\r\n\r\n" in self._sent:
            self._reply = self._adversary.exchange(*parsed(self._sent))
            self._sent = b""

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if not self._coming:
            following = next(self._reply.chunks, None)
            if following is None:
                return self._ended(timeout)
            self._coming.append(following)
        delay, data = self._coming.popleft()
        self._wait(delay, timeout)
        if len(data) > max_bytes:
            self._coming.appendleft((0.0, data[max_bytes:]))
        return data[:max_bytes] if data else self.read(max_bytes, timeout)

    def _ended(self, timeout: float | None) -> bytes:
        if self._reply.end == "reset":
            raise httpcore.ReadError("[Errno 104] Connection reset by peer")
        if self._reply.end == "keep":
            self._wait(None, timeout)
        self._is_closed = True
        return b""

    def _wait(self, seconds: float | None, timeout: float | None) -> None:
        """Wait for bytes; None: they never come."""
        is_late = timeout is not None and (seconds is None or seconds > timeout)
        if scheduler.block(self._is_cut, timeout if is_late else seconds):
            raise httpcore.ReadError("the connection was cut off")
        if is_late:
            raise httpcore.ReadTimeout("timed out")

    def _is_cut(self) -> bool:
        try:
            return self._far.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        self._near.close()
        self._far.close()

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            return self._is_closed or self._reply.end != "keep"
        return self._near if info == "socket" else None


def parsed(sent: bytes) -> tuple[str, dict[str, str]]:
    """The target and the header fields of a request."""
    first, *lines = sent.decode("latin-1").partition("\r\n\r\n")[0].split("\r\n")
    fields = (line.partition(":") for line in lines)
    return first.split(" ")[1], {name.strip().lower(): value.strip() for name, _, value in fields}
