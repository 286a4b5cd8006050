"""Read stored rows as pandas DataFrames with the dtypes of fetched frames. Does not know syncs."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from buildframe.errors import BadInput, MissingExtra, StoreFailed
from buildframe.http.request_body import nearest
from buildframe.spec import TABLES, Moment
from buildframe.spec.arrow_types import pandas_types
from buildframe.store.delta import TableVersion
from buildframe.terminal import show

_TIMESTAMP = pa.timestamp("us", "UTC")
_READ_ERROR = "reading the stream registered as"


def read(
    table: TableVersion,
    columns: Sequence[str] | None,
    conditions: Sequence[pc.Expression],
    created: str | None = None,
    first: Moment | None = None,
    last: Moment | None = None,
) -> pd.DataFrame:
    """Read the rows that meet all conditions. By default all columns but those that the store computes.

    If `created` names a time column, rows are limited to times from `first` up to but excluding `last`, in descending
    order. Files of other days are not opened.
    """
    names = _default_columns(table) if columns is None else _checked(columns, table)
    needed = [*names, *([created] if created and created not in names else [])]
    expressions = [*conditions]
    if created and first is not None:
        expressions.append(pc.field(created) >= pa.scalar(first, _TIMESTAMP))
    if created and last is not None:
        expressions.append(pc.field(created) < pa.scalar(last, _TIMESTAMP))
    dataset = table.dataset(*(None if moment is None else moment.date().isoformat() for moment in (first, last)))
    rows = dataset.to_table(needed, filter=functools.reduce(operator.and_, expressions, pc.scalar(True)))
    if created is not None:
        rows = rows.take(pc.sort_indices(rows, [(created, "descending")]))
    return as_frame(rows.select(names))


def _default_columns(table: TableVersion) -> list[str]:
    declared = [column.name for column in TABLES[table.name]]
    keys = [name for name in ("organization", "suite") if name not in declared]
    available = table.column_names
    return [name for name in (*keys, *declared, "valid_from", "valid_to") if name in available]


def _checked(columns: Sequence[str], table: TableVersion) -> list[str]:
    if not len(columns):
        raise BadInput(f'columns={show(columns)} is not a list of names. Pass a list, such as ["id"].')
    for name in columns:
        if name not in table.column_names:
            raise BadInput(
                f"columns: {show(name)} is not a stored column of {table.name}.{nearest(str(name), table.column_names)}"
            )
    if len(set(columns)) < len(columns):
        raise BadInput(f"columns={list(columns)} contains a name twice. Name each column once.")
    return list(columns)


def as_frame(rows: pa.Table) -> pd.DataFrame:
    """Convert rows to a frame with the dtypes of fetched frames."""
    return rows.to_pandas(types_mapper=pandas_types().get)


def last_read(frame: pd.DataFrame, table: str, lists: Mapping[str, Moment]) -> pd.Series[Any]:
    """Return the last time at which a list contained each row: of current rows, when the list was last read."""
    keys = [name for name in ("organization", "suite") if name in frame]
    names = ["/".join([table, *map(str, row)]) for row in frame[keys].itertuples(index=False)]
    at = pd.Series([lists.get(name) for name in names], frame.index, dtype=frame["fetched_at"].dtype)
    return at.where(frame["valid_to"].isna()).fillna(frame["fetched_at"])


def query(tables: Mapping[str, TableVersion], sql: str) -> pd.DataFrame:
    """Run a DuckDB query on these tables."""
    try:
        import duckdb
    except ImportError:
        raise MissingExtra("store.sql()", "store") from None
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, table in tables.items():
            connection.register(name, table.dataset())
        connection.execute(
            "SET enable_external_access = false; SET lock_configuration = true"
        )  # queries must not read other files
        try:
            result = connection.sql(sql)
            return as_frame(result.to_arrow_table()) if result is not None else pd.DataFrame()
        except duckdb.Error as why:
            if _READ_ERROR in str(why) or not isinstance(why, duckdb.ProgrammingError):
                raise StoreFailed(f"DuckDB could not run the query: {why}") from None
            raise BadInput(f"DuckDB rejects the query: {why}") from None
