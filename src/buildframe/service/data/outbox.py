"""Webhooks on their way out: written down together with what they tell of, and kept until they are delivered.

A hook's deliveries go out in order. One that is not accepted is tried again later; what is written down outlives
the process, so a receiver may get a delivery twice, but never misses one that was not given up. That happens after
many attempts, and to the oldest where too many wait.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from buildframe.arguments import check
from buildframe.errors import BadInput
from buildframe.spec import Moment
from buildframe.wire import is_loopback

if TYPE_CHECKING:
    from buildframe.service.data.database import Data
    from buildframe.service.life.changes import Notice
    from buildframe.service.paging import Page

SCHEMA = """
CREATE TABLE hooks (
    id TEXT PRIMARY KEY, organization TEXT NOT NULL, url TEXT NOT NULL, token TEXT NOT NULL, signed INTEGER NOT NULL,
    events TEXT NOT NULL
);
CREATE TABLE deliveries (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL, hook TEXT NOT NULL, url TEXT NOT NULL, event TEXT NOT NULL,
    at INTEGER NOT NULL, body BLOB, due REAL NOT NULL, attempts INTEGER NOT NULL, status INTEGER, failure TEXT,
    delivered REAL
);
CREATE INDEX pending_deliveries ON deliveries (hook, seq) WHERE body IS NOT NULL;
CREATE INDEX settled_deliveries ON deliveries (hook, seq) WHERE body IS NULL;
"""
"""A hook's token is kept as it is: deliveries carry it. A delivery is pending while it has a body; `due` and
`delivered` are seconds of real time since 1970."""

EVENTS = ("build.*", "job.*")

MOST_PENDING = 5000
"""How many deliveries may wait for one hook; of more the oldest are given up."""

MOST_SETTLED = 2000
"""How many deliveries of one hook that were made or given up the log keeps: the newest."""


@dataclass(frozen=True)
class Hook:
    """Someone who is told of an organization's events; `events` are names or patterns such as `build.*`, None: all.

    With `signed` a delivery carries a signature made with the token, else the token itself.
    """

    id: str
    url: str
    organization: str
    events: tuple[str, ...] | None
    signed: bool
    token: str = field(repr=False)

    def wants(self, event: str) -> bool:
        """Whether it is told of an event of this name."""
        return self.events is None or any(fnmatchcase(event, pattern) for pattern in self.events)


@dataclass(frozen=True)
class Delivery:
    """What became of one event for one hook.

    `at` is the sandbox's time, `delivered_at` this machine's. `status` is that of the last answer, `failure` why
    the last attempt failed. `pending`: it will be tried (again).
    """

    id: str
    hook: str
    url: str
    event: str
    at: Moment
    attempts: int
    pending: bool
    status: int | None
    failure: str | None
    delivered_at: Moment | None


class Letter(NamedTuple):
    """A pending delivery with all that sending it needs; `due` in seconds of real time since 1970."""

    seq: int
    id: str
    hook: Hook
    event: str
    body: bytes
    attempts: int
    due: float


class Outbox:
    """The hooks and their deliveries. `pipeline` writes what a delivery says of a build's pipeline, by its key."""

    def __init__(self, data: Data, pipeline: Callable[[str], bytes]) -> None:
        self._data, self._pipeline = data, pipeline
        self.rouse: Callable[[str], None] = lambda hook: None
        """Called with a hook's id when there may be something to send to it; the data's lock is held."""
        found = data.rows("SELECT id, url, organization, events, signed, token FROM hooks ORDER BY rowid")
        self._hooks = {row[0]: _hook(*row) for row in found}

    # --- hooks ---

    def listens(self, organization: str) -> bool:
        """Whether anyone is told of this organization's events."""
        return any(hook.organization == organization for hook in self._hooks.values())

    def add(self, hook: Hook) -> None:
        """Tell someone from now on, beginning with a `ping`; raises BadInput for an unknown organization."""
        known = [organization.slug for organization in self._data.bodies.world.organizations]
        if hook.organization not in known:
            raise BadInput(f"There is no organization {hook.organization!r} here; there are {', '.join(known)}.")
        body = {"event": "ping", "organization": {"slug": hook.organization}, "sender": None}
        events = msgspec.json.encode(hook.events).decode()
        values = (hook.id, hook.organization, hook.url, hook.token, hook.signed, events)
        with self._data.lock:
            with self._data.writing():
                self._data.write("INSERT INTO hooks VALUES (?, ?, ?, ?, ?, ?)", values)
                self._put(hook, "ping", self._data.load_now(), msgspec.json.encode(body))
            self._hooks = self._hooks | {hook.id: hook}
            self.rouse(hook.id)

    def remove(self, id: str) -> None:
        """Tell a hook no more, also nothing that is pending."""
        if id not in self._hooks:
            raise BadInput(f"There is no webhook {id!r}.")
        with self._data.lock:
            with self._data.writing():
                self._data.write("DELETE FROM hooks WHERE id = ?", (id,))
                self._data.write(
                    "UPDATE deliveries SET body = NULL, failure = 'the webhook was removed'"
                    " WHERE hook = ? AND body IS NOT NULL",
                    (id,),
                )
            self._hooks = {other: hook for other, hook in self._hooks.items() if other != id}
            self.rouse(id)

    # --- writing down ---

    def keep(self, notices: Iterable[Notice]) -> None:
        """Write down what is to be told; part of the transaction that holds what happened."""
        told: set[str] = set()
        for notice in notices:
            hooks = [each for each in self._hooks.values() if each.organization == notice.organization]
            wanting = [hook for hook in hooks if hook.wants(notice.event)]
            body = self._body(notice) if wanting else b""
            for hook in wanting:
                self._put(hook, notice.event, notice.at, body)
                told.add(hook.id)
        for id in told:
            self._bound(id)
            self.rouse(id)

    def _body(self, notice: Notice) -> bytes:
        found = self._data.rows("SELECT line FROM builds WHERE id = ?", (notice.build_id,))
        creator = notice.body["build"].get("creator")
        sender = {"id": creator["id"], "name": creator["name"]} if creator else None
        pipeline = msgspec.Raw(self._pipeline(found[0][0]) if found else b"null")  # null: just deleted
        return msgspec.json.encode({"event": notice.event, **notice.body, "pipeline": pipeline, "sender": sender})

    def _put(self, hook: Hook, event: str, at: int, body: bytes) -> None:
        values = (str(uuid.uuid4()), hook.id, hook.url, event, at, body, time.time())
        self._data.write(
            "INSERT INTO deliveries (id, hook, url, event, at, body, due, attempts) VALUES (?, ?, ?, ?, ?, ?, ?, 0)",
            values,
        )

    def _bound(self, hook: str) -> None:
        self._data.write(
            "UPDATE deliveries SET body = NULL, failure = 'given up: too many others waited' WHERE hook = ?"
            " AND body IS NOT NULL AND seq <= (SELECT seq FROM deliveries WHERE hook = ? AND body IS NOT NULL"
            " ORDER BY seq DESC LIMIT 1 OFFSET ?)",
            (hook, hook, MOST_PENDING),
        )
        self._data.write(
            "DELETE FROM deliveries WHERE hook = ? AND body IS NULL AND seq <= (SELECT seq FROM deliveries"
            " WHERE hook = ? AND body IS NULL ORDER BY seq DESC LIMIT 1 OFFSET ?)",
            (hook, hook, MOST_SETTLED),
        )

    # --- sending ---

    def waiting(self) -> list[str]:
        """The ids of the hooks for which something is pending."""
        return [id for (id,) in self._data.rows("SELECT DISTINCT hook FROM deliveries WHERE body IS NOT NULL")]

    def has(self, hook: str) -> bool:
        """Whether this hook is there, and not removed."""
        return hook in self._hooks

    def next(self, hook: str) -> Letter | None:
        """The oldest pending delivery of a hook, due or not, if there is one."""
        with self._data.lock:
            found = self._data.rows(
                "SELECT seq, id, event, body, attempts, due FROM deliveries WHERE hook = ? AND body IS NOT NULL"
                " ORDER BY seq LIMIT 1",
                (hook,),
            )
            return next((Letter(row[0], row[1], self._hooks[hook], *row[2:]) for row in found), None)

    def delivered(self, letter: Letter, status: int) -> None:
        """Note that a delivery was accepted."""
        self._data.write(
            "UPDATE deliveries SET body = NULL, attempts = attempts + 1, status = ?, failure = NULL, delivered = ?"
            " WHERE seq = ?",
            (status, time.time(), letter.seq),
        )

    def failed(self, letter: Letter, status: int | None, failure: str, again: float | None) -> None:
        """Note that a delivery was not accepted, and when to try it again; None: it is given up.

        One that was given up while it was under way stays so.
        """
        self._data.write(
            "UPDATE deliveries SET body = CASE WHEN ? THEN body END, attempts = attempts + 1, status = ?,"
            " failure = CASE WHEN body IS NULL THEN failure ELSE ? END, due = ? WHERE seq = ?",
            (again is not None, status, failure, again or 0.0, letter.seq),
        )

    # --- telling ---

    def log(self, page: Page | None = None) -> list[Delivery]:
        """The deliveries, oldest first: all that are kept, or those on a page."""
        found = self._data.rows(
            "SELECT id, hook, url, event, at, attempts, body IS NOT NULL, status, failure, delivered"
            " FROM deliveries ORDER BY seq LIMIT ? OFFSET ?",
            (page.size, page.offset) if page else (-1, 0),
        )
        return list(_logged(found))

    def count(self) -> int:
        """How many deliveries are kept."""
        ((count,),) = self._data.rows("SELECT count(*) FROM deliveries")
        return int(count)


