"""Measure summaries of 1, 10 and 100 million jobs of a store: seconds, memory, bytes read.

Each is measured in a fresh process, over the Parquet files that the store lists (`large` makes the stores). Results are
kept line by line, so that a run that was stopped goes on where it was, and tables are printed from them. What ran out
of memory or took longer than the limit is reported as such.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import buildframe as bf
from buildframe import metrics
from tests.benchmarks import large, memory, reporting
from tests.benchmarks.reporting import ROOT, Stopwatch
from tests.benchmarks.world import END

MIB = 2**20
MEMORY = 4
"""GiB that an engine may use: DuckDB's `memory_limit`, the Java heap of Spark."""
MOST = 12 * 2**30
"""Bytes with which a process is stopped, as others use the machine, too."""
SECONDS = 900
PIPELINE, BRANCH = "web", "main"
FIVE = ["id", "state", "queue", "build_created_at", "run_time_s"]
RESULTS = Path(tempfile.gettempdir(), "buildframe-scaling.jsonl")
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")

# --- what is measured


class Tables(NamedTuple):
    """The tables of a store as an engine has them."""

    builds: Any
    jobs: Any


_A_WEEK: dict[str, Any] = {"start": END - dt.timedelta(days=7), "end": END}

OF_JOBS: dict[str, Callable[[Any], Any]] = {
    "percentiles, by queue": lambda jobs: metrics.percentiles(jobs, by="queue"),
    "percentiles, by pipeline and step": lambda jobs: metrics.percentiles(jobs, by=["pipeline", metrics.step]),
    "percentiles, by build": lambda jobs: metrics.percentiles(jobs, by="build_id"),
    "percentiles, of all": lambda jobs: metrics.percentiles(jobs, of=metrics.run_time),
    "trend": lambda jobs: metrics.trend(jobs, of=metrics.run_time),
    "retry_rate": lambda jobs: metrics.retry_rate(jobs, by="queue"),
    "flips": metrics.flips,
    "outcomes_by_commit": metrics.outcomes_by_commit,
    "waste": lambda jobs: metrics.waste(jobs, by="pipeline"),
    "concurrency": metrics.concurrency,
    "concurrency, a week": lambda jobs: metrics.concurrency(jobs, **_A_WEEK),
    "queue_depth": metrics.queue_depth,
    "queue_depth, a week": lambda jobs: metrics.queue_depth(jobs, **_A_WEEK),
    "utilization": metrics.utilization,
    "contention": metrics.contention,
    "cost": lambda jobs: metrics.cost(jobs, {"*": 0.01}, by="pipeline"),
    "objective": lambda jobs: metrics.objective(jobs, metrics.queue_time, "5m", 0.95, by="queue"),
    "objective, by day": lambda jobs: metrics.objective(jobs, metrics.queue_time, "5m", 0.95, freq="1D"),
    "machine_time": metrics.machine_time,
    "active_time": metrics.active_time,
    "parallelism": metrics.parallelism,
    "idle_time": metrics.idle_time,
    "blocked_time": metrics.blocked_time,
    "time_to_first_failure": metrics.time_to_first_failure,
    "time_to_pass": metrics.time_to_pass,
    "change_points, run time": lambda jobs: metrics.change_points(jobs, metrics.run_time, by="queue"),
}
OF_BUILDS: dict[str, Callable[[Any], Any]] = {
    "success_rate": lambda builds: metrics.success_rate(builds, by="pipeline"),
    "success_trend": metrics.success_trend,
    "throughput": metrics.throughput,
    "change_points": metrics.change_points,
    "outages": lambda builds: metrics.outages(builds, branch=BRANCH),
    "recovery_time": lambda builds: metrics.recovery_time(builds, branch=BRANCH),
    "red_share": lambda builds: metrics.red_share(builds, branch=BRANCH),
    "remaining_time": metrics.remaining_time,
}
OF_HALVES: dict[str, Callable[[Tables, Tables], Any]] = {
    "percentile_change": lambda then, now: metrics.percentile_change(then.jobs, now.jobs, metrics.run_time, "queue"),
    "job_failure_change": lambda then, now: metrics.job_failure_change(then.jobs, now.jobs, "queue"),
    "build_success_change": lambda then, now: metrics.build_success_change(then.builds, now.builds, by="pipeline"),
}
"""Of the older half of the days, and of the newer."""
READS: dict[str, Callable[[bf.Store], Any]] = {
    "opening": lambda store: [store.version],
    "list of the files": lambda store: store.files("jobs"),
    "sql, all jobs by queue": lambda store: store.sql("SELECT queue, count(*), avg(run_time_s) FROM jobs GROUP BY 1"),
    "jobs, a week of a pipeline": lambda store: _a_week(store, None),
    "jobs, a week of a pipeline, five columns": lambda store: _a_week(store, FIVE),
}


