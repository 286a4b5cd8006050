"""Define the columns that the store retains, with Arrow types, and prepare rows for writing. Does not know files."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa

from buildframe import metrics
from buildframe.metrics.job_ends import IS_OVER, with_ends
from buildframe.spec import TABLES, Column, Privacy
from buildframe.spec.arrow_types import arrow_types
from buildframe.spec.builds import AGENT_STATES, ENDED_STATES
from buildframe.spec.declare import GAUGE
from buildframe.spec.jobs import queue_id_of, queue_of


def _columns_that(is_excluded: Callable[[Column], bool]) -> dict[str, frozenset[str]]:
    return {table: frozenset(c.name for c in columns if is_excluded(c)) for table, columns in TABLES.items()}


PERSONAL = _columns_that(lambda column: column.privacy in (Privacy.PERSONAL, None))
"""Columns with names or e-mail addresses of people. Ids of people are not personal."""

SECRET = _columns_that(lambda column: column.privacy in (Privacy.SECRET, None))
"""Columns that may contain secrets: variables, the YAML and steps that set them, and webhook URLs."""

_GAUGES = _columns_that(lambda column: GAUGE in column.traits)
"""Columns with current counts. They change constantly, so the history leaves them out."""

IS_OPEN = "is_open"
"""Column of builds: whether the build can still change without appearing in a list by time. True if it was neither
finished nor blocked, if an agent held one of its jobs, or if a webhook delivery updated it."""

HAS_WEBHOOK_UPDATE = "has_webhook_update"
"""Column of builds: whether a webhook delivery updated the build after the last sync read it, so jobs may be missing.
Exists only in stores that have received deliveries."""

GONE_AT = "gone_at"
"""Column of builds: service time at which the service reported that the build is deleted or not visible."""

PERIOD = "period"
"""Column of flaky tests: in which time before each reading the listed tests flaked. Null in older
stores, whose lists were of the default period."""

FINAL_STATES = (*ENDED_STATES, "blocked")
"""States in which a build stays until it finishes again; lists by `finished_from` then contain it."""

_SINGLE_BUILD_ONLY = ("agent_hostname", "agent_meta_data")  # job fields that are not in lists of builds
_ARROW = arrow_types(large=False)
_LIST_KEYS: dict[str, tuple[str, ...]] = {"flaky_tests": ("organization", "suite"), "members": ("organization",)}
"""Leading columns that identify the list of a row."""

DURATIONS_OF_JOBS = ("queue_time_s", "dependency_wait_s", "run_time_s", "turnaround_s")
_DAY: tuple[str, Any] = ("day", pa.date32())
_VALIDITY: list[tuple[str, Any]] = [("valid_from", _ARROW["timestamp"]), ("valid_to", _ARROW["timestamp"])]
_COMPUTED = {
    "builds": [("wall_time_s", pa.float64()), (IS_OPEN, _ARROW["flag"]), (GONE_AT, _ARROW["timestamp"]), _DAY],
    "jobs": [*((name, pa.float64()) for name in DURATIONS_OF_JOBS), _DAY],
    "flaky_tests": [(PERIOD, pa.string()), *_VALIDITY],
}
"""Columns that the store adds to a table, at its end. Other lists have `_VALIDITY`."""


@dataclass(frozen=True)
class Retention:
    """Which optional columns the store retains: `personal` data, and `env` and other columns that may hold secrets."""

    personal: bool = False
    env: bool = False

    def excluded_columns(self, table: str) -> frozenset[str]:
        """Return the columns of a table that are not stored."""
        personal = frozenset() if self.personal else PERSONAL[table]
        secrets = frozenset() if self.env else SECRET[table]
        return personal | secrets | _GAUGES[table]

    def schema(self, table: str) -> pa.Schema:
        """Return the stored schema of a table; the partition column `day` is last."""
        excluded = self.excluded_columns(table)
        keys = [(name, pa.string()) for name in _LIST_KEYS.get(table, ())]
        declared = [(c.name, _ARROW[c.kind]) for c in TABLES[table] if c.name not in excluded]
        return pa.schema([*keys, *declared, *_COMPUTED.get(table, _VALIDITY)])


def builds(frame: pd.DataFrame, jobs: pd.DataFrame) -> pd.DataFrame:
    """Add the stored columns that are computed from builds and their jobs."""
    is_held = jobs["state"].isin(AGENT_STATES) & ~with_ends(jobs)[IS_OVER]
    held_by_agents = set(jobs.loc[is_held, "build_id"])
    is_open = ~(frame["state"].isin(FINAL_STATES) | frame["blocked"].fillna(False)) | frame["id"].isin(held_by_agents)
    never = pd.Series(pd.NaT, frame.index, dtype=frame["created_at"].dtype)
    return metrics.with_seconds(frame).assign(**{IS_OPEN: is_open, GONE_AT: never})


def as_list_rows(jobs: pd.DataFrame) -> pd.DataFrame:
    """Convert jobs of a delivery to the form in which lists of builds return them."""
    none = {name: pd.Series(pd.NA, jobs.index, dtype=jobs[name].dtype) for name in _SINGLE_BUILD_ONLY}
    sources = jobs[["type", "agent_query_rules", "cluster_queue_id", "cluster_id"]].astype(object)
    queues = []
    queue_ids = []
    for type, rules, cluster_queue, cluster in sources.where(sources.notna(), None).itertuples(index=False):
        queues.append(queue_of(type, rules, None, cluster_queue))
        queue_ids.append(queue_id_of(type, rules, None, cluster_queue, cluster))
    return jobs.assign(
        **none,
        queue=pd.Series(queues, jobs.index, dtype=jobs["queue"].dtype),
        queue_id=pd.Series(queue_ids, jobs.index, dtype=jobs["queue_id"].dtype),
    )


def as_table(frame: pd.DataFrame, schema: pa.Schema, excluded: Collection[str] = ()) -> pa.Table:
    """Convert a frame to an Arrow table with this schema; missing and excluded columns are null."""
    frame = pd.DataFrame(frame)  # without attrs, which pandas would copy for each column
    present = set(frame.columns) - set(excluded)
    columns: list[Any] = [
        _to_arrow(frame[field.name], field.type) if field.name in present else pa.nulls(len(frame), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _to_arrow(values: pd.Series[Any], type: pa.DataType) -> Any:
    array = values.array  # a Series lacks an attribute that Arrow asks for; for few rows, that takes most of the time
    return pa.array(array if hasattr(array, "__arrow_array__") else values, type, from_pandas=True)
