"""Convert columns to the dtypes of fetched frames, and refuse others. Does not know engines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa

from buildframe.errors import BadInput
from buildframe.metrics.columns import kind_of, timestamps
from buildframe.spec.arrow_types import pandas_types

_KINDS: dict[str, Any] = {
    "text": nw.String(),
    "json": nw.String(),
    "flag": nw.Boolean(),
    "integer": nw.Int64(),
    "timestamp": nw.Datetime("us", "UTC"),
    "date": nw.Date(),
}


def to_typed_pandas(table: pa.Table) -> pd.DataFrame:
    """Convert a table to pandas with the dtypes of fetched frames."""
    dtypes = pandas_types()
    frame = table.to_pandas(
        types_mapper=lambda kind: pd.Int64Dtype() if pa.types.is_integer(kind) else dtypes.get(kind)
    )
    times = [name for name, dtype in frame.dtypes.items() if isinstance(dtype, pd.DatetimeTZDtype)]
    return frame.assign(**{name: timestamps(frame, name) for name in map(str, times)}) if times else frame


def with_texts(results: pd.DataFrame, texts: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """Replace indices by their texts, and return other integers as Int64."""
    of_indices = {
        name: pd.Series(np.array(own, object)[results[name].to_numpy(np.intp)], results.index, dtype="str")
        for name, own in texts.items()
    }
    integers = {name: "Int64" for name in results if name not in texts and pd.api.types.is_integer_dtype(results[name])}
    return results.assign(**of_indices).astype(integers)


def typed_columns(schema: Mapping[str, Any], names: Iterable[str]) -> list[nw.Expr]:
    """Return columns, each once, with their type when fetched; raise BadInput for another type."""
    return [_typed_column(name, schema[name]) for name in dict.fromkeys(names)]


def _typed_column(name: str, dtype: Any) -> nw.Expr:
    kind = kind_of(name)
    if kind == "timestamp" and dtype != nw.Unknown:
        check_zone(name, dtype)
    if isinstance(dtype, (nw.Categorical, nw.Enum)):  # not ordered by their texts
        return nw.col(name).cast(nw.String)
    expected = _KINDS.get(kind or "")
    if expected is None and dtype.is_float():
        return nan_as_null(name)
    if expected is None or isinstance(dtype, type(expected)) or (kind == "integer" and dtype.is_integer()):
        return nw.col(name)
    if kind == "date" and dtype != nw.Unknown:  # a custom column may have this name, too
        return nw.col(name)
    if dtype == nw.Unknown or (dtype.is_integer() and kind in ("flag", "text", "json")):
        return nw.col(name).cast(expected)  # nulls alone have no type, or in some engines that of numbers
    raise BadInput(f"The column {name!r} holds {dtype}, not {expected}. Convert it first.")


def nan_as_null(name: str) -> nw.Expr:
    """Return a column of floats with nulls for NaN, as in pandas."""
    known = nw.when(nw.col(name).is_nan()).then(nw.lit(None)).otherwise(nw.col(name))  # DuckDB copies no values then
    return known.alias(name)


def micros_column(name: str) -> str:
    """Return the name of the column with the timestamps of `name` as whole microseconds since 1970, UTC."""
    return f"{name} in microseconds"


def check_zones(rows: nw.LazyFrame[Any], names: Iterable[str]) -> None:
    """Raise BadInput for the first column without timestamps with a zone; skips columns that `typed_columns` checks."""
    if unchecked := [name for name in names if kind_of(name) != "timestamp"]:
        schema = rows.collect_schema()  # DuckDB runs a query for it
        for name in unchecked:
            check_zone(name, schema[name])


def check_zone(name: str, dtype: Any) -> None:
    """Raise BadInput unless a column of this type holds timestamps with a zone."""
    if not isinstance(dtype, nw.Datetime) or dtype.time_zone is None:
        raise BadInput(f"The column {name!r} holds {dtype}, not timestamps with a time zone. Add the zone.")


def concat_aligned(rows: nw.LazyFrame[Any], others: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Return both in one frame; columns that only one of them has are null in the other."""
    schemas = [one.collect_schema() for one in (rows, others)]
    dtypes = {**schemas[1], **schemas[0]}
    aligned = (
        one.select(
            (nw.col(name).cast(dtype) if name in schema else nw.lit(None, dtype)).alias(name)
            for name, dtype in dtypes.items()
        )
        for one, schema in zip((rows, others), schemas, strict=True)
    )
    return nw.concat(aligned)
