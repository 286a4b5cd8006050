"""Measure writes to and reads from a store of ten million jobs in a year.

Changes are brought into a copy, each in a fresh process: through the store, by deltalake's own MERGE, and by writing
the whole table again. Reading is measured beside DuckDB on the same files, which must give the same frame.
"""

from __future__ import annotations

import datetime as dt
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import deltalake
import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

import buildframe as bf
from buildframe import metrics
from buildframe.spec import TABLES
from buildframe.store import frames, retained_columns, transactions
from buildframe.store.delta import TableChange, TableVersion
from buildframe.store.location import Location
from buildframe.store.retained_columns import Retention
from buildframe.store.sync_state import SyncState
from buildframe.store.transactions import SyncBatch
from tests.benchmarks import memory, reporting, summaries, year
from tests.benchmarks.reporting import ROOT, Stopwatch
from tests.benchmarks.summaries import Pair
from tests.benchmarks.year import Frames

MIB = 2**20
PIPELINE = "web"
FIVE = ["id", "state", "queue", "build_created_at", "run_time_s"]
OF_BUILDS = ["id", "state", "pipeline", "created_at", "wall_time_s"]
AT_MOST, AT_MOST_SQL = 1.5, 1.1
SECONDS_AT_MOST = {"nothing, the store": 0.5, "500 builds of 300 days again, the store": 8}
UNITS = {"seconds": "seconds", "CPU": "seconds of CPU", "written": "MiB written", "peak": "MiB of memory at most"}
CREATED = {"builds": "created_at", "jobs": "build_created_at"}

# --- what is brought in


def new(builds_of_30_days: int, count: int) -> Frames:
    """Builds that the store has not, of its last days and of the days after."""
    builds, jobs = year.month(builds_of_30_days)
    first = builds.sort_values("created_at").head(count)
    own = Frames(first, jobs[jobs["build_id"].isin(first["id"])])
    return Frames(
        year.moved(own.builds, "builds", year.MONTHS, year.DAYS - 2),
        year.moved(own.jobs, "jobs", year.MONTHS, year.DAYS - 2),
    )


def reopened(place: Location, count: int, days: int) -> Frames:
    """Builds of the store, spread over so many of its days, that finished again."""
    store = bf.Store(place.url)
    builds = store.builds(columns=["id", "day"]).sort_values(["day", "id"], ignore_index=True)
    nth = builds.groupby("day").cumcount()
    own_days = builds["day"].drop_duplicates().iloc[:days]
    chosen = builds[builds["day"].isin(own_days)].assign(nth=nth).sort_values(["nth", "day"]).head(count)
    ids = chosen["id"].tolist()
    return Frames(
        _finish_again(_stored(place, "builds", "id", ids)), _finish_again(_stored(place, "jobs", "build_id", ids))
    )


def _stored(place: Location, name: str, key: str, ids: list[str]) -> pd.DataFrame:
    table = TableVersion.at(place, name)
    assert table is not None
    declared = [column.name for column in TABLES[name] if column.name in table.schema.names]
    return frames.as_frame(table.dataset().to_table(declared, filter=pc.field(key).isin(ids)))


def _finish_again(frame: pd.DataFrame) -> pd.DataFrame:
    later = pd.Timedelta(days=400)
    return frame.assign(fetched_at=frame["fetched_at"] + later, finished_at=frame["finished_at"] + later)


def newest(place: Location, name: str) -> pd.DataFrame:
    """All rows of a table's newest version by id, whoever wrote it."""
    table = TableVersion.at(place, name)
    assert table is not None
    return frames.as_frame(table.dataset().to_table()).sort_values("id", ignore_index=True)


# --- ways to bring it in


def commit(place: Location, batch: Frames) -> None:
    """Through the store, as a sync whose requests began at its newest state."""
    table = TableVersion.at(place, "builds")
    assert table is not None
    state = SyncState.newest(table)
    as_of = year.as_of(batch.builds) if len(batch.builds) else state.as_of
    transactions.commit(place, Retention(), SyncBatch(*batch, as_of, base_state=state))


