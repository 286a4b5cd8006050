"""Create a store with a year of builds: an invented month of four weeks, thirteen times, each time with other ids."""

from __future__ import annotations

import datetime as dt
import functools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa

from buildframe import spec
from buildframe.fetching.decoder import ColumnSelection, PageDecoder
from buildframe.http import protocol, response
from buildframe.spec import Moment
from buildframe.store import transactions
from buildframe.store.location import Location
from buildframe.store.retained_columns import Retention
from buildframe.store.transactions import ListSnapshot, SyncBatch
from tests.benchmarks.world import END, PAGE, World

DAYS = 28
MONTHS = 13
JOBS = 30
_WEEKS = DAYS // 7
_OWN = {
    "builds": ("id", "graphql_id", "commit", "rebuilt_from_id", "triggered_from_build_id", "url", "web_url"),
    "jobs": (
        "build_id", "commit", "id", "graphql_id", "step_id", "retried_in_job_id", "web_url", "log_url", "raw_log_url"
    ),
}  # fmt: skip
"""Columns of which no two months have the same values."""


class Frames(NamedTuple):
    """Builds and all of their jobs, as fetched."""

    builds: pd.DataFrame
    jobs: pd.DataFrame


@functools.cache
def month(builds_of_30_days: int) -> Frames:
    """The last four weeks of an invented world, oldest build first."""
    decoding = PageDecoder(spec.Build, ColumnSelection("builds"), ColumnSelection("jobs"))
    request = protocol.request_for(spec.list_builds, "acme")
    headers = {"date": END.strftime("%a, %d %b %Y %H:%M:%S GMT")}
    tables = [
        decoding.tables(decoding.read(request, response.Response(200, headers, page)))
        for page in _pages(World(builds_of_30_days, JOBS))
    ]
    found, begin = Frames(*decoding.frames(tables)), pd.Timestamp(END) - pd.Timedelta(days=DAYS)
    return Frames(
        found.builds[found.builds["created_at"] >= begin], found.jobs[found.jobs["build_created_at"] >= begin]
    )


def _pages(world: World) -> Iterator[bytes]:
    page = []
    for build in world.newest_first():
        page.append(build)
        if len(page) == PAGE:
            yield msgspec.json.encode(page)
            page.clear()
    yield msgspec.json.encode(page)


def weeks(builds_of_30_days: int, months: int) -> Iterator[Frames]:
    """Those of so many months, week by week; ids stay as random as they were, and files as large as true ones."""
    builds, jobs = month(builds_of_30_days)
    begin = pd.Timestamp(END) - pd.Timedelta(days=DAYS)
    for back in reversed(range(months)):
        for week in range(_WEEKS):
            start, end = (begin + pd.Timedelta(days=7 * n) for n in (week, week + 1))
            yield Frames(
                moved(builds[builds["created_at"].between(start, end, "left")], "builds", back, -DAYS * back),
                moved(jobs[jobs["build_created_at"].between(start, end, "left")], "jobs", back, -DAYS * back),
            )


def moved(frame: pd.DataFrame, table: str, copy: int, days: int) -> pd.DataFrame:
    """The rows so many days later, with the digits of each id exchanged for others."""
    digits = np.random.default_rng(copy).permutation(10)
    exchanged = np.arange(256, dtype=np.uint8)
    exchanged[ord("0") : ord("9") + 1] = digits + ord("0")
    times = [name for name, dtype in frame.dtypes.items() if isinstance(dtype, pd.DatetimeTZDtype)]
    return frame.assign(
        **{name: with_bytes(frame[name], exchanged) for name in _OWN[table]},
        **{name: frame[name] + pd.Timedelta(days=days) for name in times},
    )


def with_bytes(texts: pd.Series[str], bytes_for: np.ndarray) -> pd.Series[str]:
    array = pa.array(texts, pa.large_string(), from_pandas=True)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    valid, offsets, data = array.buffers()
    assert array.offset == 0
    changed = pa.py_buffer(bytes_for[np.frombuffer(data, np.uint8)]) if data is not None else None
    whole = pa.Array.from_buffers(pa.large_string(), len(array), [valid, offsets, changed])
    return pd.Series(whole, texts.index, dtype="str")


def filled(builds_of_30_days: int, months: int = MONTHS) -> Location:
    """A store of the year, which is kept beside the temporary files of this machine; made where it is not there."""
    folder = Path(tempfile.gettempdir()) / f"buildframe-{months}-months-of-{builds_of_30_days}"
    if not (folder / "whole").exists():
        shutil.rmtree(folder, ignore_errors=True)
        fill(Location.of(folder, None), builds_of_30_days, months)
        (folder / "whole").touch()
    return Location.of(folder, None)


def fill(place: Location, builds_of_30_days: int, months: int) -> None:
    """Bring them into a store, a week a commit, and the list of pipelines."""
    for builds, jobs in weeks(builds_of_30_days, months):
        if len(builds):
            transactions.commit(
                place, Retention(), SyncBatch(builds, jobs, as_of(builds), lists=(pipelines_of(builds),))
            )


def pipelines_of(builds: pd.DataFrame) -> ListSnapshot:
    names = builds[["pipeline_id", "pipeline", "organization"]].drop_duplicates()
    listed = names.rename(columns={"pipeline_id": "id", "pipeline": "slug"}).assign(
        fetched_at=builds["fetched_at"].max()
    )
    listed.attrs["as_of"] = as_of(builds).text()
    return ListSnapshot("pipelines", {"organization": "acme"}, listed)


def as_of(builds: pd.DataFrame) -> Moment:
    """When these were fetched."""
    return Moment.of(builds["fetched_at"].max().to_pydatetime().astimezone(dt.UTC))
