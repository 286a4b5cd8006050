"""Create a store with one day of ten million jobs, and measure reads and commits.

The day has 24 commits, one for each hour, as hourly syncs write them. Ids begin with the time of creation, as in UUIDs
of version 7. Commits go into a copy of the store, each in a fresh process.
"""

from __future__ import annotations

import datetime as dt
import gc
import json
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

import buildframe as bf
from buildframe import webhooks
from buildframe.spec import Moment
from buildframe.store import transactions
from buildframe.store.delta import DataFile, TableChange, TableVersion
from buildframe.store.location import Location
from buildframe.store.retained_columns import Retention
from buildframe.store.sync_state import Coverage
from buildframe.store.transactions import SyncBatch
from buildframe.webhooks import Event
from tests.benchmarks import large, memory, receiving, reporting, storing, year
from tests.benchmarks.reporting import ROOT, Stopwatch
from tests.benchmarks.storing import FIVE, MIB
from tests.benchmarks.year import JOBS, Frames

HOURS = 24
BUILDS_AN_HOUR = 14_900  # of a month of 30 days, of which 28 are used
VARIANTS = 20  # of each of the ten pipelines
DAY = pd.Timestamp("2026-10-31", tz="UTC")


def hour(builds_of_30_days: int, n: int) -> Frames:
    """A month of builds, created within the hour `n` of the day; all other times move with their build."""
    builds, jobs = (large._moved(frame, name, n) for name, frame in _template(builds_of_30_days)._asdict().items())
    created = builds["created_at"]
    begin, span = DAY + pd.Timedelta(hours=n), created.max() - created.min() + pd.Timedelta(seconds=1)
    within = pd.to_timedelta((created - created.min()) / span * 3_600_000, unit="ms").dt.floor("ms").dt.as_unit("us")
    later = (begin + within - created).to_numpy()
    builds, jobs = large._later(builds, later), large._later(jobs, np.repeat(later, JOBS))
    pipelines = _pipelines(builds)
    fetched = begin + pd.Timedelta(hours=1)
    builds, jobs = (
        frame.assign(**{name: values.repeat(times) for name, values in pipelines.items()}, fetched_at=fetched)
        for frame, times in ((builds, 1), (jobs, JOBS))
    )
    heads = _prefixes(builds["created_at"])
    builds = builds.assign(id=_with_prefix(builds["id"], heads))
    heads = heads.repeat(JOBS)
    own = {name: _with_prefix(jobs[name], heads) for name in ("id", "build_id", "retried_in_job_id")}
    return Frames(builds, jobs.assign(**own))


def _template(builds_of_30_days: int) -> Frames:
    """The month, its jobs in the order of their builds."""
    builds, jobs = year.month(builds_of_30_days)
    assert (jobs["build_id"].to_numpy()[::JOBS] == builds["id"].to_numpy()).all()
    return Frames(builds, jobs)


def _pipelines(builds: pd.DataFrame) -> dict[str, np.ndarray]:
    """More pipelines than the month has."""
    variant = pd.Series(np.arange(len(builds)) % VARIANTS, builds.index).astype(str)
    slugs = builds["pipeline"].astype(str) + "-" + variant
    return {
        "pipeline": slugs.to_numpy(object),
        "pipeline_id": (builds["pipeline_id"].astype(str) + "-" + variant).to_numpy(object),
    }


def _prefixes(created: pd.Series[pd.Timestamp]) -> np.ndarray:
    """The first half of UUIDs of version 7: milliseconds since 1970."""
    ms = created.dt.as_unit("ms").astype("int64")
    return np.array([f"{one:012x}"[:8] + "-" + f"{one:012x}"[8:] + "-7" for one in ms], object)


def _with_prefix(ids: pd.Series[str], prefixes: np.ndarray) -> pd.Series[str]:
    rest = pc.utf8_slice_codeunits(pa.array(ids, pa.large_string(), from_pandas=True), 15)
    whole = pc.binary_join_element_wise(pa.array(prefixes, pa.large_string()), rest, pa.scalar("", pa.large_string()))
    return pd.Series(whole, ids.index, dtype="str")