_DECLARED = {"url": str, "signed": bool, "events": Sequence[str] | None, "organization": str}
"""The arguments of a hook whose values an error may show: all but the token."""


def new_hook(url: str, token: str, signed: bool, events: Sequence[str] | None, organization: str) -> Hook:
    """A hook as it was asked for; raises BadInput for an address that is not on this machine."""
    if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable():
        raise BadInput("A webhook's token is some ASCII text.")
    if isinstance(events, str):
        raise BadInput(f"Pass a list of events, such as [{events!r}].")
    given = {"url": url, "signed": signed, "events": events, "organization": organization}
    check("webhook()", _DECLARED, given)
    _check_address(url)
    return Hook(str(uuid.uuid4()), url, organization, tuple(events) if events is not None else None, signed, token)


def _check_address(url: str) -> None:
    if not url.isascii() or not url.isprintable() or " " in url or not _is_http(url):
        raise BadInput(f"{url!r} is not an http address.")
    if not is_loopback(urlsplit(url).hostname or ""):
        raise BadInput(f"The sandbox sends nothing off this machine; {url!r} is elsewhere.")


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and parts.port != 0 and "@" not in parts.netloc
    except ValueError:
        return False


def _hook(id: str, url: str, organization: str, events: str, signed: int, token: str) -> Hook:
    chosen = msgspec.json.decode(events, type=tuple[str, ...] | None)
    return Hook(id, url, organization, chosen, bool(signed), token)


def _logged(rows: Iterable[tuple[Any, ...]]) -> Iterator[Delivery]:
    for id, hook, url, event, at, attempts, pending, status, failure, delivered in rows:
        when = None if delivered is None else Moment.from_us(int(delivered * 1_000_000))
        yield Delivery(id, hook, url, event, Moment.from_us(at), attempts, bool(pending), status, failure, when)
