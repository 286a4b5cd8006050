"""The ASGI application of the receiver: responses, counts, and secrets that it never shows."""

from __future__ import annotations

import hashlib
import hmac
import importlib
import json
import logging
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import buildframe as bf
from buildframe import receiver as receiving
from buildframe import webhooks
from buildframe.errors import BadInput, MissingExtra, StoreFailed
from buildframe.receiver import asgi, inbox
from buildframe.receiver.reduced_bodies import reduce_body
from tests.receiver.deliveries import of_job, states, synced
from tests.receiver.running_receiver import SECRET, Served, receiver, serving
from tests.refusals import refusal

LONG = 3600.0


def sent(url: str, body: bytes, *, token: str | None = SECRET, **headers: str) -> httpx.Response:
    carried = {} if token is None else {"X-Service-Token": token}
    return httpx.post(url, content=body, headers=carried | headers)


def job(number: int) -> bytes:
    return of_job(5 + number, number).body


def size(number: int) -> int:
    """Bytes that wait of that job."""
    return len(reduce_body(job(number), personal=False, env=False))


@pytest.fixture
def store(tmp_path: Path) -> bf.Store:
    return synced(tmp_path)


@pytest.fixture
def served(store: bf.Store, tmp_path: Path) -> Iterator[Served]:
    with receiver(tmp_path) as found:
        yield found


def test_a_misspelt_option_is_refused_with_the_right_name(store: bf.Store) -> None:
    with pytest.raises(BadInput, match=r"'evry'.* 'every'"):
        receiving.application(store, [SECRET], evry=3.0)  # type: ignore[call-arg]


def test_what_is_genuine_comes_into_the_store(served: Served, store: bf.Store) -> None:
    body = job(1)
    assert sent(served.url, job(0)).status_code == 204
    now = str(int(time.time()))
    made = hmac.new(SECRET.encode(), now.encode() + b"." + body, hashlib.sha256).hexdigest()
    signed = {"X-Buildkite-Signature": f"timestamp={now},signature={made}"}
    assert sent(served.url, body, token=None, **signed).status_code == 204
    status = served.until(waiting=0, received=2)
    assert status == {"received": 2, "builds": status["builds"], "jobs": 2, "left_out": 0, "lost": 0, "waiting": 0,
                    "waiting_bytes": 0, "oldest_s": None, "failures": 0, "disk_failures": 0, "refused": {}}  # fmt: skip
    assert states(store) == {"build-1": "running", "build-1/0": "running", "build-1/1": "running"}