def fill(place: Location, builds_of_30_days: int, hours: int) -> None:
    """Write the hours, a commit each, and print what each takes."""
    for n in range(hours):
        builds, jobs = hour(builds_of_30_days, n)
        as_of = Moment.of(DAY + pd.Timedelta(hours=n + 1))
        mark = Coverage(Moment.of(DAY - pd.Timedelta(days=60)), as_of, as_of)
        batch = SyncBatch(builds, jobs, as_of, scope="acme", coverage=mark, lists=(year.pipelines_of(builds),))
        began, cpu = time.perf_counter(), time.process_time()
        done = transactions.commit(place, Retention(), batch)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        print(
            f"hour {n}: {done.jobs:,} jobs, {done.bytes / 2**20:.0f} MiB, {seconds:.1f} s, CPU {cpu:.1f} s", flush=True
        )


def filled(builds_of_30_days: int = BUILDS_AN_HOUR, hours: int = HOURS) -> Location:
    """The store, which is kept in the temporary folder."""
    folder = Path(tempfile.gettempdir()) / f"buildframe-busy-day-{hours}-of-{builds_of_30_days}"
    if not (folder / "whole").exists():
        shutil.rmtree(folder, ignore_errors=True)
        fill(Location.of(folder, None), builds_of_30_days, hours)
        (folder / "whole").touch()
    return Location.of(folder, None)


# --- what is measured, each in a fresh process


def newest_builds(place: Location, count: int) -> list[str]:
    """Ids of the newest builds, as those that run."""
    return bf.Store(place.url).builds(columns=["id"], created_from=DAY).head(count)["id"].tolist()


def read(place: Location, what: str, measured: Measured) -> None:
    """Read from the store once."""
    store, begin = bf.Store(place.url), bf.Store(place.url).as_of - dt.timedelta(hours=5)
    pipeline = store.builds(columns=["pipeline"], created_from=begin)["pipeline"].mode()[0]
    hour = {"created_from": begin, "created_to": begin + dt.timedelta(hours=1)}
    sql = f"SELECT queue, avg(run_time_s) AS mean FROM jobs WHERE pipeline = '{pipeline}' GROUP BY queue"
    ways: dict[str, Callable[[], Sized]] = {
        "version": lambda: [store.version],
        "files": lambda: store.files("jobs"),
        "a pipeline": lambda: store.jobs(pipeline=pipeline, created_from=DAY),
        "a pipeline, five columns": lambda: store.jobs(pipeline=pipeline, created_from=DAY, columns=FIVE),
        "an hour": lambda: store.jobs(**hour),
        "an hour, five columns": lambda: store.jobs(**hour, columns=FIVE),
        "an hour of a pipeline": lambda: store.jobs(**hour, pipeline=pipeline),
        "builds of an hour": lambda: store.builds(**hour),
        "sql, a pipeline by queue": lambda: store.sql(sql),
    }
    with measured.running():
        rows = ways[what]()
    measured.note(rows=len(rows))


READS = (
    "version", "files", "a pipeline", "a pipeline, five columns", "an hour", "an hour, five columns",
    "an hour of a pipeline", "builds of an hour", "sql, a pipeline by queue",
)  # fmt: skip


def sync(place: Location, count: int, measured: Measured) -> None:
    """Commit the newest builds, all of which changed."""
    ids = newest_builds(place, count)
    later = {"fetched_at": bf.Store(place.url).as_of + dt.timedelta(minutes=5)}
    builds, jobs = (
        storing._stored(place, name, key, ids).assign(**later) for name, key in (("builds", "id"), ("jobs", "build_id"))
    )
    with measured.running():
        done = transactions.commit(place, Retention(), SyncBatch(builds, jobs, Moment.of(later["fetched_at"])))
    assert done.builds == len(builds) > 0
    measured.note(rows=done.jobs)


def receive(place: Location, batches: Sequence[Sequence[Event]], measured: Measured) -> None:
    """Write batches of deliveries one after the other; only the last one is measured."""
    *before, last = batches
    for events in before:
        bf.Store(place.url).receive(events)
    with measured.running():
        done = bf.Store(place.url).receive(last)
    measured.note(rows=done.jobs)


def deliveries(place: Location, active: int, size: int, batches: int) -> list[list[Event]]:
    """Deliveries of jobs of the newest builds, chosen at random."""
    store = bf.Store(place.url)
    heads = store.builds(created_from=DAY).head(active)
    jobs = store.jobs(created_from=heads["created_at"].min())
    own = jobs[jobs["build_id"].isin(heads["id"]) & (jobs["type"] == "script")].sample(size * batches, random_state=1)
    by_id = heads.set_index("id", drop=False)
    events = [webhooks.parse(receiving._body(by_id.loc[job.build_id], job)) for job in own.itertuples(index=False)]
    return [events[n * size : (n + 1) * size] for n in range(batches)]


