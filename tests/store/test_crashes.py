"""Crashes of real processes: kill -9 at random times, a full disk, a read-only folder."""

from __future__ import annotations

import io
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from buildframe.errors import StoreFailed
from buildframe.store import transactions
from buildframe.store.delta import TableVersion
from buildframe.store.location import Location
from buildframe.store.store import Store
from tests import preloaded, programs
from tests.store.batches import PLAIN, Build, StoredContent, batch, expected, flaky, stored_content

pytestmark = pytest.mark.long

ROOT = Path(__file__).parent.parent.parent
TABLES = ("builds", "jobs", "flaky_tests")
KILLS = int(os.environ.get("KILLS", "10"))


def builds_of(step: int) -> list[Build]:
    """What the sync of this number brings: some builds again, some for the first time."""
    return [Build(key, at=step, day=key % 5, jobs=tuple(range(key % 4))) for key in range(step % 7, 30 + step, 3)]


def after(steps: int) -> StoredContent:
    """The content after so many syncs."""
    found = {build.key: build for step in range(steps) for build in builds_of(step)}
    return expected(found.values())


def write(folder: str, steps: Sequence[int]) -> None:
    """Sync after sync, each said when it is done."""
    for step in steps:
        listed = flaky({"a": step, "b": step // 3}, step + 1)
        transactions.commit(Location.of(folder, None), PLAIN, batch(builds_of(step), step + 1, lists=(listed,)))
        print(step, flush=True)


def warm_up() -> None:
    """Load what a commit needs."""
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        write(folder, [0])


IMPORTS = "from tests.store import test_crashes;"


def killed(call: str, said: Path, lines: int, seconds: float) -> list[str]:
    """Kill a process so many seconds after it has said `ready` or more lines; return what it said after `ready`."""

    def kill(process: int) -> None:
        while said.read_text().count("\n") < lines:
            os.kill(process, 0)  # fails if it has ended
            time.sleep(0.005)
        time.sleep(seconds)
        os.kill(process, signal.SIGKILL)

    said.write_text("")
    out = f"import sys; from tests.store import test_crashes; sys.stdout = open({str(said)!r}, 'a', buffering=1)"
    program = f"{out}; test_crashes.warm_up(); print('ready'); test_crashes.{call}"
    assert preloaded.run(program, [], os.environ, 60, kill).returncode == -signal.SIGKILL
    return said.read_text().split()[1:]


def test_kills_at_random_instants_leave_whole_versions(tmp_path: Path) -> None:
    instants, known, kills = random.Random(7), 0, 0
    was: dict[int, StoredContent] = {}
    while kills < KILLS:
        call = f"write({str(tmp_path)!r}, range({known}, {known + 40}))"
        lines = 1 + kills % 2  # a machine that has much to do gets something done
        said = killed(call, tmp_path / "said.txt", lines, instants.uniform(0.0, 0.4))
        kills += 1
        done = int(said[-1]) + 1 if said else known
        if not (tmp_path / "builds" / "_delta_log" / f"{1:020d}.json").exists():
            continue
        now = stored_content(Store(tmp_path))
        assert now in (after(done), after(done + 1)), "neither what was said to be done, nor the next one too"
        known = done if now == after(done) else done + 1
        was[Store(tmp_path).version] = now
    assert known >= KILLS // 2
    for version, then in was.items():
        assert stored_content(Store(tmp_path, as_of=version)) == then
    _clean_leaves_what_is_named(tmp_path, after(known))


def _clean_leaves_what_is_named(folder: Path, content: StoredContent) -> None:
    """Files that no version names are deleted when they are a day old, and not before."""
    files = set(folder.glob("**/*.parquet"))
    assert Store(folder).clean("0d") == 0
    yesterday = time.time() - 2 * 86_400
    for file in files:
        os.utime(file, (yesterday, yesterday))
    orphan = folder / "jobs" / "day=2026-10-01" / "of-a-killed-sync.parquet"
    shutil.copy(next((folder / "jobs").glob("**/*.parquet")), orphan)
    os.utime(orphan, (yesterday, yesterday))
    fresh = orphan.with_name("of-a-sync-under-way.parquet")
    shutil.copy(orphan, fresh)
    assert Store(folder).clean("0d") >= 1
    assert not orphan.exists()
    assert fresh.exists()
    assert stored_content(Store(folder)) == content


# --- a disk that is full


def fill_up(folder: str, room: Sequence[int]) -> None:
    """Syncs into a small disk that has less and less ballast, until one is done; each must leave all as it was."""
    ballast = Path(folder, "ballast")
    _until_one_is_done(folder, room, lambda free: _fill(ballast, free), ballast.unlink)


def write_small_files(folder: str, room: Sequence[int]) -> None:
    """Syncs that may write files only up to some size, until one is done."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]

    def limit(bytes: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (bytes, hard))

    _until_one_is_done(folder, room, limit, lambda: limit(hard))


def _fill(ballast: Path, free: int) -> None:
    there = os.statvfs(ballast.parent)
    ballast.write_bytes(b"\0" * max(0, there.f_bavail * there.f_frsize - free))


def _until_one_is_done(folder: str, room: Sequence[int], narrow, widen) -> None:  # type: ignore[no-untyped-def]
    write(f"{folder}/ci", range(3))
    store, said = Path(folder, "ci"), set()
    for free in room:
        files = set(store.glob("**/*.parquet"))
        narrow(free)
        try:
            write(str(store), [3])
            break
        except StoreFailed as why:
            said.add(str(why).rsplit(": ", 1)[-1])
        finally:
            widen()
        assert stored_content(Store(store)) == after(3)
        assert set(store.glob("**/*.parquet")) - files <= _named(store), "files were left that no version names"
    else:
        raise AssertionError("no sync was done, whatever the room")
    assert stored_content(Store(store)) == after(4)
    print("refused:", len(said), *sorted(said), sep="\n")


def _named(store: Path) -> set[Path]:
    """Files that the newest version of a table names, though no sync may have been done with it."""
    return {store / name / file.path for name in TABLES for file in _table(store, name).files()}


def _table(store: Path, name: str) -> TableVersion:
    table = TableVersion.at(Location.of(store, None), name)
    assert table is not None
    return table


def _outcome(run: subprocess.CompletedProcess[str]) -> str:
    assert run.returncode == 0, run.stderr
    assert "refused:" in run.stdout
    return run.stdout


def test_files_that_may_not_grow(tmp_path: Path) -> None:
    pytest.importorskip("resource")
    call = f"test_crashes.write_small_files({str(tmp_path)!r}, [1, 600, 1_200, 2_500, 5_000, 9_000, 20_000, 10**6])"
    assert "File too large" in _outcome(preloaded.run(IMPORTS + call, [], os.environ, 120))


def test_a_full_disk(tmp_path: Path) -> None:
    mount = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    script = f"mount -t tmpfs -o size=2m tmpfs {tmp_path} && exec "
    try:
        subprocess.run([*mount, script + "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        programs.skip_or_fail("no disk can be mounted here: unshare --map-root-user --mount fails")
    room = [*range(0, 200_000, 8_192), 10**6]
    program = f"{IMPORTS} test_crashes.fill_up({str(tmp_path)!r}, {room})"
    command = [*mount, script + '"$@"', "sh", sys.executable, "-c", program]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert "No space left on device" in _outcome(run)


# --- what else a folder can be


def test_a_folder_that_may_not_be_written() -> None:
    folder = Path(tempfile.mkdtemp())
    write(str(folder), [0])
    for one in (folder, *folder.rglob("*")):
        one.chmod(0o555 if one.is_dir() else 0o444)
    try:
        become_nobody = "__import__('os').getuid() or __import__('os').setuid(65534)"  # root may write anywhere
        program = f"{IMPORTS} test_crashes.warm_up(); {become_nobody}; test_crashes.write({str(folder)!r}, [1])"
        said = preloaded.run(program, [], os.environ, 120).stderr
    finally:
        for one in (folder, *folder.rglob("*")):
            one.chmod(0o755)
    last = said.splitlines()[-1]
    assert last.startswith("buildframe.errors.StoreFailed: The store at ")
    assert "ermission denied" in last
    assert stored_content(Store(folder)) == after(1)
    shutil.rmtree(folder)
