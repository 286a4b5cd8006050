"""The sockets of a client, so that another thread can cut them off."""

from __future__ import annotations

import socket
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Any


class Sockets:
    """The sockets of one HTTP session; `trace` is told by httpcore what it does with them.

    Closing a socket wakes no thread that waits on it; shutting it down does. TLS moves a connection to another
    socket and waits meanwhile: for that long a duplicate of the first stays at hand.
    """

    def __init__(self) -> None:
        self.is_cut = False
        self._open: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._shaking_hands: dict[int, socket.socket] = {}
        self._mine = threading.local()
        self._lock = threading.Lock()

    def cut(self) -> None:
        """Cut off all of them, and those that are still to come. From any thread."""
        with self._lock:
            self.is_cut = True
            for each in [*self._open, *self._shaking_hands.values()]:
                _shut(each)

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """For the `trace` extension of a request; called by the thread that sends it."""
        step = event.partition(".")[2]
        if step == "start_tls.started":
            self._begin_handshake()
        elif step in {"start_tls.complete", "start_tls.failed"}:
            self._end_handshake()
        if step in {"connect_tcp.complete", "start_tls.complete"}:
            self._add(info["return_value"].get_extra_info("socket"))

    def _add(self, new: socket.socket) -> None:
        with self._lock:
            self._mine.latest = weakref.ref(new)
            self._open.add(new)
            if self.is_cut:
                _shut(new)

    def _begin_handshake(self) -> None:
        with self._lock:
            before = self._mine.latest()
            self._shaking_hands[threading.get_ident()] = before.dup()

    def _end_handshake(self) -> None:
        with self._lock:
            self._shaking_hands.pop(threading.get_ident()).close()


def _shut(each: socket.socket) -> None:
    with suppress(OSError):  # it is closed already
        socket.socket.shutdown(each, socket.SHUT_RDWR)  # ssl's own would also take TLS from a thread that reads
