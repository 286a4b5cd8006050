"""Map the kind of a field to its Arrow type, and Arrow types to the dtypes of frames."""

from __future__ import annotations

import datetime as dt
import functools
from typing import TYPE_CHECKING, Any

from buildframe.spec.declare import Kind

if TYPE_CHECKING:
    import pyarrow as pa


@functools.cache
def arrow_types(*, large: bool) -> dict[Kind, pa.DataType]:
    """Return the Arrow type of each kind. Frames hold `large` strings, as pandas does; stored tables hold others."""
    import pyarrow as pa  # the sandbox imports this package without pyarrow

    text = pa.large_string() if large else pa.string()
    timestamp = pa.timestamp("us", tz="UTC")
    return {
        "text": text,
        "json": text,
        "integer": pa.int64(),
        "number": pa.float64(),
        "flag": pa.bool_(),
        "timestamp": timestamp,
    }


@functools.cache
def pandas_types() -> dict[pa.DataType, Any]:
    """Return the pandas dtype of each Arrow type in frames.

    These are text in any layout, integers, flags, timestamps and dates.

    Numbers with a fraction are not here: they become float64 of NumPy, which a mapper of types must
    not return.
    """
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    return {
        **dict.fromkeys((pa.string(), pa.large_string(), pa.string_view()), pd.StringDtype(na_value=np.nan)),
        pa.int64(): pd.Int64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
        pa.timestamp("us", "UTC"): pd.DatetimeTZDtype("us", dt.UTC),  # zoneinfo's UTC does not compare with datetimes
        pa.date32(): pd.ArrowDtype(pa.date32()),
    }
