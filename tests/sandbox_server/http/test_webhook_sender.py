"""Webhooks out: which deliveries go to which receivers, in which order, also if receivers or the sandbox fail."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter

import httpx
import pytest

from buildframe import webhooks
from buildframe.errors import BadInput
from buildframe.sandbox_server import Patience, Sandbox
from buildframe.sandbox_server.db.database import Database
from tests.sandbox_server.webhook_receiver import SECRET, TINY, settled

HOUR = dt.timedelta(hours=1)
PIPELINES = {"acme": "web", "globex": "site"}
HASTY = Patience(attempts=4, wait=0.01, timeout=2)


@pytest.mark.long
def test_what_a_delivery_is_made_of(receive):
    receiver = receive()
    with Sandbox(**TINY) as sandbox:
        hook = sandbox.webhook(receiver.url, token=SECRET)
        (number,) = sandbox.push("web")
        sandbox.clock.advance(HOUR)
        log = settled(sandbox)
        own = [body for body in receiver.payloads[1:] if body["build"]["number"] == number]
        url = sandbox.url
    assert receiver.payloads[0]["event"] == "ping"
    assert [(d.event, d.id) for d in log] == [
        (headers["x-buildkite-event"], headers["x-service-delivery"]) for headers, _ in receiver.got
    ]
    assert {headers["x-service-token"] for headers, _ in receiver.got} == {SECRET}
    assert {headers["content-type"] for headers, _ in receiver.got} == {"application/json"}
    assert not any("x-buildkite-signature" in headers for headers, _ in receiver.got)
    assert [body["event"] for body in receiver.payloads] == receiver.events
    for body in receiver.payloads[1:]:
        assert body.keys() == {"event", "build", "pipeline", "sender"} | ({"job"} if "job." in body["event"] else set())
        assert "jobs" not in body["build"]
        assert body["build"]["url"].startswith(f"{url}/v2/organizations/acme/pipelines/{body['pipeline']['slug']}/")
        assert body["pipeline"]["provider"]["webhook_url"] == ""
    assert own[0]["event"] == "build.scheduled"
    assert own[0]["build"]["state"] == "scheduled"
    assert {"build.running", "build.finished", "job.scheduled", "job.started"} <= {body["event"] for body in own}
    assert all(d.hook == hook.id and d.attempts == 1 and d.status == 204 and d.failure is None for d in log)
    assert [d.at for d in log] == sorted(d.at for d in log)


@pytest.mark.long
def test_bodies_show_the_state_at_the_time_of_the_event(receive):
    receiver = receive()
    with Sandbox(**TINY) as sandbox:
        sandbox.webhook(receiver.url, token=SECRET)
        sandbox.push("web")
        sandbox.clock.advance(HOUR)
        settled(sandbox)
    states = {body["event"]: set() for body in receiver.payloads}
    for body in receiver.payloads[1:]:
        states[body["event"]].add(body.get("job", body["build"])["state"])
        if body["event"] == "build.running":
            assert body["build"]["finished_at"] is None
    assert states["build.scheduled"] == {"scheduled"}
    assert "running" in states["job.started"]
    assert not states["job.finished"] & {"running", "scheduled", "assigned"}
    assert states["build.finished"] <= {"passed", "failed", "blocked", "canceled", "skipped", "not_run"}


def test_receivers_can_verify_and_read_them_and_a_signature_is_of_the_raw_body_at_the_real_time(receive):
    plain, signed = receive(), receive()
    with Sandbox(**TINY) as sandbox:
        sandbox.webhook(plain.url, token=SECRET)
        sandbox.webhook(signed.url, token=SECRET, signed=True)
        sandbox.push("web")
        settled(sandbox)
    for receiver in (plain, signed):
        assert len(receiver.got) > 1
        for headers, body in receiver.got:
            webhooks.verify(headers, body, SECRET)
            assert webhooks.parse(body, headers).name == headers["x-buildkite-event"]
            assert ("x-service-token" in headers) is (receiver is plain)
    headers, body = signed.got[0]
    stamp, signature = (part.split("=", 1)[1] for part in headers["x-buildkite-signature"].split(","))
    assert hmac.new(SECRET.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest() == signature
    assert abs(int(stamp) - time.time()) < 120
    assert SECRET not in str(signed.got)


@pytest.mark.long
def test_a_hook_receives_the_events_it_selects(receive):
    selections = [("build.*", "job.*"), ("build.*",), ("job.finished",), (), None]
    receivers = {events: receive() for events in selections}
    with Sandbox(**TINY) as sandbox:
        for events, receiver in receivers.items():
            sandbox.webhook(receiver.url, token=SECRET, events=events)
        sandbox.push("web")
        sandbox.clock.advance(HOUR / 3)
        settled(sandbox)
    received = {events: receiver.events[1:] for events, receiver in receivers.items()}
    assert {receiver.events[0] for receiver in receivers.values()} == {"ping"}
    every = received[None]
    assert {"build.scheduled", "job.started", "job.finished"} <= set(every)
    assert received == {
        ("build.*", "job.*"): every,
        ("build.*",): [event for event in every if event.startswith("build.")],
        ("job.finished",): [event for event in every if event == "job.finished"],
        (): [],
        None: every,
    }


def test_a_hook_receives_events_of_its_organization(receive):
    acme, globex = receive(), receive()
    with Sandbox(**TINY) as sandbox:
        sandbox.webhook(acme.url, token="a")
        sandbox.webhook(globex.url, token="g", organization="globex")
        for organization in ("acme", "globex"):
            sandbox.push(PIPELINES[organization], organization=organization)
        settled(sandbox)
    for receiver, name in ((acme, "acme"), (globex, "globex")):
        assert len(receiver.payloads) > 1
        assert {body["build"]["url"].split("/")[5] for body in receiver.payloads[1:]} == {name}


def test_a_removed_hook_hears_nothing_more(receive):
    receiver, other = receive(503), receive()
    with Sandbox(**TINY, patience=Patience(attempts=9, wait=60)) as sandbox:
        hook = sandbox.webhook(receiver.url, token=SECRET)
        sandbox.webhook(other.url, token=SECRET)
        sandbox.push("web")
        sandbox.remove_webhook(hook)
        settled(sandbox)
        before = len(receiver.got)
        sandbox.push("web")
        settled(sandbox)
        assert len(receiver.got) == before <= 1
        assert other.events.count("build.scheduled") == 2
        with pytest.raises(BadInput):
            sandbox.remove_webhook(hook)


# --- receivers that fail ---


def test_what_is_not_accepted_is_sent_again_and_in_order(receive):
    receiver = receive(204, 500, 302, 404, 200, 503, 204)
    receiver.elsewhere = (elsewhere := receive()).url
    with Sandbox(**TINY, patience=HASTY) as sandbox:
        sandbox.webhook(receiver.url, token=SECRET, events=["build.scheduled"])
        numbers = sandbox.push("web", 3)
        log = settled(sandbox)
    assert elsewhere.got == []
    assert [(d.attempts, d.status) for d in log] == [(1, 204), (4, 200), (2, 204), (1, 204)]
    sent = [body["build"]["number"] for body in receiver.payloads[1:]]
    assert sent == [numbers[0]] * 4 + [numbers[1]] * 2 + [numbers[2]]
    ids = [headers["x-service-delivery"] for headers, _ in receiver.got]
    assert Counter(ids) == {d.id: d.attempts for d in log}


def test_what_is_never_accepted_is_given_up_and_the_next_goes_on(receive):
    receiver = receive(500, 500, 500, 500, 200)
    with Sandbox(**TINY, patience=HASTY) as sandbox:
        sandbox.webhook(receiver.url, token=SECRET, events=["build.scheduled"])
        sandbox.push("web")
        ping, build = settled(sandbox)
    assert (ping.attempts, ping.status, ping.failure, ping.delivered_at) == (4, 500, "status 500", None)
    assert (build.attempts, build.status, build.failure) == (1, 200, None)
    assert build.delivered_at is not None


def test_no_response_and_no_receiver_are_failures(receive):
    hangs, gone = receive(released := threading.Event()), receive()
    gone.stop()
    with Sandbox(**TINY, patience=Patience(attempts=2, wait=0.01, timeout=0.2)) as sandbox:
        for receiver in (hangs, gone):
            sandbox.webhook(receiver.url, token=SECRET)
        log = settled(sandbox)
    released.set()
    assert [(d.attempts, d.status) for d in log] == [(2, None), (2, None)]
    assert "timed out" in log[0].failure
    assert "refused" in log[1].failure


def test_a_hook_that_fails_holds_no_other_up(receive):
    bad, good = receive(503), receive()
    with Sandbox(**TINY, patience=Patience(attempts=3, wait=60)) as sandbox:
        for receiver in (bad, good):
            sandbox.webhook(receiver.url, token=SECRET, events=["build.scheduled"])
        sandbox.push("web", 2)
        deadline = time.monotonic() + 30
        while len(good.got) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert {d.pending for d in sandbox.deliveries() if d.url == bad.url} == {True}


# --- the sandbox stops, fails, is killed ---


@pytest.mark.long
def test_stopping_ends_a_delivery_under_way_and_a_new_start_makes_it(receive, tmp_path):
    receiver = receive(released := threading.Event())
    path = tmp_path / "world.db"
    before = set(threading.enumerate())  # other tests' sandboxes may serve in this process
    with Sandbox(path, **TINY, patience=Patience(timeout=600)) as sandbox:
        sandbox.webhook(receiver.url, token=SECRET, events=["build.scheduled"])
        (number,) = sandbox.push("web")
        while not receiver.got:
            time.sleep(0.01)
    assert not [one for one in set(threading.enumerate()) - before if one.name.startswith("buildframe")]
    released.set()
    receiver.responses = [200]
    with Sandbox(path) as again:
        ping, build = settled(again)
    assert (ping.attempts, ping.status, build.status) == (1, 200, 200)
    assert [body["event"] for body in receiver.payloads] == ["ping", "ping", "build.scheduled"]
    assert receiver.payloads[-1]["build"]["number"] == number
    assert receiver.payloads[-1]["build"]["url"].startswith(again.url)


def test_what_did_not_happen_is_not_reported(receive, monkeypatch):
    receiver = receive()
    with Sandbox(**TINY) as sandbox:
        sandbox.webhook(receiver.url, token=SECRET)

        def full(*_):
            raise sqlite3.OperationalError("database or disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(Database, "_put", full)
            with pytest.raises(sqlite3.OperationalError):
                sandbox.push("web")
        assert [d.event for d in settled(sandbox)] == ["ping"]
        sandbox.push("web")
        assert settled(sandbox)[1].event == "build.scheduled"


KILLED = """
import datetime as dt, sys
from buildframe.sandbox_server import Patience, Sandbox
from tests.sandbox_server.webhook_receiver import SECRET, TINY, settled
sandbox = Sandbox(sys.argv[1], builds=60, days=2, seed=5, patience=Patience(attempts=1000, wait=0.01))
sandbox.webhook(sys.argv[2], token="t", events=["build.scheduled", "build.finished"])
while True:
    sandbox.push("web")
    sandbox.clock.advance(dt.timedelta(minutes=3))
    print("on", flush=True)
"""


@pytest.mark.long
def test_a_killed_sandbox_reports_all_that_happened(receive, tmp_path):
    receiver, path = receive(204, 204, 500), tmp_path / "world.db"
    process = subprocess.Popen([sys.executable, "-c", KILLED, path, receiver.url], stdout=subprocess.PIPE)
    for _ in range(12):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    process.stdout.close()
    receiver.responses = [204]
    with Sandbox(path, patience=HASTY) as again:
        log = settled(again)
        headers = {"Authorization": f"Bearer {again.token()}"}
        url = f"{again.url}/v2/organizations/acme/builds?created_from=2026-10-30T15:00:00Z&per_page=100"
        builds = httpx.get(url, headers=headers).json()
    assert all(d.delivered_at is not None for d in log)
    assert {d.id for d in log} <= {headers["x-service-delivery"] for headers, _ in receiver.got}
    reported = {body["build"]["id"] for body in receiver.payloads[1:] if body["event"] == "build.scheduled"}
    assert reported >= {build["id"] for build in builds}
    over = {build["id"] for build in builds if build["finished_at"]}
    assert {body["build"]["id"] for body in receiver.payloads[1:] if body["event"] == "build.finished"} >= over
