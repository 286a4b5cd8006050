"""Refuse requests that a web page of another origin makes a browser send: DNS rebinding and cross-site requests.

Knows the headers `Host`, `Origin` and `Sec-Fetch-Site`; does not know routes or tokens.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from buildframe.http.protocol import is_loopback

_READS = frozenset({"GET", "HEAD", "OPTIONS"})


class HostCheck:
    """Pass on requests that name this server, at `port`, and that no web page of another origin sent to change it.

    A server that listens on this machine only is named by `localhost` or a loopback address. One that `bound` makes
    reachable from elsewhere also has that name, this machine's name, and any IP address: rebinding needs a name.
    """

    def __init__(self, app: ASGIApp, bound: str, port: int) -> None:
        self._app, self._port = app, port
        self._is_local = is_loopback(bound.lower())
        self._names = {"localhost"} if self._is_local else {"localhost", bound.lower(), socket.gethostname().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope["method"], Headers(scope=scope)) if scope["type"] == "http" else None
        await (self._app if refusal is None else refusal)(scope, receive, send)

    def _refusal(self, method: str, headers: Mapping[str, str]) -> JSONResponse | None:
        host = headers.get("host", "")
        if not self._is_own(host):
            return JSONResponse({"message": f"Host {host!r} does not name this sandbox. Use its printed address."}, 421)
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        is_foreign = origin is not None and not self._is_own(origin.partition("://")[2])
        if method not in _READS and (is_foreign or site not in ("none", "same-origin")):
            return JSONResponse({"message": "Web pages of other origins cannot change this sandbox."}, 403)
        return None

    def _is_own(self, host: str) -> bool:
        name, _, port = host.rpartition(":")
        if not port.isascii() or not port.isdecimal() or len(port) > 5 or int(port) != self._port:
            return False
        bare = name.lower().removeprefix("[").removesuffix("]")
        is_address = is_loopback(bare) if self._is_local else _is_address(bare)
        return is_address or name.lower().removesuffix(".") in self._names


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
