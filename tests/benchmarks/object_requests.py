"""Count the requests that a store in an object store takes, with the S3 server of moto."""

from __future__ import annotations

import datetime as dt
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import boto3
import httpx

import buildframe as bf
from buildframe import webhooks
from buildframe.store import delta
from buildframe.store.location import Location
from tests.benchmarks import busy_day, receiving, reporting

KEYS = {"AWS_ACCESS_KEY_ID": "INVENTED", "AWS_SECRET_ACCESS_KEY": "invented", "AWS_REGION": "us-east-1"}
ROWS = 300  # of a file, instead of 10,000, so that few rows have as many files


@contextmanager
def server(log: Path) -> Iterator[str]:
    """The server, which writes a line for each request."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    with log.open("w") as lines:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", port]
        process = subprocess.Popen(command, stdout=lines, stderr=lines)
        try:
            for _ in range(300):
                try:
                    httpx.get(f"http://127.0.0.1:{port}")
                    break
                except httpx.TransportError:
                    time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def counted(log: Path, what: str, store: bf.Store, action: Callable[[], object]) -> None:
    """Print the requests of an action by method, those of the log of versions apart."""
    files, before = set(store.files("jobs")), len(log.read_text().splitlines())
    action()
    lines = log.read_text().splitlines()[before:]
    found = [match.groups() for line in lines if (match := re.search(r"([A-Z]+) (/\S+) HTTP", line))]
    kinds = Counter(
        (method, "log" if "_delta_log" in path or "list-type" in path else "files") for method, path in found
    )
    counts = ", ".join(f"{count} {' '.join(kind)}" for kind, count in sorted(kinds.items()))
    print(f"{what:32} {counts}; {len(set(store.files('jobs')) - files)} new files of jobs", flush=True)


def main(quick: bool) -> None:
    hours = 2 if quick else 4
    delta._MAX_ROWS = ROWS
    with tempfile.TemporaryDirectory() as folder, server(log := Path(folder, "log")) as url:
        keys = {"aws_access_key_id": "INVENTED", "aws_secret_access_key": "invented", "region_name": "us-east-1"}
        boto3.client("s3", endpoint_url=url, **keys).create_bucket(Bucket="bucket")
        options = {**KEYS, "AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true"}
        place = Location.of("s3://bucket/history", options)
        busy_day.fill(place, 200, hours)
        store = bf.Store(place.url, storage_options=options)
        print(f"{len(store.files('jobs'))} files of jobs, {len(store.files('builds'))} of builds", flush=True)
        bodies = receiving.bodies(store, 40, 6)
        events = [webhooks.parse(body) for body in bodies]
        counted(log, "open: version", store, lambda: store.version)
        for n in range(3):
            of_batch = events[n::3]
            counted(
                log,
                f"batch {n + 1}: {len(of_batch)} deliveries",
                store,
                lambda of_batch=of_batch: store.receive(of_batch),
            )  # type: ignore[misc]
        hour = {"created_from": busy_day.DAY, "created_to": busy_day.DAY + dt.timedelta(hours=1)}
        counted(log, "jobs of an hour, five columns", store, lambda: store.jobs(**hour, columns=busy_day.FIVE))


if __name__ == "__main__":
    reporting.run(main)