def merge(place: Location, batch: Frames) -> None:
    """By deltalake's MERGE: a row of the same day and id is replaced, others are added; none is taken away."""
    for name, rows in _rows(batch).items():
        days = ", ".join(f"'{day}'" for day in pc.unique(rows["day"]).to_pylist())
        same = f"t.day IN ({days}) AND t.day = s.day AND t.id = s.id"  # without its days it reads the whole table
        merging = deltalake.DeltaTable(place.table_url(name)).merge(rows, same, source_alias="s", target_alias="t")
        merging.when_matched_update_all().when_not_matched_insert_all().execute()


def rewrite(place: Location, batch: Frames) -> None:
    """Rewrite each file of both tables, day by day, as the store would write it."""
    for name, rows in _rows(batch).items():
        table = TableVersion.at(place, name)
        assert table is not None
        days = [str(day) for day in pc.unique(rows["day"]).to_pylist()]
        change = TableChange(table)
        for day in sorted({*days, *(file.day for file in table.files() if file.day is not None)}):
            _rewrite_day(change, day, rows.filter(pc.equal(rows["day"], dt.date.fromisoformat(day))))
        table.commit(change)


def _rewrite_day(change: TableChange, day: str, new: pa.Table) -> None:
    own = [file for file in change.table.files() if file.day == day]
    stored = [change.table.read(file) for file in own]
    kept = [rows.filter(pc.invert(pc.is_in(rows["id"], value_set=new["id"].combine_chunks()))) for rows in stored]
    whole = pa.concat_tables([*kept, new.drop_columns(["day"])], promote_options="default")
    change.write(whole.sort_by([("pipeline_id", "ascending"), (CREATED[change.table.name], "descending")]), day)
    change.removed.extend(own)


def _rows(batch: Frames) -> dict[str, pa.Table]:
    """What is stored of them."""
    keeping, builds = Retention(), retained_columns.builds(*batch)
    both = {"builds": builds, "jobs": metrics.with_seconds(batch.jobs)}
    return {
        name: retained_columns.as_table(frame, keeping.schema(name), keeping.excluded_columns(name))
        for name, frame in both.items()
    }


WAYS = {"the store": commit, "MERGE": merge, "rewrite": rewrite}


def measure(way: str, folder: str, batch: str) -> dict[str, float]:
    """In a fresh process: seconds, MiB written, and MiB of memory beyond what was held before."""
    frames, before, held = Frames(*pd.read_pickle(batch)), _size(folder), memory.status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    watch = Stopwatch()
    with watch.running():
        WAYS[way](Location.of(folder, None), frames)
    result = {"seconds": watch.seconds, "CPU": watch.cpu, "written": (_size(folder) - before) / MIB}
    return result | {"peak": (memory.status("VmHWM") - held) / MIB}


def _size(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def in_a_copy(way: str, place: Location, batch: str) -> dict[str, float]:
    """Files of a store are never changed, so that a copy may share them."""
    code = "import json, sys; from tests.benchmarks.storing import measure; print(json.dumps(measure(*sys.argv[1:])))"
    with tempfile.TemporaryDirectory(dir=Path(place.url).parent) as scratch:
        copy = shutil.copytree(place.url, Path(scratch, "copy"), copy_function=os.link)
        command = [sys.executable, "-c", code, way, str(copy), batch]
        run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, float] = json.loads(run.stdout)
    return result


# --- reading


def pairs(place: Location) -> dict[str, Pair]:
    """Reading through the store, and by handwritten code."""
    store = bf.Store(place.url)
    end = store.builds(columns=["created_at"])["created_at"].max().normalize()
    week = {"created_from": end - pd.Timedelta(days=21), "created_to": end - pd.Timedelta(days=14)}
    columns = [column.name for column in TABLES["jobs"] if column.name in Retention().schema("jobs").names]
    found = {
        f"a week of a pipeline, {result}": Pair(
            functools.partial(store.jobs, **week, pipeline=PIPELINE, columns=chosen),
            functools.partial(read_week_directly, store.files("jobs"), *week.values(), chosen or columns),
        )
        for result, chosen in (("all columns", None), ("five columns", FIVE))
    }
    grouped = "SELECT queue, count(*) AS n, avg(run_time_s) AS mean FROM {} GROUP BY queue ORDER BY queue"
    files = ", ".join(f"'{path}'" for path in store.files("jobs"))
    handwritten = grouped.format(f"read_parquet([{files}])")
    found["store.sql, all jobs by queue"] = Pair(
        functools.partial(store.sql, grouped.format("jobs")), functools.partial(by_duckdb, handwritten)
    )
    return found


