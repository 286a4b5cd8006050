"""Compute columns again that follow from stored columns, in rows of older versions.

Each data file of `VERSIONS` names the version of its computed columns. Knows the rules of these
columns; does not know files or commits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buildframe import metrics
from buildframe.fetching import arrow
from buildframe.spec import BUILD_COLUMNS_OF_JOBS, TABLES, job_columns
from buildframe.spec.arrow_types import pandas_types
from buildframe.store import retained_columns

VERSIONS = {"builds": 1, "jobs": job_columns.VERSION}
"""Version of the computed columns of each table.

Raise it if a rule changes. Files without a version have version 0.
"""

BUILD_COLUMNS = ("id", "finished_at")
"""Columns of builds that `recompute` needs for jobs.

The other columns that jobs have of their builds never changed.
"""

_DERIVED_OF_JOBS = ("queue", "queue_id")
_OF_BUILDS = {name: source for name, source in BUILD_COLUMNS_OF_JOBS.items() if source in BUILD_COLUMNS[1:]}
_DURATIONS = {"builds": ("wall_time_s",), "jobs": retained_columns.DURATIONS_OF_JOBS}

COMPUTED = {
    "builds": frozenset(_DURATIONS["builds"]),
    "jobs": frozenset((*_OF_BUILDS, *_DERIVED_OF_JOBS, *job_columns.SOURCES, *_DURATIONS["jobs"])),
}
"""Columns of each table that `recompute` replaces."""


def full_schema(table: str, schema: pa.Schema) -> pa.Schema:
    """Return the schema of a stored table with the computed columns that older stores lack."""
    if table not in COMPUTED:
        return schema
    current = retained_columns.Retention().schema(table)
    missing = [field for field in current if field.name in COMPUTED[table] and field.name not in schema.names]
    return pa.schema([*schema, *missing])


def recompute(table: str, rows: pa.Table, builds: pa.Table | None = None) -> pa.Table:
    """
    Return rows with their computed columns by the current rules; the schema stays the same.

    Jobs must be those of whole builds. `builds` are their builds, with `BUILD_COLUMNS`. Without it,
    columns that jobs have of their builds stay the same.
    """
    if table not in COMPUTED or not rows.num_rows:
        return rows
    if builds is not None:
        rows = _with_build_columns(rows, builds)
    if table == "jobs":
        rows = _replace(_replace(rows, _derived(rows)), _from_build(rows))
    frame = metrics.with_seconds(rows.to_pandas(types_mapper=pandas_types().get))
    durations = {name: pa.array(frame[name].array, from_pandas=True) for name in _DURATIONS[table]}
    return _replace(rows, durations)


def _with_build_columns(jobs: pa.Table, builds: pa.Table) -> pa.Table:
    index = pc.index_in(jobs["build_id"], value_set=builds["id"].combine_chunks())
    return _replace(jobs, {name: builds[source].take(index) for name, source in _OF_BUILDS.items()})


def _derived(jobs: pa.Table) -> dict[str, Any]:
    """Return the columns that follow from other columns of the same row."""
    declared = [column for column in TABLES["jobs"] if column.name in _DERIVED_OF_JOBS]
    needs = {need for column in declared if column.derived for need in column.derived.needs}
    sources = {name: _source(jobs, name) for name in needs}
    return {column.name: arrow.derive(column, sources) for column in declared}


def _from_build(jobs: pa.Table) -> dict[str, Any]:
    """Return the columns that follow from all jobs of a build."""
    needs = {need for sources in job_columns.SOURCES.values() for need in sources}
    build = jobs["build_id"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    sources = {name: _source(jobs, name) for name in needs}
    return job_columns.compute(sources, build.astype(np.int64), list(job_columns.SOURCES))


def _source(rows: pa.Table, name: str) -> pa.Array[Any]:
    """Return a column with the type that it has when it is fetched; null if it is not stored."""
    kind: Any = arrow.schema("jobs", (name,)).field(name).type
    if name not in rows.column_names:
        nulls: pa.Array[Any] = pa.nulls(rows.num_rows).cast(kind)
        return nulls
    values: pa.Array[Any] = rows[name].cast(kind).combine_chunks()
    return values


def _replace(rows: pa.Table, columns: dict[str, Any]) -> pa.Table:
    """Replace those columns that the rows have."""
    for name, values in columns.items():
        if name in rows.column_names:
            field = rows.schema.field(name)
            rows = rows.set_column(rows.column_names.index(name), field, values.cast(field.type))
    return rows
