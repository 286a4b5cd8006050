"""A receiver of webhooks, and a function that waits until nothing is pending."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from buildframe.sandbox_server import Delivery, Sandbox

TINY = {"builds": 60, "days": 2, "seed": 5}
SECRET = "s3cret-of-the-hook"


class Receiver:
    """A server that keeps its requests. `responses` are statuses or, to hang, events to wait for; the last repeats."""

    def __init__(self, *responses: int | threading.Event) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.responses = list(responses) or [204]
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
                response = receiver.responses.pop(0) if len(receiver.responses) > 1 else receiver.responses[0]
                if isinstance(response, threading.Event):
                    response.wait(30)
                    return
                self.send_response(response)
                if 300 <= response < 400:
                    self.send_header("Location", receiver.elsewhere)
                self.end_headers()

            do_GET = do_POST

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self.elsewhere = ""
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hooks?from=ci"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def payloads(self) -> list[dict]:
        return [json.loads(body) for _, body in self.got]

    @property
    def events(self) -> list[str]:
        return [headers["x-buildkite-event"] for headers, _ in self.got]

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def settled(sandbox: Sandbox) -> list[Delivery]:
    """The log when nothing is pending any more."""
    deadline = time.monotonic() + 30
    while any(delivery.pending for delivery in sandbox.deliveries()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return sandbox.deliveries()
