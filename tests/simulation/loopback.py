"""The same adversary over real sockets, real threads and real time, so that the simulation is not trusted blindly."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.simulation.network import Adversary, Reply, parsed
from tests.simulation.scheduler import Stuck

_CLOSED_AT_ONCE = struct.pack("ii", 1, 0)


@contextmanager
def served(adversary: Adversary) -> Iterator[str]:
    """The address at which the adversary answers meanwhile; it waits for nothing. What it finds broken is raised."""
    listener = socket.create_server(("127.0.0.1", 0))
    one_at_a_time = threading.Lock()
    broken: list[BaseException] = []

    def accept() -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while sent := _request(connection):
                try:
                    with one_at_a_time:
                        reply = adversary.exchange(*parsed(sent))
                        chunks = [data for _, data in reply.chunks]
                except (AssertionError, Stuck) as why:
                    broken.append(why)
                    return
                connection.sendall(b"".join(chunks))
                if _ends(connection, reply):
                    return

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        if broken:
            raise broken[0]


def _request(connection: socket.socket) -> bytes:
    sent = b""
    while b"\r\n\r\n" not in sent:
        received = connection.recv(65536)
        if not received:
            return b""
        sent += received
    return sent


def _ends(connection: socket.socket, reply: Reply) -> bool:
    """Whether the connection ends with the reply; closed, or reset as if the other side had gone."""
    if reply.end == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _CLOSED_AT_ONCE)
    return reply.end != "keep"
