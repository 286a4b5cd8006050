"""Connections that end at a request's time limit and that other threads can abort. Does not know requests."""

from __future__ import annotations

import math
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import version
from typing import Any

import httpcore
import httpx

from buildframe.errors import BadInput
from buildframe.guards import interrupts
from buildframe.guards.secrets import confined

_PIECE = 16_384  # bytes; a write is timed piece by piece, since httpcore grants its time to each part that is accepted


class Sockets(httpcore.NetworkBackend):
    """The connections of one HTTP session.

    httpcore's timeouts are per read, so a response that drips never exceeds them. Here each operation gets at most the
    time that is left for the request of its thread (see `time_limit`).

    Closing a socket wakes no thread that waits on it; shutting it down does. TLS moves a connection to another
    socket and waits meanwhile: for that long a duplicate of the first stays at hand.
    """

    def __init__(self) -> None:
        self.is_aborted = False
        self._backend = httpcore.SyncBackend()
        self._open: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._shaking_hands: set[socket.socket] = set()
        self._mine = threading.local()
        self._lock = threading.Lock()

    def serve(self, session: httpx.Client) -> httpx.Client:
        """Make a session, and its proxies, use these connections; httpx has no argument for that."""
        for transport in (session._transport, *session._mounts.values()):
            if isinstance(transport, httpx.HTTPTransport):
                transport._pool._network_backend = self
                # httpcore's own lock stays held if Ctrl-C comes as it is taken, and its clean-up would wait for it
                transport._pool._optional_thread_lock = threading.Lock()  # type: ignore[assignment]
        return session

    def abort(self) -> None:
        """Abort all connections, and those that are made later. From any thread."""
        with self._lock:
            self.is_aborted = True
            for each in [*self._open, *self._shaking_hands]:
                _shut(each)

    def reset_after_fork(self) -> None:
        """Forget the connections in a forked child: close its descriptors, and send nothing to the server."""
        for each in [*self._open, *self._shaking_hands]:
            with suppress(OSError):
                each.close()  # TLS, too, sends nothing here
        self._open = weakref.WeakSet()
        self._shaking_hands = set()
        self._lock = threading.Lock()

    @contextmanager
    def time_limit(self, seconds: float) -> Iterator[None]:
        """Limit the time in which this thread connects, sends and receives in this context."""
        self._mine.end = time.monotonic() + seconds
        try:
            yield
        finally:
            self._mine.end = math.inf

    @property
    def seconds_left(self) -> float:
        """Seconds left for the request of this thread."""
        end: float = getattr(self._mine, "end", math.inf)
        return max(0.0, end - time.monotonic())

    def seconds_for(self, timeout: float | None, late: type[httpcore.TimeoutException]) -> float | None:
        """Return the seconds that an operation may take; raise `late` if the request's time is over."""
        seconds = min(self.seconds_left, math.inf if timeout is None else timeout)
        if seconds <= 0:
            raise late("timed out")
        return None if seconds == math.inf else seconds

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first address of a host that accepts. All attempts share the request's time."""
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in _addresses(host, port):
            seconds = self.seconds_for(timeout, httpcore.ConnectTimeout)
            try:
                stream = self._backend.connect_tcp(address, port, seconds, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as why:
                failure = why
            else:
                self.add(stream)
                return _TimedStream(stream, self)
            if self.is_aborted:
                break
        raise failure

    def add(self, stream: httpcore.NetworkStream) -> None:
        """Remember the socket of a new stream, so that it can be aborted."""
        new = stream.get_extra_info("socket")
        with self._lock:
            self._open.add(new)
            if self.is_aborted:
                _shut(new)

    @contextmanager
    def shaking_hands(self, stream: httpcore.NetworkStream) -> Iterator[None]:
        """Keep a duplicate of the socket while TLS begins on a stream. TLS inside of TLS does not change the socket."""
        before: socket.socket = stream.get_extra_info("socket")
        if isinstance(before, ssl.SSLSocket):
            yield
            return
        before = before.dup()
        with before:
            with self._lock:
                self._shaking_hands.add(before)
            try:
                yield
            finally:
                with self._lock:
                    self._shaking_hands.discard(before)


def body_pieces(received: httpx.Response) -> Iterator[bytes]:
    """Yield the body as it arrives; then give up its connection if more bytes came with it.

    They would be taken for the response to the next request. This is not `iter_raw`, after whose
    last piece another thread may have the connection already. For the same reason the connection is marked as
    failed, which httpcore never makes idle, and not only closed: a request in a closed one reads what came before.
    """
    stream: Any = received.stream
    yield from stream
    connection = stream._stream._httpcore_stream._stream._connection
    excess, _ = connection._h11_state.trailing_data
    if excess:
        connection._h11_state.send_failed()


class _TimedStream(httpcore.NetworkStream):
    """A connection whose operations end when the request's time is over."""

    def __init__(self, stream: httpcore.NetworkStream, sockets: Sockets) -> None:
        self._stream, self._sockets = stream, sockets

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._sockets.seconds_for(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _PIECE):
            seconds = self._sockets.seconds_for(timeout, httpcore.WriteTimeout)
            interrupts.mark_sent()
            self._stream.write(buffer[start : start + _PIECE], seconds)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        seconds = self._sockets.seconds_for(timeout, httpcore.ConnectTimeout)
        with self._sockets.shaking_hands(self._stream):
            stream = self._stream.start_tls(ssl_context, server_hostname, seconds)
        self._sockets.add(stream)
        interrupts.mark_not_performed()  # so far only the proxy got something
        return _TimedStream(stream, self._sockets)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def close_idle(session: httpx.Client) -> None:
    """Close a session's unused connections without its locks, which an interrupt may leave held."""
    for transport in (session._transport, *session._mounts.values()):
        for each in transport._pool.connections if isinstance(transport, httpx.HTTPTransport) else ():
            if each.is_idle():
                each.close()


def _addresses(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as why:
        raise httpcore.ConnectError(str(why)) from None
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _shut(each: socket.socket) -> None:
    with suppress(OSError):  # it is closed already
        socket.socket.shutdown(each, socket.SHUT_RDWR)  # ssl's own would also take TLS from a thread that reads


@confined
def tls_context(from_environment: bool) -> ssl.SSLContext:
    """Return the certificates to trust, by the environment if `from_environment`."""
    if not from_environment:
        return _packaged_certificates()
    try:
        return httpx.create_ssl_context(trust_env=True)
    except OSError as why:
        raise BadInput(f"The certificates that SSL_CERT_FILE or SSL_CERT_DIR names cannot be read: {why}.") from None


@cache  # loading them takes longer than a request to a sandbox
def _packaged_certificates() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)


@cache  # the version is read from a file
def _user_agent() -> str:
    return f"buildframe/{version('buildframe')}"


_LOCATION = "location"


def _hide_location(received: httpx.Response) -> None:
    """Hide the target of a redirect from httpx, which parses it although it does not follow it."""
    if _LOCATION in received.headers:
        received.extensions[_LOCATION] = received.headers.pop(_LOCATION)


def restore_location(received: httpx.Response) -> None:
    """Restore the target of a redirect of a response of this session."""
    if _LOCATION in received.extensions:
        received.headers[_LOCATION] = received.extensions[_LOCATION]


@confined
def new_session(sockets: Sockets, tls: ssl.SSLContext, from_environment: bool) -> httpx.Client:
    """Return a session over these connections, through the environment's proxy if it names one."""
    try:
        return sockets.serve(
            httpx.Client(
                headers={"User-Agent": _user_agent()},
                trust_env=from_environment,
                verify=tls,
                event_hooks={"response": [_hide_location]},
            )
        )
    except ImportError as why:
        raise BadInput(f"The proxy that the environment names (HTTPS_PROXY) cannot be used: {why}") from None
    except (ValueError, httpx.InvalidURL):  # whose text may quote a password
        raise BadInput(
            "The proxy that the environment names (HTTPS_PROXY, HTTP_PROXY or ALL_PROXY) cannot be used: "
            "write its URL like http://proxy.example.com:3128."
        ) from None
