"""Transactional outbox of webhooks: deliveries are stored with the change that they report, until they are sent.

Deliveries of a hook are sent in order, at least once. A delivery is dropped after too many attempts, or if too many
newer ones wait. `outbox.sql` has the statements. Does not know how deliveries are sent.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from buildframe.errors import BadInput
from buildframe.guards.arguments import check
from buildframe.http.protocol import is_loopback
from buildframe.sandbox_server.data_files import data_file
from buildframe.sandbox_server.db.database import Database
from buildframe.sandbox_server.world.build_state import BuildRun, JobRun
from buildframe.spec import Moment
from buildframe.spec.decoders import convert

_STATEMENTS = data_file("db/outbox.sql").read_text("utf-8")
_SQL: dict[str, str] = dict(re.findall(r"-- name: (\w+)\n(.*?);", _STATEMENTS, re.DOTALL))

EVENTS = ("build.*", "job.*")

MAX_PENDING = 5000
"""Maximum number of pending deliveries of a hook; beyond it the oldest are dropped."""

MAX_SETTLED = 2000
"""Number of delivered or dropped deliveries of a hook that the log retains: the newest."""


@dataclass(frozen=True)
class Hook:
    """
    A webhook of the sandbox, as `Sandbox.webhook` returns it.

    Attributes
    ----------
    id : str
        UUID of the webhook.
    url : str
        Address that receives the deliveries.
    organization : str
        Slug of the organization whose events are delivered.
    events : tuple of str or None
        Names or patterns of events, such as ``build.*``. None means all events.
    signed : bool
        Whether deliveries contain a signature made with the token, instead of the token itself.
    token : str
        The shared secret.
    """

    id: str
    url: str
    organization: str
    events: tuple[str, ...] | None
    signed: bool
    token: str = field(repr=False)

    def accepts(self, event: str) -> bool:
        """
        Return whether the webhook receives events of a name.

        Parameters
        ----------
        event : str
            Name of the event, such as ``build.finished``.

        Returns
        -------
        bool
            True if `events` is None or contains the name or a pattern that matches it.
        """
        return self.events is None or any(fnmatchcase(event, pattern) for pattern in self.events)


@dataclass(frozen=True)
class Delivery:
    """
    One event for one webhook, as `Sandbox.deliveries` lists it.

    Attributes
    ----------
    id : str
        UUID of the delivery.
    hook : str
        UUID of the webhook.
    url : str
        Address that receives the delivery.
    event : str
        Name of the event, such as ``build.finished``.
    at : Moment
        Time of the event, by the sandbox's clock.
    attempts : int
        Number of attempts so far.
    pending : bool
        Whether the delivery will be sent, or sent again.
    status : int or None
        HTTP status of the last response; None without one.
    failure : str or None
        Why the last attempt failed; None if it succeeded or there was none.
    delivered_at : Moment or None
        Time of the successful attempt, by this machine's clock; None if there was none.
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


class WebhookEvent(NamedTuple):
    """An event for webhooks, with the build and the job as they were at that time."""

    at: int
    event: str
    pipeline_key: str
    body: dict[str, Any]


class PendingDelivery(NamedTuple):
    """A delivery to send; `due` is in seconds of real time since 1970."""

    seq: int
    id: str
    hook: Hook
    event: str
    body: bytes
    attempts: int
    due: float


