"""Build batches for commits, and read a store in the same plain form."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pandas as pd
import pyarrow as pa

from buildframe.fetching import arrow
from buildframe.spec import Moment
from buildframe.store import delta, transactions
from buildframe.store.delta import TableChange, TableVersion
from buildframe.store.retained_columns import Retention
from buildframe.store.store import Store
from buildframe.store.transactions import ListSnapshot, SyncBatch

BEGIN = dt.datetime(2026, 10, 1, tzinfo=dt.UTC)
PLAIN = Retention()


@dataclass(frozen=True)
class Build:
    """A build as fetched in second `at`, created on a day (None: without `created_at`), with its jobs."""

    key: int
    at: int
    day: int | None = 0
    state: str = "passed"
    jobs: tuple[int, ...] = (0, 1)

    @property
    def id(self) -> str:
        return f"build-{self.key}"

    @property
    def is_open(self) -> bool:
        return self.state == "running"


def moment(second: int) -> Moment:
    return Moment.of(BEGIN + dt.timedelta(days=30, seconds=second))


def batch(builds: Iterable[Build], at: int, gone: Iterable[Build] = (), **more: Any) -> SyncBatch:
    builds = list(builds)
    heads = frame("builds", [_head(build) for build in builds])
    jobs = frame("jobs", [_job(build, job) for build in builds for job in build.jobs])
    lost = pd.DataFrame([(one.id, _day(one), moment(one.at)) for one in gone], columns=["id", "day", "fetched_at"])
    return SyncBatch(heads, jobs, moment(at), gone=lost, **more)


def flaky(instances: Mapping[str, int], at: int, suite: str = "rspec") -> ListSnapshot:
    """A list of flaky tests, with the number of instances by id."""
    rows = [
        {"id": id, "name": f"name of {id}", "instances": n, "fetched_at": moment(at)} for id, n in instances.items()
    ]
    listed = frame("flaky_tests", rows)
    listed.attrs["as_of"] = moment(at).text()
    return ListSnapshot("flaky_tests", {"organization": "acme", "suite": suite}, listed)


def frame(table: str, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    return arrow.to_frame(table, [pa.Table.from_pylist(list(rows), arrow.schema(table))])


def _created(build: Build) -> dt.datetime | None:
    return None if build.day is None else BEGIN + dt.timedelta(days=build.day, seconds=build.key)


def _day(build: Build) -> dt.date | None:
    created = _created(build)
    return None if created is None else created.date()


def _head(build: Build) -> dict[str, Any]:
    return {
        "id": build.id,
        "number": build.key,
        "organization": "acme",
        "pipeline": "web",
        "pipeline_id": f"pipeline-{build.key % 2}",
        "state": build.state,
        "message": f"as of {build.at}",
        "creator": "Ada Example",
        "created_at": _created(build),
        "fetched_at": moment(build.at),
    }


def _job(build: Build, job: int) -> dict[str, Any]:
    head = _head(build)
    return {
        **{name: head[name] for name in ("organization", "pipeline", "pipeline_id", "created_at", "fetched_at")},
        "build_id": build.id,
        "build_number": build.key,
        "build_state": build.state,
        "build_created_at": head["created_at"],
        "id": f"{build.id}/{job}",
        "name": f"as of {build.at}",
        "type": "script",
        "state": build.state,
    }


# --- content of a store

StoredContent = dict[str, tuple[str, bool, tuple[str, ...]]]
"""By the id of a build: its message, whether it is gone, and its jobs with their names."""


def expected(builds: Iterable[Build], gone: Collection[str] = ()) -> StoredContent:
    return {
        build.id: (
            f"as of {build.at}",
            build.id in gone,
            tuple(sorted(f"{build.id}/{job} as of {build.at}" for job in build.jobs)),
        )
        for build in builds
    }


def stored_content(store: Store) -> StoredContent:
    """Return the content of a store. Each id must occur once, and each job must have a build."""
    builds = store.builds(columns=["id", "message", "gone_at"])
    jobs = store.jobs(columns=["id", "build_id", "name"])
    assert builds["id"].is_unique
    assert jobs["id"].is_unique
    assert set(jobs["build_id"]) <= set(builds["id"])
    texts: dict[str, list[str]] = {id: [] for id in builds["id"]}
    for id, build, name in jobs.itertuples(index=False):
        texts[build].append(f"{id} {name}")
    rows = zip(builds["id"], builds["message"], builds["gone_at"].notna(), strict=True)
    return {id: (message, is_gone, tuple(sorted(texts[id]))) for id, message, is_gone in rows}


# --- earlier versions


@contextmanager
def builds_stored_by_day() -> Iterator[None]:
    """Commit as earlier versions of the package did: they looked for a build on its new day only."""

    def days_of(self: Any, ids: Any, days: Any = ()) -> list[Any]:
        return list(days)

    written = transactions.SyncState.to_json

    def without_field(self: Any) -> dict[str, Any]:
        left_out = ("unique_ids", "contents", "checksum")
        return {name: value for name, value in written(self).items() if name not in left_out}

    with (
        mock.patch.object(transactions._Transaction, "_days_of", days_of),
        mock.patch.object(transactions._Transaction, "repair", return_value=False),
        mock.patch.object(transactions.SyncState, "to_json", without_field),
    ):
        yield


# --- interruptions


class Killed(BaseException):
    """The end of a process: the package does not catch it and does not clean up after it."""


@contextmanager
def at_each_instant(what: Callable[[str], None]) -> Iterator[None]:
    """Call `what` with a name before and after each creation, change and commit of a table or file."""

    def around(owner: Any, name: str) -> Any:
        true = getattr(owner, name)

        def instead(*args: Any, **kwargs: Any) -> Any:
            what(f"before {name}")
            found = true(*args, **kwargs)
            what(f"after {name}")
            return found

        return mock.patch.object(owner, name, instead)

    with (
        around(TableVersion, "commit"),
        around(TableVersion, "open_or_create"),
        around(TableVersion, "add_columns"),
        around(TableVersion, "roll_back_to"),
        around(delta, "_write_parquet"),
    ):
        yield


@contextmanager
def at_instant(number: int, what: Any, of: str = "") -> Iterator[None]:
    """Call `what` at the instant with this number; `of` selects instants by a part of their name, such as "commit"."""
    left = [what, *[None] * number]

    def between(name: str) -> None:
        if of in name and left and (now := left.pop()) is not None:
            now()

    with at_each_instant(between):
        yield


@contextmanager
def dies_at(number: int, of: str = "") -> Iterator[None]:
    """End the block at an instant as kill -9 does: files stay as they are."""

    def kill() -> None:
        raise Killed

    with mock.patch.object(TableChange, "discard"), at_instant(number, kill, of):
        try:
            yield
        except Killed:
            return