def _a_week(store: bf.Store, columns: list[str] | None) -> Any:
    return store.jobs(created_from=_A_WEEK["start"], created_to=END, pipeline=PIPELINE, columns=columns)


# --- engines


def in_duckdb(store: bf.Store, scratch: str) -> Tables:
    """Relations of the store."""
    import duckdb

    connection = duckdb.connect()
    connection.execute(f"SET TimeZone = 'UTC'; SET temp_directory = '{scratch}'; SET enable_progress_bar = false")
    connection.execute(f"SET memory_limit = '{MEMORY}GB'")
    return Tables(*(store.relation(name, connection) for name in Tables._fields))


def in_polars(store: bf.Store, scratch: str) -> Tables:
    """Lazy frames over the listed files, in its streaming engine."""
    import polars as pl

    pl.Config.set_engine_affinity("streaming")

    return Tables(*(pl.scan_parquet(store.files(name), hive_partitioning=True) for name in Tables._fields))


def in_spark(store: bf.Store, scratch: str) -> Tables:
    """Frames of a Spark of this machine, with two cores."""
    from tests import spark_session

    settings = {"spark.driver.memory": f"{MEMORY}g", "spark.local.dir": scratch, "spark.sql.shuffle.partitions": "16"}
    frames: Mapping[str, Any] = store.spark(spark_session.get_session(**settings))
    return Tables(*(frames[name] for name in Tables._fields))


ENGINES: dict[str, Callable[[bf.Store, str], Any]] = {
    "duckdb": in_duckdb,
    "polars": in_polars,
    "spark": in_spark,
    "store": lambda store, scratch: store,
}


def ways(engine: str, days: int) -> dict[str, Callable[[Any], Any]]:
    """What is measured of an engine, by name; each takes what `ENGINES` gives."""
    if engine == "store":
        return dict(READS)
    of_jobs = {name: lambda tables, of=of: of(tables.jobs) for name, of in OF_JOBS.items()}
    of_builds = {name: lambda tables, of=of: of(tables.builds) for name, of in OF_BUILDS.items()}
    of_halves = {name: lambda tables, of=of: of(*_halves(tables, days)) for name, of in OF_HALVES.items()}
    return of_jobs | of_builds | of_halves


def _halves(tables: Tables, days: int) -> tuple[Tables, Tables]:
    middle = END - dt.timedelta(days=days) / 2
    halves = [_split(frame, middle) for frame in tables]
    return Tables(*(old for old, _ in halves)), Tables(*(new for _, new in halves))


def _split(frame: Any, middle: dt.datetime) -> tuple[Any, Any]:
    """Return the rows created before a time, and the others."""
    if hasattr(frame, "collect_schema"):
        import polars as pl

        is_new = pl.col("created_at") >= middle
        return frame.filter(~is_new), frame.filter(is_new)
    condition = f"created_at >= CAST('{middle.isoformat()}' AS TIMESTAMP WITH TIME ZONE)"
    if hasattr(frame, "sparkSession"):
        condition = f"created_at >= CAST('{middle.isoformat()}' AS TIMESTAMP)"
    return frame.filter(f"NOT ({condition})"), frame.filter(condition)


# --- in a process of its own


def print_measurement(engine: str, url: str, name: str, scratch: str, days: str) -> None:
    """Print what it takes, or what went wrong, as JSON."""
    try:
        result: dict[str, Any] = measure(engine, url, name, scratch, int(days))
    except Exception as why:  # whatever it is, it is a result
        result = {"failed": f"{type(why).__name__}: {' '.join(str(why).split())}"[:200]}
    print(json.dumps(result), flush=True)


