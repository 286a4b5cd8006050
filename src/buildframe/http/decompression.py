"""Read a response's body: decompress gzip as it arrives, and stop at a limit. Does not know the HTTP client."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from io import BytesIO

from buildframe.errors import Malformed

ACCEPTED = "gzip"
"""The only accepted encoding; httpx would also accept those of installed optional packages."""

LARGEST = 256 * 2**20
"""Bytes of a body after decompression: 100 builds of 1,000 jobs each, and more than the log of a job may have."""

_PIECE = 2**20
_GZIP = 16 + zlib.MAX_WBITS


def read_body(pieces: Iterable[bytes], encoding: str, largest: int = LARGEST) -> bytes:
    """Return the whole body; raise Malformed if it is larger, encoded in another way, or cut off."""
    encoding = encoding.strip().lower()
    if encoding not in {"", "identity", "gzip", "x-gzip"}:
        raise Malformed(
            f"The response has the encoding {encoding!r}, which is not accepted (Accept-Encoding: {ACCEPTED})."
        )
    whole = BytesIO()
    for piece in _gunzipped(pieces) if "gzip" in encoding else pieces:
        if whole.tell() + len(piece) > largest:
            failure = Malformed(
                f"The response has more than {largest:,} bytes after decompression, and the rest was not read. "
                "Request less at once: a shorter time range, fewer builds, or builds without jobs."
            )
            failure.retryable = False  # the next response would be as large
            raise failure
        whole.write(piece)
    return whole.getvalue()


def _gunzipped(pieces: Iterable[bytes]) -> Iterator[bytes]:
    member = None
    try:
        for piece in pieces:
            while piece:
                member = member or zlib.decompressobj(_GZIP)
                yield member.decompress(piece, _PIECE)
                piece = member.unconsumed_tail or member.unused_data
                member = None if member.eof else member
        if member is not None:
            yield member.flush()
    except zlib.error as why:
        raise Malformed(f"The response's gzip cannot be decompressed: {why}.") from None
    if member is not None and not member.eof:
        raise Malformed("The response is incomplete: its gzip data is cut off.")
