"""Change one random bit of a data file of a store many times, and count what its readers notice.

Run with a folder, which is filled from a sandbox if it is empty, and the number of bits:
`python -m tests.benchmarks.flipped_bits history 300`.
"""

from __future__ import annotations

import collections
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd

import buildframe as bf
from buildframe.errors import BuildframeError

TABLES = ("builds", "jobs", "pipelines", "members", "flaky_tests")


def readers_of(store: bf.Store, table: str) -> dict[str, Callable[[], pd.DataFrame]]:
    return {
        "method": getattr(store, table),
        "sql": lambda: store.sql(f"SELECT * FROM {table}"),
    }


def outcome(read: Callable[[], pd.DataFrame], expected: pd.DataFrame) -> str:
    try:
        return "same values" if read().equals(expected) else "other values"
    except BuildframeError:
        return "error"


def main(folder: str, count: int) -> None:
    store = bf.Store(folder)
    if not Path(folder).exists():
        with bf.sandbox(builds=400, days=14) as ci:
            print(store.sync(ci, since="14d", suites=ci.sandbox.suites(), personal=True, progress=False))
    expected = {(table, name): read() for table in TABLES for name, read in readers_of(store, table).items()}
    files = [(table, Path(path)) for table in TABLES for path in store.files(table)]
    sizes = [path.stat().st_size for _, path in files]
    chance = random.Random(44)
    counts: collections.Counter[str] = collections.Counter()
    for table, path in chance.choices(files, sizes, k=count):
        data, status = path.read_bytes(), path.stat()
        changed = bytearray(data)
        bit = chance.randrange(8 * len(data))
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        for name, read in readers_of(store, table).items():
            counts[f"{name}: {outcome(read, expected[table, name])}"] += 1
        path.write_bytes(data)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    print(dict(sorted(counts.items())))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
