"""Read frames of any library as pandas frames: texts as `str`, times in UTC, nothing encoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from buildframe.spec.arrow_types import pandas_types

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_STREAMED = ("polars", "duckdb", "_duckdb")
"""Libraries of which metrics read only the columns that they need. The last is that of DuckDB 1."""


def as_pandas(value: Any, hint: Any) -> Any:
    """Return a frame as a DataFrame if the parameter is annotated as one; any other value as it is.

    Other parameters get frames of Polars and DuckDB and Arrow tables unchanged. Frames of other
    libraries may be readable only once, so these become DataFrames, too. A frame of PySpark may not
    fit into memory, so it is never read here.
    """
    import pandas as pd
    import pyarrow as pa

    library = type(value).__module__.partition(".")[0]
    takes_pandas = pd.DataFrame in (hint, *get_args(hint))
    if library in ("pandas", "pyspark"):
        return value
    if not takes_pandas and (library in _STREAMED or isinstance(value, pa.Table)):
        return value
    try:
        return arrow_to_pandas(pa.table(value))
    except (TypeError, ValueError, pa.ArrowInvalid):  # a single column
        return value


def arrow_to_pandas(table: pa.Table) -> pd.DataFrame:
    """Convert a table to pandas with the dtypes of fetched frames; all integers can be null."""
    import pandas as pd
    import pyarrow as pa

    dtypes = pandas_types()
    columns = [_plain_column(table.column(place)) for place in range(table.num_columns)]
    return pa.table(columns, table.column_names).to_pandas(
        types_mapper=lambda kind: pd.Int64Dtype() if pa.types.is_integer(kind) else dtypes.get(kind)
    )


def _plain_column(column: Any) -> Any:
    """Return a column without dictionaries and decimals, and with times in UTC (DuckDB: Etc/UTC)."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        value_type = kind.value_type
        if pa.types.is_string_view(value_type):  # which cannot be taken
            value_type = pa.large_string()
        decoded = [chunk.dictionary.cast(value_type).take(chunk.indices) for chunk in column.chunks]
        column = pa.chunked_array(decoded, value_type)
    elif pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif pa.types.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit, "UTC"))
    elif pa.types.is_nested(kind) and "string_view" in str(kind):  # which pandas cannot read
        column = pa.chunked_array([pa.array(column.to_pylist())])
    return column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column


def plain_argument(value: Any) -> Any:
    """Return a pandas frame as `plain_frame` does; any other value as it is."""
    import pandas as pd

    return plain_frame(value) if isinstance(value, pd.DataFrame) else value


def plain_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame of a user with plain texts, and an index without names.

    A frame that is so already is returned itself. An index that is named like a column would be ambiguous in `groupby`.
    """
    if not frame.columns.is_unique:  # an error names the column when it is used
        return frame
    changed = {}
    for place, name in enumerate(frame.columns):
        values = frame.iloc[:, place]
        plain = plain_texts(values)
        if plain is not values:
            changed[name] = plain
    result = frame.assign(**changed) if changed else frame
    if not any(name is not None for name in result.index.names):
        return result
    without_names = result.index.set_names([None] * result.index.nlevels)
    return result.set_axis(without_names)


def plain_texts(values: pd.Series[Any]) -> pd.Series[Any]:
    """Return categories as their values, and texts in any form as `str`; others as they are."""
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    text, dtype = pd.StringDtype(na_value=np.nan), values.dtype
    if dtype == text:
        return values
    if isinstance(dtype, pd.CategoricalDtype):
        if dtype.categories.dtype == text:
            return values.astype(text)
        return plain_texts(values.astype(object).infer_objects())
    is_text = isinstance(dtype, pd.StringDtype) or (
        isinstance(dtype, pd.ArrowDtype) and pa.types.is_string(dtype.pyarrow_dtype)
    )
    is_object = pd.api.types.is_object_dtype(dtype)
    if is_text or (is_object and pd.api.types.infer_dtype(values, skipna=True) == "string"):
        return values.astype(text)
    return values
