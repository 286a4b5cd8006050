"""Find builds that a store of an earlier version has twice, because their `created_at` moved.

Such a store has a build once for each day on which it was said to be created. The row that was
fetched last counts.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from buildframe.store import merge
from buildframe.store.delta import TableVersion, key_of

OutdatedRows = Mapping[dt.date | None, Sequence[str]]
"""Ids of builds whose rows do not count, by the day on which they are stored."""


def repeated_ids(builds: TableVersion) -> pa.Array[Any]:
    """Return the ids of builds that are stored more than once."""
    counts = builds.keys().value_counts()
    is_repeated = pc.greater(counts.field("counts"), pa.scalar(1))
    return counts.filter(is_repeated).field("values")


def outdated_rows(builds: TableVersion) -> OutdatedRows:
    """Return the rows of builds that do not count. Jobs on the same day do not count either."""
    repeated = repeated_ids(builds)
    if not len(repeated):
        return {}
    stored = builds.read_rows(builds.days_with(repeated), "id", repeated)
    newest = merge.newest_builds(stored)
    current = set(zip(newest["id"].to_pylist(), newest["day"].to_pylist(), strict=True))
    outdated: dict[Any, list[Any]] = defaultdict(list)
    for id, day in zip(stored["id"].to_pylist(), stored["day"].to_pylist(), strict=True):
        if (id, day) not in current:
            outdated[day].append(id)
    return outdated


def condition(outdated: OutdatedRows, table: TableVersion) -> pc.Expression | None:
    """Return a filter of builds or jobs that leaves these rows out; None if there are none."""
    key = key_of(table.schema.names)
    rest = None
    for day, ids in outdated.items():
        is_of_day = pc.field("day").is_null() if day is None else _is_day(day)
        counts = ~(is_of_day & pc.field(key).isin(list(ids)))
        rest = counts if rest is None else rest & counts
    return rest


def sql_condition(outdated: OutdatedRows, table: TableVersion) -> str:
    """Return the same as a condition of SQL, for DuckDB and Spark.

    Return an empty text if there are no such rows.
    """
    key = key_of(table.schema.names)
    return " AND ".join(
        f"NOT ({'day IS NULL' if day is None else _equals(day)} AND {key} IN ({_texts(ids)}))"
        for day, ids in outdated.items()
    )


def _is_day(day: dt.date) -> pc.Expression:
    """Return a condition that is false, not null, for rows without a day."""
    coalesce: Any = pc.coalesce  # its types do not know expressions
    is_of_day: pc.Expression = coalesce(pc.field("day") == pa.scalar(day), pc.scalar(False))
    return is_of_day


def _equals(day: dt.date) -> str:
    return f"COALESCE(day = DATE '{day.isoformat()}', false)"


def _texts(ids: Sequence[str]) -> str:
    return ", ".join("'" + id.replace("'", "''") + "'" for id in ids)
