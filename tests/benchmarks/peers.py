"""Builds and jobs from HTTP to Parquet files: this library, and dlt's REST source with its filesystem destination."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import buildframe as bf
from tests.benchmarks import reporting
from tests.benchmarks.reporting import Stopwatch, median
from tests.benchmarks.server import Server, Settings
from tests.benchmarks.world import PAGE, World

os.environ |= {"RUNTIME__DLTHUB_TELEMETRY": "false", "RUNTIME__LOG_LEVEL": "ERROR"}  # before dlt is imported

import dlt
from dlt.sources.rest_api import rest_api_source

TOKEN = "an-invented-token"


def ours(server: Server, world: World) -> Stopwatch:
    """`history` and two files."""
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        with bf.connect("acme", base_url=server.url, token=TOKEN) as ci, watch.running():
            builds, jobs = ci.history()
            bf.save(Path(folder) / "builds.parquet", builds)
            bf.save(Path(folder) / "jobs.parquet", jobs)
        _check(world, Path(folder), "builds.parquet", "jobs.parquet")
    return watch


def theirs(server: Server, world: World) -> Stopwatch:
    """A pipeline of dlt with its defaults, but with lists inside of jobs left as they are, as we leave them."""
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        destination = dlt.destinations.filesystem(bucket_url=f"{folder}/out")
        pipeline = dlt.pipeline("ci", f"{folder}/work", destination=destination, dataset_name="ci")
        with watch.running():
            pipeline.run(_source(server), loader_file_format="parquet")
        _check(world, Path(folder) / "out" / "ci", "builds/*.parquet", "builds__jobs/*.parquet")
    return watch


def _source(server: Server) -> Any:
    endpoint = {
        "path": "organizations/acme/builds",
        "params": {"per_page": PAGE, "include_retried_jobs": "true"},
        "paginator": "header_link",
    }
    return rest_api_source(
        {
            "client": {"base_url": f"{server.url}/v2/", "auth": {"type": "bearer", "token": TOKEN}},
            "resources": [{"name": "builds", "max_table_nesting": 1, "endpoint": endpoint}],
        }
    )


def _check(world: World, folder: Path, builds: str, jobs: str) -> None:
    found = [sum(pq.read_metadata(path).num_rows for path in folder.glob(files)) for files in (builds, jobs)]
    assert found == [world.builds, world.builds * world.jobs], found


def main(quick: bool) -> None:
    world, runs = (World(100, 30), 1) if quick else (World(3_000, 30), 5)
    print(f"{world.builds:,} builds, {world.builds * world.jobs:,} jobs, answered at once")
    with Server(Settings(world)) as server:
        candidates = {"buildframe": lambda: ours(server, world), "dlt": lambda: theirs(server, world)}
        measured = reporting.in_turn(runs, candidates)
    reporting.show_times(measured)
    reporting.judge("dlt / buildframe", median(measured["dlt"]) / median(measured["buildframe"]), at_least=10)


if __name__ == "__main__":
    reporting.run(main)
