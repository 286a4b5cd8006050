"""Keep deliveries on disk until the store has committed them: an append-only log in a local folder.

Each receiver appends to its own locked segments. At start, a receiver recovers the segments of receivers that have
ended. Knows files and records; does not know events, stores or HTTP.
"""

from __future__ import annotations

import logging
import os
import secrets
import struct
import sys
import threading
import time
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from buildframe.errors import StoreFailed
from buildframe.store.files import flush

if sys.platform != "win32":
    import fcntl

MAX_SEGMENT_BYTES = 16 * 2**20  # size at which a new segment starts; disk space is released per segment
_HEAD = struct.Struct("<II")
_FLAGS = os.O_CREAT | os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0)
_LOG = logging.getLogger("buildframe")


class Record(msgspec.Struct, array_like=True, frozen=True):
    """Hold a delivery: time of receipt (microseconds since 1970), name of the event, and body."""

    received_us: int
    name: str
    body: bytes


@dataclass
class _Segment:
    """Represent a file of records. `pending` counts the records that are not in the store."""

    path: Path
    file: int
    size: int = 0
    pending: int = 0
    is_writable: bool = True


class WriteAhead:
    """
    Store deliveries in a folder, oldest first. Methods can be called from any thread.

    Parameters
    ----------
    folder : Path
        Local folder, which is created if needed.

    Raises
    ------
    StoreFailed
        If the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._segments: deque[_Segment] = deque()
        self._lock = threading.Lock()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._close(self._new_segment())
        except OSError as why:
            raise StoreFailed(
                f"The folder {str(folder)!r} for waiting deliveries cannot be written: {why.strerror}. "
                "Choose another local folder with --write-ahead (write_ahead=)."
            ) from None

    def recover(self) -> Iterator[Record]:
        """Return the records of receivers that have ended, oldest first. A torn last record was never acknowledged."""
        for path in sorted(self.folder.glob("*.log")):
            try:
                yield from self._recovered(path)
            except (OSError, msgspec.MsgspecError) as why:
                _LOG.error("Deliveries in %s cannot be read and stay there: %s", path, why)

    def append(self, records: Sequence[Record]) -> None:
        """Write records and flush them to disk. If it raises OSError, none of them counts as written."""
        bodies = map(msgspec.msgpack.encode, records)
        data = b"".join(_HEAD.pack(len(body), zlib.crc32(body)) + body for body in bodies)
        with self._lock:
            segment, rest = self._writable(), memoryview(data)
            try:
                while rest:
                    rest = rest[os.write(segment.file, rest) :]
                os.fsync(segment.file)
            except OSError:
                self._retire(segment)
                raise
            segment.size += len(data)
            segment.pending += len(records)

    def remove(self, count: int) -> None:
        """Remove the oldest records, which are in the store."""
        with self._lock:
            while count:
                first = self._segments[0]
                taken = min(count, first.pending)
                first.pending, count = first.pending - taken, count - taken
                if not first.pending:
                    self._close(self._segments.popleft())

    def close(self) -> None:
        """Close the files. Files with pending records stay for the next start."""
        with self._lock:
            for segment in self._segments:
                self._close(segment)
            self._segments.clear()

    def _writable(self) -> _Segment:
        """Return the last segment, or a new one if the last is full or failed."""
        last = self._segments[-1] if self._segments else None
        if last is None or not last.is_writable or last.size >= MAX_SEGMENT_BYTES:
            self._segments.append(last := self._new_segment())
        return last

    def _new_segment(self) -> _Segment:
        path = self.folder / f"{time.time_ns():020d}-{secrets.token_hex(4)}.log"
        segment = _Segment(path, os.open(path, _FLAGS | os.O_EXCL, 0o600))
        try:
            is_own = _is_locked(segment)
            flush(self.folder)
        except OSError:
            self._close(segment)
            raise
        if is_own:
            return segment
        os.close(segment.file)  # another receiver recovered it as abandoned
        return self._new_segment()

    def _retire(self, segment: _Segment) -> None:
        """Stop writing to a segment that failed: after a failed fsync, its content is undefined."""
        segment.is_writable = False
        with suppress(OSError):
            os.ftruncate(segment.file, segment.size)
        if not segment.pending:
            self._segments.remove(segment)
            self._close(segment)

    def _close(self, segment: _Segment) -> None:
        """Close the file, and delete it if it has no pending records."""
        # With locks, the file is deleted first, or another receiver could recover it. Windows deletes no open file.
        steps = (_delete_if_done, _close_file) if sys.platform != "win32" else (_close_file, _delete_if_done)
        for step in steps:
            with suppress(OSError):  # the file is closed even if its last flush failed
                step(segment)

    def _recovered(self, path: Path) -> list[Record]:
        segment = _Segment(path, os.open(path, _FLAGS & ~os.O_CREAT), pending=1, is_writable=False)  # kept until read
        records: list[Record] = []
        try:
            if _is_locked(segment):
                records = list(_records(path))
                segment.pending = len(records)
        finally:
            if records:
                self._segments.append(segment)
            else:
                self._close(segment)
        return records


def _delete_if_done(segment: _Segment) -> None:
    if not segment.pending:
        segment.path.unlink(missing_ok=True)


def _close_file(segment: _Segment) -> None:
    os.close(segment.file)


def _records(path: Path) -> Iterator[Record]:
    """Return the intact records of a file. A damaged record that is followed by others is skipped."""
    data, offset = path.read_bytes(), 0
    while offset + _HEAD.size <= len(data):
        length, check = _HEAD.unpack_from(data, offset)
        begin, end = offset + _HEAD.size, offset + _HEAD.size + length
        is_damaged = zlib.crc32(data[begin:end]) != check
        if not length or (is_damaged and end >= len(data)):  # a power cut may leave zeros at the end
            break
        if is_damaged:
            _LOG.error("The delivery at byte %d of %s is damaged. The next sync adds its build", offset, path)
        else:
            yield msgspec.msgpack.decode(data[begin:end], type=Record)
        offset = end
    if offset < len(data):
        _LOG.warning("The last %d bytes of %s are an incomplete delivery and are dropped", len(data) - offset, path)


def _is_locked(segment: _Segment) -> bool:
    """Lock a file until this process ends. Return False if another process has locked or deleted it."""
    if sys.platform != "win32":
        try:
            fcntl.flock(segment.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return segment.path.exists()