def read_week_directly(
    files: Sequence[str], start: pd.Timestamp, end: pd.Timestamp, columns: Sequence[str]
) -> pd.DataFrame:
    """What one would write who has the files."""
    listed = ", ".join(f"'{path}'" for path in files)
    chosen = ", ".join(f'"{name}"' for name in columns)
    return by_duckdb(
        f"""SELECT {chosen} FROM read_parquet([{listed}], hive_partitioning = true)
        WHERE day BETWEEN DATE '{start:%Y-%m-%d}' AND DATE '{end:%Y-%m-%d}' AND pipeline = '{PIPELINE}'
        AND build_created_at >= TIMESTAMPTZ '{start}' AND build_created_at < TIMESTAMPTZ '{end}'
        ORDER BY build_created_at DESC"""
    )


def by_duckdb(query: str) -> pd.DataFrame:
    """As a frame with the dtypes of a fetch."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return frames.as_frame(connection.sql(query).to_arrow_table())


def check(pair: Pair) -> None:
    """Fail where the two do not give the same frame; builds of one instant may stand in either order."""
    ours, peer = (_ordered(way()) for way in pair)
    pd.testing.assert_frame_equal(peer, ours, check_dtype=False, rtol=1e-9)


def _ordered(frame: pd.DataFrame) -> pd.DataFrame:
    keys = [name for name in ("build_created_at", "id") if name in frame]
    return frame.sort_values(keys, ignore_index=True) if keys else frame


def _timed(way: Callable[[], object]) -> Stopwatch:
    watch = Stopwatch()
    with watch.running():
        way()
    return watch


def read(place: Location, runs: int) -> None:
    """What reading takes; each pair in turn, once the two agree."""
    store, measured = bf.Store(place.url), dict[str, reporting.Times]()
    for name, pair in pairs(place).items():
        check(pair)
        ours, peer = (functools.partial(_timed, way) for way in pair)
        measured |= reporting.in_turn(runs, {name: ours, f"{name}, handwritten": peer})
    alone = {
        "its version": lambda: _timed(lambda: store.version),
        "builds, five columns, all": lambda: _timed(lambda: store.builds(columns=OF_BUILDS)),
    }
    reporting.show_times(measured | reporting.in_turn(runs, alone))
    for name in pairs(place):
        ratio = summaries.ratio(measured[name], measured[f"{name}, handwritten"])
        reporting.judge(f"{name} / handwritten", ratio, at_most=AT_MOST if "week" in name else AT_MOST_SQL)


def write(place: Location, batches: Mapping[str, Frames], runs: int) -> None:
    """What bringing changes in takes."""
    result: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, batch in batches.items():
            path = str(Path(scratch, "batch.pickle"))
            pd.to_pickle(tuple(batch), path)
            for way in WAYS if len(batch.builds) else ("the store",):
                often = runs if way == "the store" else 1
                result[f"{name}, {way}"] = [in_a_copy(way, place, path) for _ in range(often)]
    for unit in ("seconds", "CPU", "written", "peak"):
        reporting.show(UNITS[unit], {name: [one[unit] for one in all] for name, all in result.items()})
    for name, target in SECONDS_AT_MOST.items():
        if name in result:
            least = min(one["seconds"] for one in result[name])
            reporting.judge(f"{name}, seconds", least, at_most=target)


def main(quick: bool) -> None:
    a_month, months, new_builds, again, days, runs = (
        (60, 1, 20, 20, 10, 2) if quick else (27_200, 13, 3_300, 500, 300, 5)
    )
    place = year.filled(a_month, months)
    jobs = bf.Store(place.url).sql("SELECT count(*) AS n FROM jobs")["n"].iloc[0]
    print(f"{jobs:,} jobs, {_size(place.url) / MIB:,.0f} MiB", flush=True)
    read(place, runs)
    fresh = new(a_month, new_builds)
    batches = {
        "nothing": Frames(fresh.builds.head(0), fresh.jobs.head(0)),
        f"{len(fresh.jobs):,} new jobs": fresh,
        f"{again} builds of {days} days again": reopened(place, again, days),
    }
    year.month.cache_clear()  # MERGE needs the memory
    write(place, batches, min(runs, 3))


if __name__ == "__main__":
    reporting.run(main)
