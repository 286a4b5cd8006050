"""Stores of an organization with a million jobs a day, of 1, 10 or 100 days: they differ in their number of days only.

A day contains the rows of an invented month, at their hours. Days differ in ids, in the times at which builds are
created, and in how long jobs waited and ran, drawn again from the distributions of the invented world. A few commits
write each day to the store, as syncs do, so that memory is that of one day.
"""

from __future__ import annotations

import functools
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from buildframe.store import transactions
from buildframe.store.location import Location
from buildframe.store.retained_columns import Retention
from buildframe.store.transactions import SyncBatch
from tests.benchmarks import year
from tests.benchmarks.world import END, QUEUES
from tests.benchmarks.year import JOBS, Frames

A_DAY = 1_000_000
SIZES = (1, 10, 100)
_AGENTS = 10_000
"""Of each queue, so that each has less than one job at a time."""
_HOUR = 3_600_000
_DAYS_BEFORE = 1_000
"""Builds were numbered on so many days before the last; numbers may have gaps."""
_PARTS = 5
"""Of a day, each a commit."""
_OPEN = ("running", "scheduled")

Milliseconds = npt.NDArray[np.int64]


@functools.cache
def template(jobs_a_day: int) -> Frames:
    """The last day, oldest build first: builds that are over, as many as each day has, and those that are open."""
    builds, jobs = year.month(max(jobs_a_day // JOBS * 9 // 8, 60))
    year.month.cache_clear()  # it is large
    is_open = builds["state"].isin(_OPEN)
    chosen = np.flatnonzero(is_open | ((~is_open).cumsum() <= jobs_a_day // JOBS))
    of_day = builds["created_at"].iloc[chosen] - builds["created_at"].iloc[chosen].dt.floor("D")
    chosen = chosen[of_day.argsort()]
    builds, jobs = builds.iloc[chosen], jobs.iloc[_of_builds(chosen)]
    to_the_day = (pd.Timestamp(END) - pd.Timedelta(days=1) - builds["created_at"].dt.floor("D")).to_numpy()
    builds = _rebuilt(_later(builds, to_the_day))
    jobs = _later(jobs, np.repeat(to_the_day, JOBS)).assign(**_agents(jobs["queue"], jobs["agent_id"]))
    return Frames(builds, jobs.assign(**{name: np.repeat(builds[name].array, JOBS) for name in ("commit", "branch")}))


def _of_builds(places: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Where the jobs of builds stand."""
    return (places[:, None] * JOBS + np.arange(JOBS)).ravel()


def _later(frame: pd.DataFrame, by: npt.NDArray[np.timedelta64]) -> pd.DataFrame:
    """With all times but `fetched_at` moved."""
    times = [name for name, dtype in frame.dtypes.items() if isinstance(dtype, pd.DatetimeTZDtype)]
    return frame.assign(**{name: frame[name] + by for name in times if name != "fetched_at"})


def _rebuilt(builds: pd.DataFrame) -> pd.DataFrame:
    """A rebuild has the commit and the branch of its pipeline's build before."""
    before = builds.sort_values("created_at").groupby("pipeline")[["commit", "branch"]].shift().reindex(builds.index)
    repeats = builds["rebuilt_from_id"].notna() & before["commit"].notna()
    return builds.assign(**{name: before[name].where(repeats, builds[name]) for name in before})


def _agents(queues: pd.Series[str], held: pd.Series[str]) -> dict[str, pd.Series[str]]:
    """More agents than the month has, each in one queue."""
    numbers = np.random.default_rng(1).integers(0, _AGENTS, len(queues))
    names = [f"{queue}-{n}" for queue in sorted(set(QUEUES)) for n in range(_AGENTS)]
    columns = {
        "agent": names,
        "agent_id": [str(uuid.uuid5(uuid.NAMESPACE_URL, name)) for name in names],
        "agent_hostname": [f"{name}.agents.example.com" for name in names],
    }
    codes = pd.Categorical(queues, sorted(set(QUEUES))).codes.astype(np.int64)
    places = np.where(held.notna() & (codes >= 0), codes * _AGENTS + numbers, -1)
    return {
        column: pd.Series(pd.array([*texts, None], dtype="str").take(places), queues.index)
        for column, texts in columns.items()
    }


def day(jobs_a_day: int, back: int) -> Iterator[Frames]:
    """What was created so many days before the last, part after part; only of the last day are builds open."""
    builds, jobs = template(jobs_a_day)
    is_there = np.ones(len(builds), np.bool_) if back == 0 else ~builds["state"].isin(_OPEN).to_numpy()
    begin = (_DAYS_BEFORE - back) * 2 * len(builds)
    for places in np.array_split(np.flatnonzero(is_there), _PARTS):
        random = np.random.default_rng([back, *places[:1]])
        builds_then = _moved(builds.take(places), "builds", back)
        jobs_then = _moved(jobs.take(_of_builds(places)), "jobs", back)
        yield _numbered(_redraw_times(random, builds_then, jobs_then), begin + int(places[0]))


def _moved(frame: pd.DataFrame, table: str, back: int) -> pd.DataFrame:
    """As for a year; but of a hundred copies some hundred ids would be the same, did only their digits differ."""
    letters = np.arange(256, dtype=np.uint8)
    letters[ord("a") : ord("f") + 1] = np.random.default_rng([back, 1]).permutation(6) + ord("a")
    ids = [name for name in ("id", "build_id", "retried_in_job_id") if name in frame]
    moved = year.moved(frame, table, back, -back)
    return moved.assign(**{name: year.with_bytes(moved[name], letters) for name in ids})


def _redraw_times(random: np.random.Generator, builds: pd.DataFrame, jobs: pd.DataFrame) -> Frames:
    """Builds at other moments of their hours, waits and runs as long as the world may draw them."""
    n, of_hour = len(builds), builds["created_at"] - builds["created_at"].dt.floor("h")
    later = (_ms(random.integers(0, _HOUR, n)) - of_hour).to_numpy()
    builds, jobs = _later(builds, later), _later(jobs, np.repeat(later, JOBS))
    started = builds["created_at"] + _ms(random.integers(800, 90_000, n))
    builds = _with_stamps(
        builds,
        started_at=started,
        finished_at=started + _ms(random.integers(60_000, 1_500_000, n)),
        failing_at=started + _ms(np.full(n, 50_000)),
    )
    ran = jobs["started_at"].notna()
    begun = jobs["runnable_at"] + _ms(_waits(random, len(jobs)))
    ended = begun + _ms(random.integers(2_000, 900_000, len(jobs)))
    jobs = _with_stamps(jobs, started_at=begun, finished_at=ended.where(ran, jobs["finished_at"]))
    soon = pd.Timedelta(hours=1)  # when the last builds of the day were over
    return Frames(*(frame.assign(fetched_at=frame["fetched_at"] + soon) for frame in (builds, jobs)))


def _waits(random: np.random.Generator, n: int) -> Milliseconds:
    """One of two thousand is negative: clocks disagree."""
    waits = random.integers(500, 120_000, n)
    return np.where(random.random(n) < 0.0005, -waits // 10, waits)


def _ms(durations: Milliseconds) -> pd.TimedeltaIndex:
    return pd.to_timedelta(durations, unit="ms").as_unit("us")


def _with_stamps(frame: pd.DataFrame, **stamps: pd.Series[pd.Timestamp]) -> pd.DataFrame:
    """Stamps in the place of those that are there."""
    return frame.assign(**{name: stamp.where(frame[name].notna()) for name, stamp in stamps.items()})


def _numbered(frames: Frames, first: int) -> Frames:
    """Numbers that grow with time, over all pipelines."""
    builds, jobs = frames
    number = builds["created_at"].rank(method="first").astype("Int64") + first
    return Frames(builds.assign(number=number), jobs.assign(build_number=np.repeat(number.array, JOBS)))


def filled(days: int, jobs_a_day: int = A_DAY) -> Location:
    """A store of so many days, which is kept beside the temporary files of this machine; made where it is not there."""
    folder = Path(tempfile.gettempdir()) / f"buildframe-{days}-days-of-{jobs_a_day}"
    if not (folder / "whole").exists():
        shutil.rmtree(folder, ignore_errors=True)
        fill(Location.of(folder, None), days, jobs_a_day)
        (folder / "whole").touch()
    return Location.of(folder, None)


def fill(place: Location, days: int, jobs_a_day: int) -> None:
    """Bring them into a store, part after part of each day, and the list of pipelines."""
    for back in reversed(range(days)):
        began = time.perf_counter()
        result = [transactions.commit(place, Retention(), _batch(*part)) for part in day(jobs_a_day, back)]
        jobs, mib = sum(one.jobs for one in result), sum(one.bytes for one in result) / 2**20
        print(f"{days - back} of {days}: {jobs:,} jobs, {mib:.0f} MiB, {time.perf_counter() - began:.1f} s", flush=True)


def _batch(builds: pd.DataFrame, jobs: pd.DataFrame) -> SyncBatch:
    return SyncBatch(builds, jobs, year.as_of(builds), lists=(year.pipelines_of(builds),))


if __name__ == "__main__":
    for size in map(int, sys.argv[1:] or SIZES):
        print(filled(size).url, flush=True)
