"""Map the kind of a field to its Arrow type."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from buildframe.spec.declare import Kind

if TYPE_CHECKING:
    import pyarrow as pa


@functools.cache
def arrow_types(*, large: bool) -> dict[Kind, pa.DataType]:
    """Return the Arrow type of each kind. Frames hold `large` strings, as pandas does; stored tables hold others."""
    import pyarrow as pa  # the sandbox imports this package without pyarrow

    text = pa.large_string() if large else pa.string()
    timestamp = pa.timestamp("us", tz="UTC")
    return {"text": text, "json": text, "integer": pa.int64(), "flag": pa.bool_(), "timestamp": timestamp}
