"""Webhooks that accumulate: a slow receiver delays no other, and neither backlog nor log grows without bound."""

from __future__ import annotations

import threading
import time

import httpx

from buildframe.sandbox_server import Patience, Sandbox
from buildframe.sandbox_server.db import outbox
from tests.sandbox_server.webhook_receiver import SECRET, TINY, settled

NOBODY = "http://127.0.0.1:9/"
NEVER = Patience(attempts=1000, wait=1e12, timeout=600)


def until(holds):
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_receiver_that_does_not_respond_holds_no_other_up(receive):
    hangs, good = receive(released := threading.Event()), receive()
    with Sandbox(**TINY, patience=NEVER) as sandbox:
        for receiver in (hangs, good):
            sandbox.webhook(receiver.url, token=SECRET, events=["build.scheduled"])
        until(lambda: hangs.got)
        numbers = sandbox.push("web", 3)
        until(lambda: len(good.got) == 4)
        assert [body["build"]["number"] for body in good.payloads[1:]] == numbers
        assert len(hangs.got) == 1
    released.set()


def carriers():
    return [thread for thread in threading.enumerate() if thread.name == "buildframe webhook"]


def test_each_hook_has_a_thread_until_it_is_removed_or_all_stops(receive):
    receiver = receive()
    with Sandbox(**TINY) as sandbox:
        assert carriers() == []
        hooks = [sandbox.webhook(receiver.url, token=SECRET) for _ in range(3)]
        settled(sandbox)
        assert len(carriers()) == 3
        sandbox.remove_webhook(hooks[0])
        until(lambda: len(carriers()) == 2)
    assert carriers() == []


def test_of_too_many_that_wait_the_oldest_are_given_up(receive, monkeypatch):
    monkeypatch.setattr(outbox, "MAX_PENDING", 4)
    dead, good = receive(503), receive()
    with Sandbox(**TINY, patience=NEVER) as sandbox:
        for receiver in (dead, good):
            sandbox.webhook(receiver.url, token=SECRET, events=["build.scheduled"])
        until(lambda: dead.got and good.got)
        for _ in range(10):
            sandbox.push("web")
            until(lambda: not [d for d in sandbox.deliveries() if d.url == good.url and d.pending])
        log = [d for d in sandbox.deliveries() if d.url == dead.url]
        assert [d.pending for d in log] == [False] * 7 + [True] * 4
        assert {d.failure for d in log[1:7]} == {"dropped: too many pending deliveries"}
        assert len(good.got) == 11


def test_what_is_given_up_while_under_way_stays_so(receive, monkeypatch):
    monkeypatch.setattr(outbox, "MAX_PENDING", 1)
    slow = receive(released := threading.Event(), 503)
    with Sandbox(**TINY, patience=NEVER) as sandbox:
        sandbox.webhook(slow.url, token=SECRET, events=["build.scheduled"])
        until(lambda: slow.got)
        sandbox.push("web", 2)
        released.set()
        until(lambda: sandbox.deliveries()[0].attempts)
        assert sandbox.deliveries()[0].failure == "dropped: too many pending deliveries"


def test_the_log_keeps_the_newest_of_each_hook(receive, monkeypatch):
    monkeypatch.setattr(outbox, "MAX_SETTLED", 5)
    busy, quiet = receive(), receive()
    with Sandbox(**TINY) as sandbox:
        sandbox.webhook(quiet.url, token=SECRET, organization="globex")
        sandbox.webhook(busy.url, token=SECRET, events=["build.scheduled"])
        for _ in range(9):
            sandbox.push("web")
            settled(sandbox)
        log = sandbox.deliveries()
    assert [d.event for d in log if d.url == quiet.url] == ["ping"]
    kept = [d.id for d in log if d.url == busy.url]
    sent = [headers["x-service-delivery"] for headers, _ in busy.got]
    assert len(sent) == 10
    assert kept == sent[-len(kept) :]
    assert 5 <= len(kept) <= 6  # and those since the last one was put down


def test_the_log_comes_in_pages():
    with Sandbox(**TINY, patience=Patience(attempts=1)) as sandbox:
        for _ in range(5):
            sandbox.webhook(NOBODY, token=SECRET)
        log = settled(sandbox)
        headers = {"Authorization": f"Bearer {sandbox.token(['sandbox'])}"}
        for size, sizes in {2: [2, 2, 1], 3: [3, 2], 100: [5]}.items():
            pages, url = [], f"{sandbox.url}/sandbox/deliveries?per_page={size}"
            while url:
                response = httpx.get(url, headers=headers)
                pages.append([delivery["id"] for delivery in response.json()])
                url = response.links.get("next", {}).get("url")
            assert [id for page in pages for id in page] == [d.id for d in log]
            assert [len(page) for page in pages] == sizes
        assert httpx.get(f"{sandbox.url}/sandbox/deliveries?page=99", headers=headers).json() == []