class Outbox:
    """The webhooks and their deliveries. `hooks`: the webhooks by id."""

    def __init__(self, db: Database) -> None:
        from buildframe.sandbox_server.db.pipeline_serializer import PipelineSerializer  # needs the extra `sandbox`

        self._db, self._pipelines = db, PipelineSerializer(db)
        self.wake: Callable[[str], None] = lambda hook: None
        """Callback with the id of a hook that may have pending deliveries; the database lock is held."""
        hooks = [
            Hook(id, url, organization, msgspec.json.decode(events, type=tuple[str, ...] | None), bool(signed), token)
            for id, url, organization, events, signed, token in db.query(_SQL["list_hooks"])
        ]
        self.hooks = {hook.id: hook for hook in hooks}

    def add(self, hook: Hook) -> None:
        """Add a webhook and send it a `ping`. Raises `BadInput` for an unknown organization."""
        self._db.serializer.world.get_organization(hook.organization)
        body = {"event": "ping", "organization": {"slug": hook.organization}, "sender": None}
        values = asdict(hook) | {"events": msgspec.json.encode(hook.events).decode()}
        with self._db.lock:
            with self._db.transaction():
                self._db.execute(_SQL["insert_hook"], values)
                self._insert(hook, "ping", self._db.load_now(), msgspec.json.encode(body))
            self.hooks = self.hooks | {hook.id: hook}
            self.wake(hook.id)

    def remove(self, id: str) -> None:
        """Remove a webhook and drop its pending deliveries."""
        if id not in self.hooks:
            raise BadInput(f"There is no webhook {id!r}. Pass one that `webhook()` returned.")
        with self._db.lock:
            with self._db.transaction():
                for name in ("delete_hook", "drop_all"):
                    self._db.execute(_SQL[name], {"hook": id})
            self.hooks = {other: hook for other, hook in self.hooks.items() if other != id}
            self.wake(id)

    def describe(self, at: int, event: str, build: BuildRun, job: JobRun | None) -> WebhookEvent:
        """Return an event with the build and the job as they are now. The state of the build may be `blocked`."""
        bodies = self._db.serializer
        body = {"build": bodies.serialize_build(build) | ({"state": "blocked"} if build.blocked else {})}
        if job is not None:
            body["job"] = bodies.serialize_job(build, job)
        return WebhookEvent(at, event, build.pipeline_key, body)

    def store(self, events: Sequence[WebhookEvent]) -> None:
        """Store events for the webhooks that accept them, in the transaction of the change."""
        ids: set[str] = set()
        for one in events:
            entry = self._db.pipelines[one.pipeline_key]
            hooks = [hook for hook in self.hooks.values() if hook.organization == entry.organization.slug]
            receivers = [hook for hook in hooks if hook.accepts(one.event)]
            if receivers:
                creator = one.body["build"].get("creator")
                sender = {"id": creator["id"], "name": creator["name"]} if creator else None
                more = {"pipeline": self._pipelines.serialize_embedded(entry), "sender": sender}
                body = msgspec.json.encode({"event": one.event, **one.body, **more})
                for hook in receivers:
                    self._insert(hook, one.event, one.at, body)
            ids |= {hook.id for hook in receivers}
        for id in ids:
            for name in ("drop_oldest", "delete_oldest"):
                self._db.execute(_SQL[name], {"hook": id, "pending": MAX_PENDING, "settled": MAX_SETTLED})
            self.wake(id)

    def _insert(self, hook: Hook, event: str, at: int, body: bytes) -> None:
        values = {"id": str(uuid.uuid4()), "hook": hook.id, "url": hook.url, "event": event, "at": at, "body": body}
        self._db.execute(_SQL["insert_delivery"], values | {"due": time.time()})

    def find_next_pending(self, hook: str) -> PendingDelivery | None:
        """Return the oldest pending delivery of a hook, due or not; None if there is none."""
        with self._db.lock:
            rows = self._db.query(_SQL["find_next_pending"], {"hook": hook})
            return next((PendingDelivery(row[0], row[1], self.hooks[hook], *row[2:]) for row in rows), None)

    def record_attempt(
        self, delivery: PendingDelivery, status: int | None, failure: str | None, again: float | None
    ) -> None:
        """Record an attempt; None means that it did not fail. `again` is the time of the next attempt, if any."""
        values = {"again": again, "failure": failure, "status": status, "now": time.time(), "seq": delivery.seq}
        self._db.execute(_SQL["record_attempt"], values)

    def list_deliveries(self) -> list[Delivery]:
        """Return the stored deliveries, oldest first."""
        rows = self._db.query(_SQL["list_deliveries"])
        names = [field.name for field in fields(Delivery)]
        bodies = [dict(zip(names, row, strict=True)) for row in rows]
        return convert(bodies, list[Delivery], strict=False, dec_hook=_from_us)


def _from_us(_: type, us: int) -> Moment:
    return Moment.from_us(us)


_DECLARED = {"url": str, "signed": bool, "events": Sequence[str] | None, "organization": str}
"""Types of the arguments that error messages may show: all but the token."""


def create_hook(url: str, token: str, signed: bool, events: Sequence[str] | None, organization: str) -> Hook:
    """Validate the arguments of a webhook. Raises `BadInput` for an address that is not on this machine."""
    if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable():
        raise BadInput("token must be a string of printable ASCII characters that is not empty.")
    if isinstance(events, str):
        raise BadInput(f"events={events!r} is a string. Pass a list: [{events!r}].")
    arguments = {"url": url, "signed": signed, "events": events, "organization": organization}
    check("webhook()", _DECLARED, arguments)
    _check_address(url)
    return Hook(str(uuid.uuid4()), url, organization, tuple(events) if events is not None else None, signed, token)


def _check_address(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_http = parts.scheme in ("http", "https") and parts.port != 0 and "@" not in parts.netloc
    except ValueError:
        is_http = False
    if not is_http or not url.isascii() or not url.isprintable() or " " in url:
        raise BadInput(f"url={url!r} is not an http or https address.")
    if not is_loopback(urlsplit(url).hostname or ""):
        raise BadInput(f"url={url!r} is not on this machine. Use a loopback address such as 'http://127.0.0.1:8000/'.")