def measure(engine: str, url: str, name: str, scratch: str, days: int) -> dict[str, float]:
    """Measure in a fresh process. Memory is the kernel's own figure; `watched` measures that of Spark."""
    opening = Stopwatch()
    with opening.running():
        tables = ENGINES[engine](bf.Store(url), scratch)
    Path("/proc/self/clear_refs").write_text("5")
    before, watch = Used.now(os.getsid(0)), Stopwatch()
    with watch.running():
        found = ways(engine, days)[name](tables)
        rows = found.count() if hasattr(found, "sparkSession") else len(found)  # which is when Spark computes it
    used = Used.now(os.getsid(0))
    result = {"seconds": watch.seconds, "opening": opening.seconds, "rows": rows}
    return result | {
        "cpu": used.cpu - before.cpu,
        "read": used.read - before.read,
        "peak": memory.status("VmHWM") / MIB,
    }


class Used(NamedTuple):
    """Of the processes of a session up to now: seconds of CPU, and MiB that they have read.

    `read` counts the bytes of read calls, from disk or not; if there is a Java process, only its calls.
    """

    cpu: float
    read: float

    @classmethod
    def now(cls, session: int) -> Used:
        processes = list(of_session(session))
        cpu = sum(sum(map(int, process.fields[11:15])) for process in processes) / _TICK
        readers = [one for one in processes if one.command == "java"] or processes
        return cls(cpu, sum(map(_read, readers)) / MIB)


class Process(NamedTuple):
    """A process: its folder, its command, and what follows that in its line of `stat`."""

    folder: Path
    command: str
    fields: list[str]

    @property
    def memory(self) -> int:
        """Bytes that it holds."""
        with contextlib.suppress(OSError):
            return int((self.folder / "statm").read_text().split()[1]) * _PAGE
        return 0


def of_session(session: int) -> Iterator[Process]:
    """All processes that one has begun, and itself."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            before, _, after = (folder / "stat").read_text().rpartition(")")
            if int(after.split()[3]) == session:
                yield Process(folder, before.partition("(")[2], after.split())


def _read(process: Process) -> int:
    line = (process.folder / "io").read_text().splitlines()[0]
    return int(line.removeprefix("rchar: "))


# --- from outside


_CODE = "import sys; from tests.benchmarks.scaling import print_measurement; print_measurement(*sys.argv[1:])"


def watched(engine: str, url: str, name: str, days: int, seconds: float = SECONDS) -> dict[str, Any]:
    """Return what a fresh process measures, or why it failed, and the most MiB that it wrote to disk."""
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryFile("w+") as out:
        command = [sys.executable, "-c", _CODE, engine, url, name, scratch, str(days)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            peak, disk, stopped = _until_over(process, scratch, seconds)
        finally:
            _stop(process)
        out.seek(0)
        lines = out.read().splitlines()
    result = json.loads(lines[-1]) if lines and not stopped else {"failed": stopped or f"ended by {process.returncode}"}
    beside = {"peak": peak, "disk": disk}
    return {**result, **beside} if engine == "spark" else {**beside, **result}


def _until_over(process: subprocess.Popen[bytes], scratch: str, seconds: float) -> tuple[float, float, str | None]:
    """Most MiB of memory of all of its processes, and of files; and why it is to be stopped."""
    began, peak, disk = time.monotonic(), 0, 0
    while process.poll() is None:
        peak = max(peak, sum(one.memory for one in of_session(process.pid)))
        disk = max(disk, _size(scratch))
        if peak > MOST:
            return peak / MIB, disk / MIB, f"more than {MOST / 2**30:.0f} GiB of memory"
        if time.monotonic() - began > seconds:
            return peak / MIB, disk / MIB, f"more than {seconds:.0f} s"
        time.sleep(0.1)
    return peak / MIB, disk / MIB, None


def _size(folder: str) -> int:
    with contextlib.suppress(OSError):  # files come and go
        return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    return 0


def _stop(process: subprocess.Popen[bytes]) -> None:
    for one in of_session(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(one.folder.name), signal.SIGKILL)
    process.wait()


# --- results


Key = tuple[str, int, str]
Results = dict[Key, dict[str, Any]]


def kept(path: Path) -> Results:
    """What was measured before, by engine, number of days, and name; the last of each."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {(one["engine"], one["days"], one["name"]): one for one in map(json.loads, lines)}


