"""What the store keeps of each table: columns, their types, and rows made ready to be written."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa

from buildframe import metrics
from buildframe.spec import TABLES
from buildframe.spec.jobs import queue_of

PERSONAL: dict[str, frozenset[str]] = {
    "builds": frozenset({"creator", "creator_email", "author", "author_email"}),
    "jobs": frozenset({"unblocked_by"}),
    "pipelines": frozenset({"created_by", "created_by_email"}),
    "members": frozenset({"name", "email"}),
}
"""Columns that name people; ids are kept without them."""

SECRET: dict[str, frozenset[str]] = {
    "builds": frozenset({"env"}),
    "pipelines": frozenset({"env", "configuration", "steps", "provider_webhook_url"}),
}
"""Columns that hold secrets, or may: variables, the YAML and the steps that set them, an address that is one."""

GAUGES: dict[str, frozenset[str]] = {
    "pipelines": frozenset(
        {
            "scheduled_builds_count",
            "running_builds_count",
            "scheduled_jobs_count",
            "running_jobs_count",
            "waiting_jobs_count",
        }
    )
}
"""Columns that say what goes on at an instant: they change all the time and make no history."""

IS_OPEN = "is_open"
"""Of a build: neither over nor blocked when last seen, or with a job that an agent had, or as a delivery told of it; so
it may yet change, or be found to be otherwise, without a sign in any list."""

IS_TOLD = "is_told"
"""Of a build: a delivery told of it later than any sync read it, so that not all of its jobs may be there. Only stores
that have received deliveries have this column."""

GONE_AT = "gone_at"
"""Of a build: the service's time when it said that there is no such build, or none for this token."""

OVER = frozenset({"passed", "failed", "blocked", "canceled", "skipped", "not_run"})
"""States in which a build stays unless it finishes anew, which lists by `finished_from` tell."""

_OF_ONE_BUILD_ONLY = ("agent_hostname", "agent_meta_data")
"""What the service tells of a job where a single build is asked for, and not in lists."""

HELD_BY_AN_AGENT = frozenset({"assigned", "accepted", "running", "canceling", "timing_out"})

_ARROW: dict[str, pa.DataType] = {
    "text": pa.string(),
    "json": pa.string(),
    "integer": pa.int64(),
    "flag": pa.bool_(),
    "moment": pa.timestamp("us", "UTC"),
}
_SECONDS = {
    "builds": ("wall_time_s",),
    "jobs": ("queue_time_s", "dependency_wait_s", "run_time_s", "turnaround_s"),
}
_WHOSE: dict[str, tuple[str, ...]] = {"flaky_tests": ("organization", "suite"), "members": ("organization",)}
"""Columns in front of a list's own that tell which list a row is of."""


@dataclass(frozen=True)
class Keeping:
    """Whether names of people are kept, and what may hold secrets."""

    personal: bool = False
    env: bool = False

    def leaves_out(self, table: str) -> frozenset[str]:
        """The columns of a table that are not kept."""
        people = frozenset() if self.personal else PERSONAL.get(table, frozenset())
        secrets = frozenset() if self.env else SECRET.get(table, frozenset())
        return people | secrets | GAUGES.get(table, frozenset())

    def schema(self, table: str) -> pa.Schema:
        """The columns of a table as they are stored, `day` last where it has partitions."""
        left_out = self.leaves_out(table)
        declared = [(c.name, _ARROW[c.kind]) for c in TABLES[table] if c.name not in left_out]
        return pa.schema([*_before(table), *declared, *_after(table)])

    @property
    def told(self) -> pa.Schema:
        """Those of builds that deliveries tell of."""
        return self.schema("builds").append(pa.field(IS_TOLD, _ARROW["flag"]))


def _before(table: str) -> list[tuple[str, pa.DataType]]:
    return [(name, pa.string()) for name in _WHOSE.get(table, ())]


def _after(table: str) -> list[tuple[str, pa.DataType]]:
    if table not in _SECONDS:
        return [("valid_from", _ARROW["moment"]), ("valid_to", _ARROW["moment"])]
    seconds: list[tuple[str, pa.DataType]] = [(name, pa.float64()) for name in _SECONDS[table]]
    of_builds = [(IS_OPEN, _ARROW["flag"]), (GONE_AT, _ARROW["moment"])]
    others = of_builds if table == "builds" else [("step", _ARROW["text"])]
    return [*seconds, *others, ("day", pa.date32())]


def builds(frame: pd.DataFrame, jobs: pd.DataFrame) -> pd.DataFrame:
    """Builds with what is stored beside them."""
    held = set(jobs.loc[jobs["state"].isin(HELD_BY_AN_AGENT), "build_id"])
    is_open = ~(frame["state"].isin(OVER) | frame["blocked"].fillna(False)) | frame["id"].isin(held)
    never = pd.Series(pd.NaT, frame.index, dtype=frame["created_at"].dtype)
    return metrics.with_seconds(frame).assign(**{IS_OPEN: is_open, GONE_AT: never})


def told(frame: pd.DataFrame) -> pd.DataFrame:
    """The same of builds that deliveries tell of: they are open, so that the next sync asks for them."""
    return builds(frame, pd.DataFrame({"state": [], "build_id": []})).assign(**{IS_OPEN: True, IS_TOLD: True})


def as_listed(jobs: pd.DataFrame) -> pd.DataFrame:
    """Jobs of a single build, or of a delivery, as a list of builds tells them."""
    none = {name: pd.Series(pd.NA, jobs.index, dtype=jobs[name].dtype) for name in _OF_ONE_BUILD_ONLY}
    told = jobs[["type", "agent_query_rules"]].astype(object)
    rows = told.where(told.notna(), None).itertuples(index=False)
    queues = [queue_of(type, rules, None) for type, rules in rows]
    return jobs.assign(**none, queue=pd.Series(queues, jobs.index, dtype=jobs["queue"].dtype))


def as_table(frame: pd.DataFrame, schema: pa.Schema, left_out: Collection[str] = ()) -> pa.Table:
    """The frame's columns of the schema; one that it lacks, or that is left out, is null."""
    there = set(frame.columns) - set(left_out)
    columns: list[Any] = [
        pa.array(frame[field.name], field.type, from_pandas=True)
        if field.name in there
        else pa.nulls(len(frame), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