def test_what_is_not_foreseen_is_refused_and_logged_without_the_token(
    store: bf.Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError(SECRET)

    body = job(0)
    with serving(receiving.application(store, [SECRET], every=0.1)) as served:
        with monkeypatch.context() as patch:
            patch.setattr("buildframe.webhooks.parse", fail)
            assert sent(served.url, body).status_code == 500
        assert served.status()["refused"] == {"500": 1}
        assert sent(served.url, body).status_code == 204
    assert "A delivery was refused: ZeroDivisionError at test_asgi.py:" in caplog.text
    assert SECRET not in caplog.text
    assert all(record.exc_info is None for record in caplog.records)


REFUSED: list[tuple[int, bytes, dict[str, Any]]] = [
    (401, b'{"event": "ping"}', {"token": None}),
    (401, b'{"event": "ping"}', {"token": "a guess"}),
    (401, b'{"event": "ping"}', {"X-Buildkite-Signature": "timestamp=1,signature=" + "0" * 64}),
    (401, b"x" * (asgi.MAX_BODY_BYTES - 1), {"token": "a guess"}),
    (400, b"", {}),
    (400, b"no JSON", {}),
    (400, b"[1]", {}),
    (400, b"{}", {}),
    (400, b'{"event": "build.running", "build": 7}', {}),
    (400, b'{"event": "build.running", "build": {"id": {}}}', {}),
    (413, b"x" * (asgi.MAX_BODY_BYTES + 1), {}),
]


def test_what_is_refused(served: Served) -> None:
    counts: Counter[str] = Counter()
    for status, body, headers in REFUSED:
        no = sent(served.url, body, **headers)
        assert (no.status_code, SECRET in no.text) == (status, False), (body[:60], headers)
        counts[str(status)] += 1
        assert served.status()["refused"] == counts
    for body in (b'{"event": "ping"}', b'{"event": "agent.lost", "agent": {}}'):  # without a build
        assert sent(served.url, body).status_code == 204
    parts = iter([b"x" * 100_000] * 20)  # of unknown length
    assert httpx.post(served.url, content=parts, headers={"X-Service-Token": SECRET}).status_code == 413
    assert served.status()["received"] == 0
    assert httpx.get(served.url).status_code == 405
    assert httpx.post(f"{served.url}health").status_code == 405
    assert httpx.get(f"{served.url}docs").status_code == 404


def test_the_old_and_the_new_token_are_taken_while_one_replaces_the_other(store: bf.Store) -> None:
    with serving(receiving.application(store, ["the old one", "the new one"], every=LONG)) as served:
        responses = [sent(served.url, job(n), token=token).status_code for n, token in enumerate(
            ["the old one", "the new one", "another one"]
        )]  # fmt: skip
    assert responses == [204, 204, 401]


def test_where_too_many_bytes_wait_the_service_is_to_come_again(
    store: bf.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "MAX_BYTES", 10 * 4096)
    with serving(receiving.application(store, [SECRET], every=LONG)) as served:
        responses = [sent(served.url, job(n)) for n in range(100)]
        statuses = [response.status_code for response in responses]
        assert set(statuses) == {204, 503}
        assert responses[-1].headers["Retry-After"] == "30"
        status = served.status()
        assert status["waiting"] == statuses.count(204)
        assert 4 * 4096 < status["waiting_bytes"] < 10 * 4096
        assert status["oldest_s"] >= 0
    assert len(states(store)) == 1 + statuses.count(204), "what waits is written in the end"


@pytest.mark.long
@pytest.mark.parametrize(
    ("limit", "many"), [("BATCH_SIZE", 2), ("BATCH_BYTES", 2 * size(0) + 10)], ids=["rows", "bytes"]
)
def test_not_all_that_waits_is_written_at_once(
    store: bf.Store, monkeypatch: pytest.MonkeyPatch, limit: str, many: int
) -> None:
    true, goes_on, sizes = bf.Store.receive, threading.Event(), []

    def receive(self: bf.Store, events: Any, **options: bool) -> Any:
        goes_on.wait(30)
        sizes.append(len(events))
        return true(self, events, **options)

    monkeypatch.setattr(bf.Store, "receive", receive)
    monkeypatch.setattr(inbox, limit, many)
    with serving(receiving.application(store, [SECRET], every=LONG)) as served:
        for number in range(7):
            sent(served.url, job(number))
        goes_on.set()
        served.until(waiting=1)
    assert sizes == [2, 2, 2, 1]
    assert len(states(store)) == 8


# --- bodies that come slowly, or not at all


def begun(served: Served) -> socket.socket:
    """A delivery of which half has come."""
    whole = job(0)
    head = f"POST / HTTP/1.1\r\nHost: here\r\nX-Service-Token: {SECRET}\r\nContent-Length: {len(whole)}\r\n\r\n"
    line = socket.create_connection(("127.0.0.1", int(served.url.rstrip("/").rpartition(":")[2])), timeout=30)
    line.sendall(head.encode() + whole[:50])
    return line


def test_a_body_that_does_not_come_is_given_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi, "REQUEST_TIMEOUT_S", 0.2)
    with begun(served) as line:
        line.settimeout(5)
        response = b"".join(iter(lambda: line.recv(1000), b""))  # until it is closed
    assert response.startswith(b"HTTP/1.1 408")
    assert served.status()["refused"] == {"408": 1}


def test_one_who_goes_away_is_no_forger(served: Served) -> None:
    begun(served).close()
    time.sleep(0.3)
    assert sent(served.url, job(1)).status_code == 204
    assert served.status()["refused"] == {}


def test_many_are_written_without_waiting(store: bf.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "BATCH_SIZE", 3)
    with serving(receiving.application(store, [SECRET], every=LONG)) as served:
        for number in range(2):
            sent(served.url, job(number))
        assert served.status()["waiting"] == 2
        sent(served.url, job(2))
        served.until(waiting=0, jobs=3)


