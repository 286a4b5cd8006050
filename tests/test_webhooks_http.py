"""Deliveries over real HTTP, to a receiver in bare ASGI, whose headers are pairs of bytes."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import uvicorn

from buildframe import webhooks
from buildframe.errors import Malformed, Unverified
from tests.test_webhooks import EVENT, SECRET, SIGNATURE, TOKEN, delivery, signature

INBOX: list[webhooks.Event] = []


async def receiver(scope: Any, receive: Any, send: Any) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message.get("more_body", False)
    try:
        webhooks.verify(scope["headers"], body, SECRET)
        INBOX.append(webhooks.parse(body, scope["headers"]))
        status = 204
    except (Unverified, Malformed) as no:
        status = 401 if isinstance(no, Unverified) else 400
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body"})


@pytest.fixture
def address() -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(receiver, port=0, lifespan="off", log_level="warning"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    while not server.started:
        threading.Event().wait(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    server.should_exit = True
    thread.join(10)
    INBOX.clear()


def post(address: str, body: bytes, headers: dict[str, str]) -> int:
    try:
        with urlopen(Request(address, body, headers), timeout=10) as answer:
            return int(answer.status)
    except HTTPError as no:
        return no.code


def test_deliveries_over_http(address: str) -> None:
    body, now = delivery(event=...), int(dt.datetime.now(dt.UTC).timestamp())  # type: ignore[arg-type]
    assert post(address, body, {SIGNATURE: signature(body, now), EVENT: "job.started"}) == 204
    assert post(address, body, {SIGNATURE: signature(body, now - 400), EVENT: "job.started"}) == 401
    assert post(address, body, {TOKEN: SECRET}) == 400
    assert [event.name for event in INBOX] == ["job.started"]
    assert list(webhooks.frames(INBOX).jobs["id"]) == ["j-1"]
