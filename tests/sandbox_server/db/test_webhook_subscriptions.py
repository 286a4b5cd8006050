"""Who can receive events: addresses on this machine only, and hooks that make sense."""

from __future__ import annotations

import httpx
from hypothesis import given
from hypothesis import strategies as st

from buildframe.errors import BadInput
from buildframe.sandbox_server import Patience, Sandbox
from buildframe.sandbox_server.db.outbox import create_hook
from tests.refusals import refusal

SECRET = "s3cret-of-the-hook"
NOBODY = "http://127.0.0.1:9/"


ELSEWHERE = [
    "http://example.com/",
    "http://10.0.0.1/",
    "http://0.0.0.0/",
    "http://2130706433/",
    "http://127.0.0.1.example.com/",
    "http://127.0.0.1@example.com/",
    "http://user:word@127.0.0.1/",
    "http://localhost.example.com/",
    "http://[::2]/",
    "http://[::1/",
    "http://127.0.0.1:99999/",
    "http://127.0.0.1:x/",
    "ftp://127.0.0.1/",
    "file:///etc/hosts",
    "//127.0.0.1/",
    "127.0.0.1:80",
    "",
    "http://127.0.0.1/a b",
    "http://127.0.0.1/\r\nX: y",
    "http://127.0.0.1/\u00e9",
]


def test_nothing_is_sent_off_this_machine(small):
    assert [url for url in ELSEWHERE if not refusal(small.webhook, url, token=SECRET)] == []


@given(st.ip_addresses())
def test_an_address_is_taken_if_it_is_loopback(ip):
    host = f"[{ip}]" if ip.version == 6 else str(ip)
    try:
        create_hook(f"http://{host}:8000/", SECRET, False, None, "acme")
    except BadInput:
        assert not ip.is_loopback
    else:
        assert ip.is_loopback


def test_a_hook_that_makes_no_sense_is_refused(small):
    wrong = [{"token": ""}, {"token": "a\nb"}, {"token": "\u00e9"}, {"organization": "nobody"}, {"events": "build.*"}]
    assert [each for each in wrong if not refusal(small.webhook, NOBODY, **({"token": SECRET} | each))] == []


def test_hooks_over_http():
    with Sandbox(builds=5, days=1, patience=Patience(attempts=1)) as sandbox:
        headers = {"Authorization": f"Bearer {sandbox.token(['sandbox'])}"}
        with httpx.Client(base_url=f"{sandbox.url}/sandbox", headers=headers) as control:
            made = control.post("/webhooks", json={"url": NOBODY, "token": SECRET, "events": ["build.*"]})
            assert made.status_code == 201
            assert SECRET not in made.text
            (ping,) = control.get("/deliveries").json()
            assert {"event": "ping", "url": NOBODY, "status": None}.items() <= ping.items()
            assert control.delete(f"/webhooks/{made.json()['id']}").status_code == 204
            assert control.delete(f"/webhooks/{made.json()['id']}").status_code == 422
        sandbox.push("web")
        assert len(sandbox.deliveries()) == 1
        assert SECRET not in repr(sandbox.webhook(NOBODY, token=SECRET))