def test_deliveries_that_cannot_be_written_wait_and_are_logged(
    store: bf.Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    true, works = bf.Store.receive, threading.Event()

    def receive(self: bf.Store, events: Any, **options: bool) -> Any:
        if works.is_set():
            return true(self, events, **options)
        raise StoreFailed("The disk is full.")

    monkeypatch.setattr(bf.Store, "receive", receive)
    with caplog.at_level(logging.WARNING), serving(receiving.application(store, [SECRET], every=0.05)) as served:
        sent(served.url, job(0))
        while served.status()["failures"] < 2:
            time.sleep(0.01)
        assert httpx.get(f"{served.url}health").status_code == 503
        assert served.status()["waiting"] == 1
        sent(served.url, job(1))
        works.set()
        served.until(waiting=0, failures=0, jobs=2)
    assert "could not be written to the store and wait: The disk is full." in caplog.text
    assert SECRET not in caplog.text


def test_a_delivery_that_cannot_be_converted_holds_up_no_other(
    store: bf.Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    true = webhooks.frames_per_event

    def frames(events: Any, fetched_at: Any) -> Any:
        if any(b"build-1/1" in event.body for event in events):
            raise ZeroDivisionError
        return true(events, fetched_at)

    monkeypatch.setattr(webhooks, "frames_per_event", frames)
    with serving(receiving.application(store, [SECRET], every=LONG)) as served:
        for number in range(3):
            sent(served.url, job(number))
    assert "1 deliveries were dropped. The next sync adds their builds" in caplog.text
    assert set(states(store)) == {"build-1", "build-1/0", "build-1/2"}


def test_no_delivery_is_lost_to_an_error_that_passes(store: bf.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    true, works = bf.Store.receive, threading.Event()

    def receive(self: bf.Store, events: Any, **options: bool) -> Any:
        if works.is_set():
            return true(self, events, **options)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(bf.Store, "receive", receive)
    with serving(receiving.application(store, [SECRET], every=0.05)) as served:
        for number in range(3):
            sent(served.url, job(number))
        while served.status()["failures"] < 2:
            time.sleep(0.01)
        assert httpx.get(f"{served.url}health").status_code == 503
        works.set()
        served.until(waiting=0, failures=0, lost=0)
    assert len(states(store)) == 4


@pytest.mark.long
def test_what_failed_is_tried_again_only_after_the_wait_and_once_more_in_the_end(
    store: bf.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    true, works, tries = bf.Store.receive, threading.Event(), []

    def receive(self: bf.Store, events: Any, **options: bool) -> Any:
        tries.append(works.is_set())
        if works.is_set():
            return true(self, events, **options)
        raise StoreFailed("The disk is full.")

    monkeypatch.setattr(bf.Store, "receive", receive)
    monkeypatch.setattr(inbox, "BATCH_SIZE", 1)
    with serving(receiving.application(store, [SECRET], every=LONG)) as served:
        for number in range(3):
            sent(served.url, job(number))
        served.until(failures=1)
        time.sleep(0.2)
        assert tries == [False]
        works.set()
    assert tries == [False, True, True, True]
    assert set(states(store)) == {"build-1", "build-1/0", "build-1/1", "build-1/2"}


def test_deliveries_that_cannot_be_written_at_the_end_are_logged(
    store: bf.Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def receive(self: bf.Store, events: Any, **options: bool) -> Any:
        raise StoreFailed("The disk is full.")

    monkeypatch.setattr(bf.Store, "receive", receive)
    with serving(receiving.application(store, [SECRET], every=LONG)) as served:
        sent(served.url, job(0))
    assert "1 deliveries stay in" in caplog.text


# --- before it begins


def test_a_store_that_was_never_synced_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no store"):
        receiving.application(bf.Store(tmp_path), [SECRET])


def test_secrets_and_waits_that_cannot_be_are_refused(store: bf.Store) -> None:
    secrets: list[Any] = [[], SECRET, [""], ["a\nb "], [SECRET, ""]]
    assert [each for each in secrets if not refusal(receiving.application, store, each)] == []
    waits = [0, -1, float("nan"), 1e9]
    said = {every: refusal(receiving.application, store, [SECRET], every=every) for every in waits}
    assert {every: message for every, message in said.items() if "every=" not in message} == {}


def test_the_environment_describes_it_for_any_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced(tmp_path)
    monkeypatch.delenv("BUILDFRAME_STORE", raising=False)
    assert "BUILDFRAME_STORE is not set" in refusal(receiving.app)
    monkeypatch.setenv("BUILDFRAME_STORE", str(tmp_path))
    assert "BUILDFRAME_WEBHOOK_TOKEN is not set" in refusal(receiving.app)
    monkeypatch.setenv("BUILDFRAME_WEBHOOK_TOKEN", "one two")
    with serving(receiving.app()) as served:
        assert [sent(served.url, job(0), token=token).status_code for token in ("one", "two", "one two")] == [
            204,
            204,
            401,
        ]


def test_without_its_extra_it_says_so(store: bf.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    monkeypatch.delitem(sys.modules, "buildframe.receiver.asgi")
    with pytest.raises(MissingExtra, match=r"buildframe\[receiver\]"):
        receiving.application(store, [SECRET])
    monkeypatch.undo()
    importlib.import_module("buildframe.receiver.asgi")


def test_nothing_shows_the_secret(store: bf.Store) -> None:
    made = receiving.application(store, [SECRET])
    shown = json.dumps([repr(made), str(vars(made)), repr(made.routes)])
    assert SECRET not in shown
