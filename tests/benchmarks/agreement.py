"""Compare typed frames with `pandas.json_normalize` on the same page, column by column and value by value."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from buildframe.spec import BUILD_COLUMNS_OF_JOBS, TABLES, Column

Body = dict[str, Any]

_PLACE = re.compile(r"/organizations/([^/]+)/pipelines/([^/]+)/")
_OF_A_BUILD = ("id", "number", "url", "state", "created_at", "finished_at", "branch", "commit")
_META: list[str | list[str]] = [*_OF_A_BUILD, ["pipeline", "slug"], ["pipeline", "id"]]


def normalized_builds(builds: Sequence[Body]) -> pd.DataFrame:
    """The builds, their jobs as lists in one column."""
    return pd.json_normalize(list(builds))


def normalized_jobs(builds: Sequence[Body]) -> pd.DataFrame:
    """The jobs, each beside what identifies its build."""
    return pd.json_normalize(builds, record_path="jobs", meta=_META, meta_prefix="build.")


def differences(page: bytes, builds: pd.DataFrame, jobs: pd.DataFrame, fetched_at: pd.Timestamp) -> list[str]:
    """The columns in which the frames of one page differ from what its bytes say; the best answer is none."""
    documents = json.loads(page)
    inside = [job for build in documents for job in build["jobs"]]
    of_builds = Expected(documents, normalized_builds(documents), "", fetched_at)
    of_jobs = Expected(inside, normalized_jobs(documents), "build.", fetched_at)
    return [
        *(f"builds.{c.name}" for c in TABLES["builds"] if not _same(builds[c.name], of_builds.column(c))),
        *(f"jobs.{c.name}" for c in TABLES["jobs"] if not _same(jobs[c.name], of_jobs.column(c))),
    ]


class Expected:
    """What each column should hold; `beside` is the prefix of the columns that come from a job's build."""

    def __init__(
        self, documents: Sequence[Body], normalized: pd.DataFrame, beside: str, fetched_at: pd.Timestamp
    ) -> None:
        self._documents = documents
        self._normalized = normalized
        self._beside = beside
        self._fetched_at = fetched_at

    def column(self, column: Column) -> list[Any]:
        """Its values, None for none."""
        if column.name == "fetched_at":
            return [self._fetched_at] * len(self._documents)
        if self._beside and column.name in BUILD_COLUMNS_OF_JOBS:
            return self._of_the_build(BUILD_COLUMNS_OF_JOBS[column.name], column.kind)
        if self._beside and column.name in _OF_A_JOB:
            return [_OF_A_JOB[column.name](document) for document in self._documents]
        if column.name == "organization":
            return [_place(url)[0] for url in self._values(("url",))]
        if column.kind == "json":
            return [_at(document, column.path) for document in self._documents]
        return [_READ[column.kind](value) for value in self._values(column.path)]

    def _of_the_build(self, name: str, kind: str) -> list[Any]:
        if name == "organization":
            return [_place(url)[0] for url in self._values(("url",), self._beside)]
        path = {"pipeline": ("pipeline", "slug"), "pipeline_id": ("pipeline", "id")}.get(name, (name,))
        return [_READ[kind](value) for value in self._values(path, self._beside)]

    def _values(self, path: Sequence[str], prefix: str = "") -> list[Any]:
        """What json_normalize has; where an object may be a bare text, that stands for its name."""
        values = self._column(prefix + ".".join(path))
        if path[-1] != "name" or len(path) == 1:
            return values
        pairs = zip(values, self._column(path[0]), strict=True)
        return [bare if value is None and isinstance(bare, str) else value for value, bare in pairs]

    def _column(self, name: str) -> list[Any]:
        if name not in self._normalized:
            return [None] * len(self._normalized)
        return [None if value is None or value != value else value for value in self._normalized[name]]


def _moment(value: str | None) -> pd.Timestamp | None:
    return None if value is None else pd.Timestamp(value.replace(" UTC", "Z"))


def _as_is(value: Any) -> Any:
    return value


def _whole(value: Any) -> int | None:
    """json_normalize makes floats of integers among which there are nulls."""
    return None if value is None else int(value)


_READ: Mapping[str, Callable[[Any], Any]] = {"text": _as_is, "flag": _as_is, "integer": _whole, "timestamp": _moment}


def _place(url: str) -> tuple[str, str]:
    found = _PLACE.search(url)
    assert found is not None
    return found[1], found[2]


def _queue(job: Body) -> str | None:
    if job["type"] != "script":
        return None
    tags = [*(job["agent_query_rules"] or []), *((job["agent"] or {}).get("meta_data") or [])]
    unnamed = None if job["cluster_queue_id"] else "default"
    return next((tag.removeprefix("queue=") for tag in tags if tag.startswith("queue=")), unnamed)


def _queue_id(job: Body) -> str | None:
    """Each script job here is in a cluster's queue."""
    return job["cluster_queue_id"] if job["type"] == "script" else None


def _step(job: Body) -> str | None:
    """The key, or the name with its group. No two steps of a build have one name here."""
    name, group = job.get("name"), job.get("group_key")
    return job.get("step_key") or (f"{name} ({group})" if name and group else name)


def _retry_of(key: str) -> Callable[[Body], str | None]:
    """Return what reads the source of a retry, which each second attempt has here."""
    return lambda job: (job.get("retry_source") or {}).get(key)


_OF_A_JOB: Mapping[str, Callable[[Body], str | None]] = {
    "queue": _queue,
    "queue_id": _queue_id,
    "step": _step,
    "retry_of_job_id": _retry_of("job_id"),
    "retry_of_type": _retry_of("retry_type"),
}
"""Columns of jobs that the service does not send."""


def _at(document: Any, path: Sequence[str]) -> Any:
    """Maps and lists stay whole as JSON text, which json_normalize takes apart: so they are looked up."""
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _same(series: pd.Series[Any], expected: list[Any]) -> bool:
    found = [None if missing else value for value, missing in zip(series, series.isna(), strict=True)]
    if any(isinstance(value, dict | list) for value in expected):
        found = [None if value is None else json.loads(value) for value in found]
    return found == expected
