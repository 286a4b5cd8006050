"""From the bytes of pages to typed frames: this library, `orjson.loads` alone, and `json.loads` + `json_normalize`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson
import pandas as pd
import pyarrow as pa

from buildframe import spec
from buildframe.fetching.decoder import ColumnSelection, PageDecoder
from buildframe.http import protocol, response
from tests.benchmarks import agreement, reporting
from tests.benchmarks.reporting import Stopwatch, median
from tests.benchmarks.world import World

REQUEST = protocol.request_for(spec.list_builds, "acme")
FETCHED_AT = pd.Timestamp("2026-11-01T12:00:00Z")
_HEADERS = {"date": "Sun, 01 Nov 2026 12:00:00 GMT"}


def bodies(pages: Sequence[Path]) -> Iterator[response.Response]:
    """The answers, read from their files one after the other."""
    for page in pages:
        yield response.Response(200, _HEADERS, page.read_bytes())


def new_decoding() -> PageDecoder:
    """Of builds and their jobs, all default columns."""
    return PageDecoder(spec.Build, ColumnSelection("builds"), ColumnSelection("jobs"))


def frames(pages: Sequence[Path], watch: Stopwatch) -> tuple[pd.DataFrame, pd.DataFrame, int]:
    """What this library makes of the pages, and the bytes that its Arrow tables have; reading files is not timed."""
    decoding, tables = new_decoding(), list[tuple[pa.Table, pa.Table | None]]()
    for answer in bodies(pages):
        with watch.running():
            tables.append(decoding.tables(decoding.read(REQUEST, answer)))
    size = sum(part.nbytes for page in tables for part in page if part is not None)
    with watch.running():
        return *decoding.frames(tables), size


def ours(pages: Sequence[Path]) -> Stopwatch:
    """Bytes to both frames."""
    watch = Stopwatch()
    frames(pages, watch)
    return watch


def rows_alone(pages: Sequence[Path]) -> Stopwatch:
    """Only the typed rows of each page, the floor of the above."""
    decoding, watch = new_decoding(), Stopwatch()
    for answer in bodies(pages):
        with watch.running():
            decoding.read(REQUEST, answer)
    return watch


def loads_alone(pages: Sequence[Path]) -> Stopwatch:
    """`orjson.loads`, whose result is dropped page by page."""
    watch = Stopwatch()
    for answer in bodies(pages):
        with watch.running():
            orjson.loads(answer.body)
    return watch


def normalized(pages: Sequence[Path]) -> Stopwatch:
    """`json.loads` and `json_normalize` page by page, and one `concat` for each frame."""
    watch, builds, jobs = Stopwatch(), list[pd.DataFrame](), list[pd.DataFrame]()
    for answer in bodies(pages):
        with watch.running():
            documents = json.loads(answer.body)
            builds.append(agreement.normalized_builds(documents))
            jobs.append(agreement.normalized_jobs(documents))
            del documents
    with watch.running():
        pd.concat(builds, ignore_index=True)
        pd.concat(jobs, ignore_index=True)
    return watch


def check(pages: Sequence[Path]) -> None:
    """Fail where any value of any column differs from json_normalize's."""
    for page in pages:
        builds, jobs, _ = frames([page], Stopwatch())
        wrong = agreement.differences(page.read_bytes(), builds, jobs, FETCHED_AT)
        assert not wrong, f"{page.name}: {wrong}"
    columns = len(spec.TABLES["builds"]) + len(spec.TABLES["jobs"])
    print(f"values of all {columns} columns equal to json_normalize's on {len(pages)} pages")


def main(quick: bool) -> None:
    world, runs, few = (World(400, 30), 2, 2) if quick else (World(10_000, 30), 5, 10)
    with tempfile.TemporaryDirectory() as folder:
        pages = world.write(Path(folder))
        size = sum(page.stat().st_size for page in pages)
        print(f"{world.builds:,} builds, {world.builds * world.jobs:,} jobs, {size / 1e6:,.0f} MB, {len(pages)} pages")
        check(pages)
        some = pages[:few]
        measured = reporting.in_turn(
            runs,
            {
                "buildframe": lambda: ours(pages),
                "typed rows alone": lambda: rows_alone(pages),
                "orjson.loads alone": lambda: loads_alone(pages),
                f"buildframe, {few} pages": lambda: ours(some),
                f"json + json_normalize, {few} pages": lambda: normalized(some),
            },
        )
    reporting.show_times(measured)
    whole, _, loads, part, peer = map(median, measured.values())
    reporting.judge("buildframe / orjson.loads", whole / loads, at_most=0.5)
    reporting.judge("json_normalize / buildframe", peer / part, at_least=10)


if __name__ == "__main__":
    reporting.run(main)
