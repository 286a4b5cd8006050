"""Measure a receiver: deliveries per second, and batches that it writes to a store of a million jobs.

Deliveries come over HTTP from one client after the other, signed, to the application in a process of its own. Batches
are written as the receiver does: of builds of the store's last day, a third of whose jobs began or ended since.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd

import buildframe as bf
from buildframe import webhooks
from buildframe.receiver.inbox import Inbox
from buildframe.receiver.reduced_bodies import reduce_body
from buildframe.spec import Moment
from buildframe.store import transactions
from buildframe.store.location import Location
from buildframe.store.retained_columns import Retention
from buildframe.store.sync_state import Coverage
from buildframe.store.transactions import SyncBatch
from buildframe.webhooks import Event
from tests.benchmarks import reporting, year
from tests.benchmarks.reporting import ROOT, Stopwatch
from tests.benchmarks.year import Frames

SECRET = "s3cret-of-the-hook"
PAD = "x" * 4_000
"""What makes a delivery as long as those of the sandbox: 8,000 bytes."""


def bodies(store: bf.Store, builds: int, of_each: int) -> list[bytes]:
    """Deliveries of jobs that ended, of the newest builds of a store."""
    heads = store.builds().head(builds)
    jobs = store.jobs(created_from=heads["created_at"].min())
    own = jobs[jobs["build_id"].isin(heads["id"]) & (jobs["type"] == "script")].groupby("build_id").head(of_each)
    by_id = heads.set_index("id", drop=False)
    return [_body(by_id.loc[job.build_id], job) for job in own.itertuples(index=False)]


def _body(build: pd.Series[Any], job: Any) -> bytes:
    ended = build["fetched_at"] + pd.Timedelta(minutes=5)
    url = f"https://api.example.com/v2/organizations/{build['organization']}/pipelines/{build['pipeline']}/builds/1"
    head = {name: _plain(build[name]) for name in ("id", "number", "branch", "commit", "message", "created_at")}
    own = {name: _plain(getattr(job, name)) for name in ("id", "type", "name", "step_key", "command", "created_at")}
    document = {
        "event": "job.finished",
        "build": {**head, "url": url, "state": "running", "meta_data": {"pad": PAD}},
        "job": {**own, "state": "passed", "exit_status": 0, "finished_at": ended.isoformat()},
        "pipeline": {"id": build["pipeline_id"], "slug": build["pipeline"], "description": PAD},
    }
    return json.dumps(document).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, pd.Timestamp):
        return value.isoformat()
    if pd.isna(value):
        return None
    return value.item() if isinstance(value, np.generic) else value


# --- over HTTP


@contextmanager
def copied(folder: str) -> Iterator[str]:
    """A copy of a store: its files are never changed, so that the copy may share them."""
    with tempfile.TemporaryDirectory(dir=Path(folder).parent) as scratch:
        yield shutil.copytree(folder, str(Path(scratch, "copy")), copy_function=os.link)


@contextmanager
def receiver(folder: str) -> Iterator[str]:
    """The command, which writes when many wait."""
    command = [sys.executable, "-m", "buildframe.cli", "receive", folder, "--every", "1h"]
    environment = {**os.environ, "BUILDFRAME_WEBHOOK_TOKEN": SECRET}
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=environment)  # fmt: skip
    assert process.stdout is not None
    try:
        yield (url := process.stdout.readline().split()[-1])
        print(f"written meanwhile: {httpx.get(f'{url}health').json()}")
        print(f"the receiver's memory at most: {_most_memory(process.pid):.0f} MiB")
    finally:
        process.kill()
        process.communicate()


def _most_memory(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def signed(body: bytes) -> dict[str, str]:
    """Headers of a delivery."""
    now = str(int(time.time()))
    made = hmac.new(SECRET.encode(), now.encode() + b"." + body, hashlib.sha256).hexdigest()
    return {"X-Buildkite-Signature": f"timestamp={now},signature={made}"}


def deliver(url: str, result: Sequence[bytes], clients: int) -> tuple[Stopwatch, np.ndarray[Any, Any]]:
    """Send all of them, by so many clients at once; the time of all, and the milliseconds of each."""
    with httpx.Client(limits=httpx.Limits(max_connections=clients)) as http, ThreadPoolExecutor(clients) as pool:
        ready = [(body, signed(body)) for body in result]
        watch = Stopwatch()
        with watch.running():
            answers = list(pool.map(lambda one: http.post(url, content=one[0], headers=one[1]), ready))
    assert {answer.status_code for answer in answers} == {204}
    return watch, np.array([answer.elapsed.total_seconds() * 1000 for answer in answers])


def show_deliveries(folder: str, result: Sequence[bytes]) -> None:
    """Send deliveries to a receiver, and print how many it answers and how long that takes."""
    with copied(folder) as copy, receiver(copy) as url:
        deliver(url, result[:20], 4)
        runs = {clients: deliver(url, result, clients) for clients in (1, 4, 16)}
    for clients, (watch, each) in runs.items():
        p50, p99 = np.percentile(each, (50, 99))
        rate = len(result) / watch.seconds
        print(f"{clients} at once: {rate:,.0f} a second, p50 {p50:.1f} ms, p99 {p99:.1f} ms", flush=True)


# --- onto the disk


def show_disk(folder: str, bodies: Sequence[bytes]) -> None:
    """Store deliveries in an inbox, one after the other and 16 at a time, beside a file that is flushed for each."""
    inbox = Inbox(Path(folder, "inbox.sqlite"), "store")
    inbox.open()
    watches = {"an append and an fsync": Stopwatch(), "the inbox": Stopwatch(), "the inbox, 16 at once": Stopwatch()}
    floor, single, grouped = watches.values()
    with Path(folder, "floor").open("ab", buffering=0) as file, floor.running():
        for body in bodies:
            file.write(body)
            os.fsync(file.fileno())
    with single.running():
        refusals = [inbox.put(0, "job.finished", body).result() for body in bodies]
    with grouped.running():
        for begin in range(0, len(bodies), 16):
            stored = [inbox.put(0, "job.finished", body) for body in bodies[begin : begin + 16]]
            refusals += [one.result() for one in stored]
    assert set(refusals) == {None}
    inbox.stop()
    inbox.close()
    for name, watch in watches.items():
        print(f"{name}: {1_000 * watch.seconds / len(bodies):.2f} ms a delivery, {watch.seconds / floor.seconds:.1f} x")


# --- into the store


def write(folder: str, events: Sequence[Event]) -> Stopwatch:
    """One batch into a store."""
    watch = Stopwatch()
    with copied(folder) as copy, watch.running():
        done = bf.Store(copy).receive(events)
    assert (done.jobs, done.left_out) == (len(events), 0)
    return watch


def minutes(folder: str, events: Sequence[Event], batches: int) -> list[Stopwatch]:
    """Batch after batch into one store, of the same builds each time, as a receiver writes minute after minute."""
    watches = [Stopwatch() for _ in range(batches)]
    with copied(folder) as copy:
        for n, watch in enumerate(watches):
            with watch.running():
                done = bf.Store(copy).receive(events[n::batches])
            assert done.jobs == len(events[n::batches])
    return watches


def filled(folder: Path, builds: int, parts: int) -> bf.Store:
    """A store of one day with so many times so many builds, each part as a sync of its own brought it."""
    for part in range(parts):
        heads, jobs = (year.moved(frame, name, part, 0) for name, frame in _day(builds)._asdict().items())
        as_of = Moment.of(year.as_of(heads) + dt.timedelta(seconds=part))
        mark = Coverage(Moment.of(as_of - dt.timedelta(days=60)), as_of, as_of)
        transactions.commit(
            Location.of(folder, None), Retention(), SyncBatch(heads, jobs, as_of, scope="acme", coverage=mark)
        )
    return bf.Store(folder)


def _day(builds: int) -> Frames:
    """A month's builds as if all were created within some hours of its last day."""
    heads, jobs = year.month(builds)
    created = heads["created_at"]
    heads = heads.assign(created_at=pd.Timestamp("2026-10-31", tz="UTC") + (created - created.min()) / 40)
    at = heads.set_index("id")["created_at"]
    return Frames(heads, jobs.assign(build_created_at=jobs["build_id"].map(at).astype(created.dtype)))


def main(quick: bool) -> None:
    builds, parts, active, sent = (60, 2, 20, 50) if quick else (3_600, 10, 1_000, 5_000)
    with tempfile.TemporaryDirectory() as scratch:
        folder = str(Path(scratch, "store"))
        store = filled(Path(folder), builds, parts)
        count = store.sql("SELECT count(*) AS n FROM jobs")["n"].iloc[0]
        result = bodies(store, active, 8)
        print(f"{count:,} jobs in one day, {len(result):,} deliveries of {len(result[0]):,} bytes", flush=True)
        reduced = [reduce_body(body, personal=False, env=False) for body in result[:sent]]
        show_disk(scratch, reduced)
        show_deliveries(folder, result[:sent])
        events = [webhooks.parse(body) for body in result]
        sizes = [n for n in (100, 1_000, 5_000) if n <= len(events)] or [len(events)]
        reporting.show_times({f"a batch of {n:,}": [write(folder, events[:n]) for _ in range(3)] for n in sizes})
        first, *others = minutes(folder, events, 8)
        reporting.show_times({f"the first of {len(events) // 8:,}": [first], "the seven after it": others})


if __name__ == "__main__":
    reporting.run(main)