def add(path: Path, key: Key, result: Mapping[str, Any]) -> None:
    """One more line."""
    with path.open("a") as file:
        file.write(json.dumps({**dict(zip(("engine", "days", "name"), key, strict=True)), **result}) + "\n")


def tables(results: Results) -> Iterator[str]:
    """Markdown: of each engine what each size takes, how much more that is each time, and more of the largest."""
    for engine in dict.fromkeys(key[0] for key in results):
        sizes = sorted({days for of, days, _ in results if of == engine})
        growth = [f"x{more // less}" for less, more in itertools.pairwise(sizes)]
        names = list(dict.fromkeys(name for of, _, name in results if of == engine))
        head = [*map(_days, sizes), *(f"time {x}" for x in growth), *(f"memory {x}" for x in growth), *MORE.values()]
        yield f"\n{engine}: seconds and MiB of memory; beside them, of {_days(sizes[-1])}\n"
        yield _row(["", *head])
        yield _row(["---"] * (1 + len(head)))
        for name in names:
            result = [results.get((engine, days, name)) for days in sizes]
            yield _row(
                [
                    name,
                    *map(_format_result, result),
                    *_growth(result, "seconds"),
                    *_growth(result, "peak"),
                    *_more(result[-1]),
                ]
            )


MORE = {"cpu": "CPU s", "read": "MiB read", "disk": "MiB spilled", "rows": "rows"}


def _days(days: int) -> str:
    return f"{days} day{'s' * (days > 1)}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _format_result(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return ""
    return f"failed: {one['failed']}" if "failed" in one else f"{one['seconds']:.2f} s, {one['peak']:,.0f} MiB"


def _more(one: Mapping[str, Any] | None) -> list[str]:
    return [f"{one[name]:,.0f}" if one is not None and name in one else "" for name in MORE]


def _growth(result: Sequence[Mapping[str, Any] | None], name: str) -> list[str]:
    pairs = itertools.pairwise(result)
    return [f"{more[name] / less[name]:.1f}" if _both(less, more) else "" for less, more in pairs]


def _both(less: Any, more: Any) -> bool:
    return all(one is not None and "failed" not in one for one in (less, more))


# --- the command


def run(engine: str, sizes: Sequence[int], only: str, path: Path, seconds: float, a_day: int, again: bool) -> None:
    """Measure what is not there yet; of all sizes the smallest first."""
    for days in sizes:
        url = large.filled(days, a_day).url
        for name in ways(engine, days):
            if only not in name or ((engine, days, name) in kept(path) and not again):
                continue
            result = watched(engine, url, name, days, seconds)
            add(path, (engine, days, name), result)
            more = dict(zip(MORE, _more(result), strict=True))
            print(f"{engine}, {_days(days)}, {name}: {_format_result(result)} {more}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=ENGINES, default="duckdb")
    parser.add_argument("--sizes", default=",".join(map(str, large.SIZES)), help="days of a million jobs")
    parser.add_argument("--only", default="", help="measure what has this in its name")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="stop what takes longer")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where lines are kept")
    parser.add_argument("--again", action="store_true", help="measure results again that are already stored")
    parser.add_argument("--table", action="store_true", help="only print the stored results")
    parser.add_argument("--quick", action="store_true", help="try it on little data: whether it works")
    arguments = parser.parse_args()
    print(
        f"== scaling{' (quick: these figures mean nothing)' if arguments.quick else ''}\n{reporting.machine()}",
        flush=True,
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what it has started ends with it
    path = arguments.results
    if arguments.quick:
        path = Path(tempfile.mkdtemp(), "results.jsonl")
        run(arguments.engine, (1, 2), arguments.only, path, arguments.seconds, 300, arguments.again)
    elif not arguments.table:
        sizes = [int(size) for size in arguments.sizes.split(",")]
        run(arguments.engine, sizes, arguments.only, path, arguments.seconds, large.A_DAY, arguments.again)
    print("\n".join(tables(kept(path))))
    if arguments.quick:
        shutil.rmtree(path.parent)


if __name__ == "__main__":
    main()