class Measured:
    """CPU, seconds, bytes read and written, and peak memory of one block."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")
        before, held, watch = _io(), memory.status("VmRSS"), Stopwatch()
        with watch.running():
            yield
        read, written = (after - at for after, at in zip(_io(), before, strict=True))
        peak = (memory.status("VmHWM") - held) / MIB
        self.note(cpu=watch.cpu, seconds=watch.seconds, read=read / MIB, written=written / MIB, memory=peak)

    def note(self, **figures: float) -> None:
        self.figures |= figures


def _io() -> tuple[int, int]:
    """Bytes that this process has read and written, also from and to the system's cache."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["rchar"]), int(lines["wchar"])


def measure(folder: str, what: str, size: int, batches: int, active: int) -> dict[str, float]:
    """Measure one thing; a size of 0 means a read."""
    place, measured = Location.of(folder, None), Measured()
    if not size:
        read(place, what, measured)
    elif what == "sync":
        sync(place, size, measured)
    else:
        receive(place, deliveries(place, active, size, batches), measured)
    return measured.figures


def in_a_copy(place: Location, what: str, size: int = 0, batches: int = 1, active: int = 10_000) -> None:
    """Measure in a fresh process and in a copy of the store, and print the figures."""
    code = (
        "import json, sys; from tests.benchmarks.busy_day import measure; "
        "print(json.dumps(measure(*sys.argv[1:3], *map(int, sys.argv[3:]))))"
    )
    with receiving.copied(place.url) as copy:
        command = [sys.executable, "-c", code, copy, what, str(size), str(batches), str(active)]
        run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    one = json.loads(run.stdout)
    name = f"{what} {size:,}, batch {batches}" if size else what
    print(f"{name:28} {one['cpu']:7.2f} s CPU {one['seconds']:7.2f} s {one['memory']:7.0f} MiB of memory "
          f"{one['read']:7.1f} read {one['written']:7.1f} written {one['rows']:9,} rows", flush=True)  # fmt: skip


def many_days(days: int, files: int) -> None:
    """Print what a log takes that lists the files of jobs of so many days. The files themselves are not written."""
    with tempfile.TemporaryDirectory() as folder:
        place = Location.of(folder, None)
        table = TableVersion.open_or_create(place, "jobs", Retention().schema("jobs"))
        for n in range(days):
            day = str((DAY - pd.Timedelta(days=n)).date())
            names = (f"day={day}/{time.time_ns():x}-{secrets.token_hex(6)}.parquet" for _ in range(files))
            table.commit(TableChange(table, [DataFile(name, 1_600_000, 10_000, day) for name in names]))
            table = TableVersion(place, "jobs")
        log = Path(folder, "jobs", "_delta_log")
        checkpoint = max(path.stat().st_size for path in log.glob("*.checkpoint.parquet"))
        steps: dict[str, Callable[[], object]] = {
            "open": lambda: TableVersion(place, "jobs"),
            "list files": table.files,
            "prepare to read a day": lambda: table.dataset(str(DAY.date()), str(DAY.date())),
            "prepare to read all days": table.dataset,
        }
        size = sum(path.stat().st_size for path in log.iterdir()) / MIB
        print(f"{days * files:,} files of {days} days: log {size:.0f} MiB, checkpoint {checkpoint / MIB:.1f} MiB")
        for name, step in steps.items():
            watch = Stopwatch()
            with watch.running():
                step()
            print(f"{name:28} {watch.cpu:7.2f} s CPU", flush=True)


def main(quick: bool) -> None:
    many_days(*((21, 10) if quick else (100, 1_020)))
    builds, hours, active = (200, 2, 50) if quick else (BUILDS_AN_HOUR, HOURS, 10_000)
    sizes = (10, 50) if quick else (1_000, 5_000, 20_000)
    place = filled(builds, hours)
    for name in ("builds", "jobs"):
        table = TableVersion.at(place, name)
        assert table is not None
        files = table.files()
        size = sum(one.size for one in files) / MIB
        print(f"{name}: {sum(one.rows for one in files):,} rows, {len(files):,} files, {size:,.0f} MiB", flush=True)
    for what in READS:
        in_a_copy(place, what)
    in_a_copy(place, "sync", active)
    for size in sizes:
        for batches in (1, 4):
            in_a_copy(place, "receive", size, batches, active)


if __name__ == "__main__":
    reporting.run(main)
