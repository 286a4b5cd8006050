"""Read frames of any library through the Arrow PyCapsule interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from buildframe.spec.arrow_types import pandas_types

if TYPE_CHECKING:
    import pyarrow as pa

_ENGINES = ("polars", "duckdb", "_duckdb")
"""Libraries whose frames metrics compute on without a copy. The last is that of DuckDB 1."""
_OTHER = ("pandas", "pyspark")
"""Their frames are never read here: those of pandas need not be, and a frame of PySpark may not fit into memory."""


def as_pandas(value: Any, hint: Any) -> Any:
    """Return what the interface gives, such as a `pyarrow.Table`, as a DataFrame with the dtypes that the library uses.

    A frame of an engine stays what it is unless the parameter is annotated as a DataFrame. So does any other value.
    """
    import pandas as pd
    import pyarrow as pa

    library = type(value).__module__.partition(".")[0]
    if library in _OTHER or (
        (library in _ENGINES or isinstance(value, pa.Table)) and pd.DataFrame not in (hint, *get_args(hint))
    ):
        return value
    try:
        return _in_utc(pa.table(value)).to_pandas(types_mapper=pandas_types().get)
    except (TypeError, ValueError, pa.ArrowInvalid):  # a single column
        return value


def _in_utc(table: pa.Table) -> pa.Table:
    """Return a table with the same moments in UTC: DuckDB, for example, calls it Etc/UTC."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and field.type.tz is not None:
            type_in_utc = pa.timestamp(field.type.unit, "UTC")
            table = table.set_column(place, field.name, table.column(place).cast(type_in_utc))
    return table
