"""Keep deliveries on disk from the response to the store's commit: an append-only log in a local folder.

Each receiver appends to its own segments, which it locks. At start a receiver recovers the segments of receivers that
have ended. Knows files and records; does not know events, stores or HTTP.
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
from buildframe.store.files import sync_folder

if sys.platform != "win32":
    import fcntl

LONGEST_SEGMENT = 16 * 2**20
"""Bytes after which a new segment begins, so that disk space is released while deliveries wait."""

_HEAD = struct.Struct("<II")
_FLAGS = os.O_CREAT | os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0)
_LOG = logging.getLogger("buildframe")


class Record(msgspec.Struct, array_like=True, frozen=True):
    """A delivery: when it was received (microseconds since 1970), the event's name, and its body."""

    received_us: int
    name: str
    body: bytes


@dataclass
class _Segment:
    """A file of records; `many` of them are not in the store yet."""

    path: Path
    file: int
    size: int = 0
    many: int = 0
    is_writable: bool = True


class WriteAhead:
    """A log of deliveries in a folder, oldest first. From any thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._segments: deque[_Segment] = deque()
        self._lock = threading.Lock()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._close(self._new_segment())
        except OSError as why:
            raise StoreFailed(
                f"The folder {str(folder)!r} for deliveries that wait cannot be written: {why.strerror}. "
                "Choose another local folder with --write-ahead (write_ahead=)."
            ) from None

    def recover(self) -> Iterator[Record]:
        """Return the records of receivers that have ended, oldest first. A torn last record was never answered."""
        for path in sorted(self.folder.glob("*.log")):
            try:
                yield from self._recovered(path)
            except (OSError, msgspec.MsgspecError) as why:
                _LOG.error("Deliveries in %s cannot be read, and are left there: %s", path, why)

    def append(self, records: Sequence[Record]) -> None:
        """Write records, and return when they are on disk. After an OSError none of them counts as written."""
        data = b"".join(map(_framed, records))
        with self._lock:
            segment = self._writable()
            try:
                _write(segment.file, data)
                os.fsync(segment.file)
            except OSError:
                self._give_up(segment)
                raise
            segment.size += len(data)
            segment.many += len(records)

    def remove(self, many: int) -> None:
        """Forget the oldest records, which are in the store."""
        with self._lock:
            while many:
                first = self._segments[0]
                taken = min(many, first.many)
                first.many, many = first.many - taken, many - taken
                if not first.many:
                    self._empty(first)

    def close(self) -> None:
        """Release the files; those that hold records stay for the next start."""
        with self._lock:
            for segment in self._segments:
                self._close(segment)
            self._segments.clear()

    def _writable(self) -> _Segment:
        """The last segment, or a new one if that is full or failed."""
        last = self._segments[-1] if self._segments else None
        if last is None or not last.is_writable or last.size >= LONGEST_SEGMENT:
            self._segments.append(last := self._new_segment())
        return last

    def _new_segment(self) -> _Segment:
        path = self.folder / f"{time.time_ns():020d}-{secrets.token_hex(4)}.log"
        segment = _Segment(path, os.open(path, _FLAGS | os.O_EXCL, 0o600))
        try:
            is_own = _is_locked(segment)
            sync_folder(self.folder)
        except OSError:
            self._close(segment)
            raise
        if is_own:
            return segment
        os.close(segment.file)  # another receiver took it for one that was left
        return self._new_segment()

    def _give_up(self, segment: _Segment) -> None:
        """Write no more to a segment that failed: after a failed fsync nobody knows what it holds."""
        segment.is_writable = False
        with suppress(OSError):
            os.ftruncate(segment.file, segment.size)
        if not segment.many:
            self._segments.remove(segment)
            self._close(segment)

    def _empty(self, first: _Segment) -> None:
        is_used = first is self._segments[-1] and first.is_writable
        with suppress(OSError):  # what stays is recovered once more, which changes nothing in the store
            if is_used:
                os.ftruncate(first.file, 0)
                first.size = 0
                return
        self._segments.popleft()
        self._close(first)

    def _close(self, segment: _Segment) -> None:
        """Close the file, and delete it if it holds nothing that is not in the store."""
        with suppress(OSError):
            if not segment.many:
                segment.path.unlink(missing_ok=True)
        with suppress(OSError):  # the file is closed even if its last flush failed
            os.close(segment.file)

    def _recovered(self, path: Path) -> list[Record]:
        segment = _Segment(path, os.open(path, _FLAGS & ~os.O_CREAT), is_writable=False)
        try:
            records = list(_records(path)) if _is_locked(segment) else None
        except (OSError, msgspec.MsgspecError):
            os.close(segment.file)
            raise
        if records:
            segment.many = len(records)
            self._segments.append(segment)
        elif records is None:
            os.close(segment.file)
        else:
            self._close(segment)
        return records or []


def _framed(record: Record) -> bytes:
    data = msgspec.msgpack.encode(record)
    return _HEAD.pack(len(data), zlib.crc32(data)) + data


def _records(path: Path) -> Iterator[Record]:
    """The records of a file that are whole. One that is damaged, with others after it, is left out."""
    data, place = path.read_bytes(), 0
    while place + _HEAD.size <= len(data):
        length, check = _HEAD.unpack_from(data, place)
        begin, end = place + _HEAD.size, place + _HEAD.size + length
        is_damaged = zlib.crc32(data[begin:end]) != check
        if not length or (is_damaged and end >= len(data)):  # a power cut may leave zeros at the end
            break
        if is_damaged:
            _LOG.error("The delivery at byte %d of %s is damaged; the store lacks it until its next sync", place, path)
            place = end
            continue
        yield msgspec.msgpack.decode(data[begin:end], type=Record)
        place = end
    if place < len(data):
        _LOG.warning("The last %d bytes of %s are not a whole delivery, and are dropped", len(data) - place, path)


def _write(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _is_locked(segment: _Segment) -> bool:
    """Lock a file for the life of this process; False if another process has it, or has deleted it."""
    if sys.platform != "win32":
        try:
            fcntl.flock(segment.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return segment.path.exists()
