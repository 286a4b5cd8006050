"""From what is stored to frames, with the dtypes of a fetch."""

from __future__ import annotations

import datetime as dt
import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from buildframe.bodies import nearest
from buildframe.errors import BadInput, MissingExtra, StoreFailed
from buildframe.spec import Moment
from buildframe.store.lake import Table
from buildframe.store.state import State

_TEXT = pd.StringDtype(na_value=np.nan)
_TYPES: dict[pa.DataType, Any] = {
    pa.string(): _TEXT,
    pa.large_string(): _TEXT,
    pa.string_view(): _TEXT,
    pa.int64(): pd.Int64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
    pa.timestamp("us", "UTC"): pd.DatetimeTZDtype("us", dt.UTC),
    pa.date32(): pd.ArrowDtype(pa.date32()),
}


def read(
    table: Table,
    declared: Sequence[str],
    columns: Sequence[str] | None,
    chosen: Sequence[pc.Expression],
    created: str | None,
    first: Moment | None = None,
    last: Moment | None = None,
) -> pd.DataFrame:
    """The rows for which all holds that was chosen, newest first where `created` names the time.

    That lies from `first` on and before `last`; files of other days are not opened.
    """
    there = table.names
    names = [name for name in declared if name in there] if columns is None else _checked(columns, table)
    needed = [*names, *([created] if created and created not in names else [])]
    conditions = [*chosen, *([_within(created, first, last)] if created else [])]
    dataset = table.dataset(*(None if moment is None else moment.date().isoformat() for moment in (first, last)))
    rows = dataset.to_table(needed, filter=functools.reduce(operator.and_, conditions, pc.scalar(True)))
    if created is not None:
        rows = rows.take(pc.sort_indices(rows, [(created, "descending")]))
    return as_frame(rows.select(names))


def _within(created: str, first: Moment | None, last: Moment | None) -> pc.Expression:
    from_first = pc.scalar(True) if first is None else pc.field(created) >= _at(first)
    return from_first if last is None else from_first & (pc.field(created) < _at(last))


def _at(moment: Moment) -> pa.Scalar[Any]:
    return pa.scalar(moment.us, pa.int64()).cast(pa.timestamp("us", "UTC"))


def _checked(columns: Sequence[str], table: Table) -> list[str]:
    if isinstance(columns, str) or not isinstance(columns, Sequence | pd.Index) or not len(columns):
        raise BadInput(f'columns={columns!r}: pass a list of names, such as ["id"].')
    for name in columns:
        if name not in table.names:
            raise BadInput(f"columns: the store keeps no {name!r} of {table.name}.{nearest(str(name), table.names)}")
    if len(set(columns)) < len(columns):
        raise BadInput(f"columns={list(columns)}: each name once.")
    return list(columns)


def as_frame(rows: pa.Table) -> pd.DataFrame:
    """Rows with the dtypes of a fetch."""
    return rows.to_pandas(types_mapper=_TYPES.get)


def as_last_read(found: pd.DataFrame, table: str, lists: Mapping[str, Moment]) -> pd.DataFrame:
    """Rows as of the last time that their list was read, since they still hold then."""
    whose = [name for name in ("organization", "suite") if name in found]
    names = ["/".join([table, *map(str, row)]) for row in found[whose].itertuples(index=False)]
    at = pd.Series([lists.get(name) for name in names], found.index, dtype=found["fetched_at"].dtype)
    return found.assign(fetched_at=at.fillna(found["fetched_at"]))


def told(found: pd.DataFrame, table: str, url: str, state: State) -> pd.DataFrame:
    """The frame with where it is from in its `attrs`."""
    assert state.as_of is not None
    found.attrs.update(table=table, source=url, as_of=state.as_of.text(), version=state.version)
    return found


_CANNOT_READ = "reading the stream registered as"


def asked(tables: Mapping[str, Table], query: str) -> pd.DataFrame:
    """What DuckDB answers to a query of these tables."""
    try:
        import duckdb
    except ImportError:
        raise MissingExtra("store.sql()", "store") from None
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, table in tables.items():
            connection.register(name, table.dataset())
        connection.execute("SET enable_external_access = false; SET lock_configuration = true")  # it is to read only
        try:
            answer = connection.sql(query)
            return as_frame(answer.to_arrow_table()) if answer is not None else pd.DataFrame()
        except duckdb.Error as why:
            if _CANNOT_READ in str(why) or not isinstance(why, duckdb.ProgrammingError):
                raise StoreFailed(f"DuckDB could not answer the query: {why}") from None
            raise BadInput(f"DuckDB refuses the query: {why}") from None
