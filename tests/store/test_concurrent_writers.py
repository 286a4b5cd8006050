"""Two writers of one store at the same time: both succeed, and the store contains the rows of both."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from deltalake.table import TableAlterer

from buildframe.errors import StoreFailed
from buildframe.store import transactions
from buildframe.store.delta import TableVersion
from buildframe.store.location import Location
from buildframe.store.retained_columns import Retention
from buildframe.store.store import Store
from buildframe.store.sync_state import Coverage, SyncState
from tests import preloaded
from tests.store.batches import PLAIN, Build, at_instant, batch, dies_at, expected, flaky, moment, stored_content

STEPS = 6


def _builds(writer: int, step: int) -> list[Build]:
    """Some that both writers bring, and some of its own."""
    shared = [Build(key, at=2 * step + writer, day=key % 3, jobs=(writer, 5)) for key in range(6)]
    return [*shared, Build(100 + 10 * writer + step, at=step, day=step % 3)]


def write(folder: str, writer: int) -> None:
    """What one of the writers does."""
    mark = None
    for step in range(STEPS):
        at = 2 * step + writer
        basis, mark = mark, Coverage(moment(-100), moment(at), moment(at))
        listed = flaky({f"of {writer}": step}, at, suite=f"suite-{writer}")
        made = batch(_builds(writer, step), at, lists=(listed,), scope=f"acme/{writer}", coverage=mark, base=basis)
        transactions.commit(Location.of(folder, None), PLAIN, made)


def _check(folder: Path) -> None:
    wanted: dict[int, Build] = {}
    for step in range(STEPS):
        for writer in (0, 1):
            wanted.update({build.key: build for build in _builds(writer, step)})
    store = Store(folder)
    assert stored_content(store) == expected(wanted.values())
    for writer in (0, 1):
        assert list(store.flaky_tests(f"suite-{writer}")["instances"]) == [STEPS - 1]
        assert len(store.flaky_tests(f"suite-{writer}", history=True)) == STEPS
        assert store.covers[f"acme/{writer}"] == (moment(-100), moment(2 * (STEPS - 1) + writer))


@pytest.mark.long
def test_two_threads(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def run(writer: int) -> None:
        try:
            write(str(tmp_path), writer)
        except BaseException as why:
            failures.append(why)

    threads = [threading.Thread(target=run, args=(writer,)) for writer in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    _check(tmp_path)


TWO_PROCESSES = """
import os, sys
from tests.store.test_concurrent_writers import write

other = os.fork()
write(sys.argv[1], 0 if other else 1)
if other:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]))
"""


@pytest.mark.long
def test_two_processes(tmp_path: Path) -> None:
    run = preloaded.run(TWO_PROCESSES, [str(tmp_path)], os.environ, 120)
    assert run.returncode == 0, run.stderr
    _check(tmp_path)


def test_a_mark_worked_out_before_another_sync_does_not_claim_what_that_one_did_not_know(tmp_path: Path) -> None:
    place = Location.of(tmp_path, None)

    def sync(since: int, until: int, basis: Coverage | None) -> None:
        mark = Coverage(moment(since), moment(until), moment(until))
        transactions.commit(place, PLAIN, batch([], until, scope="acme", coverage=mark, base=basis))

    sync(0, 10, None)
    basis = Coverage(moment(0), moment(10), moment(10))
    with at_instant(3, lambda: sync(0, 20, basis)):
        sync(-50, 10, basis)  # fills in what lies before, as of the sync that it belongs to
    assert Store(tmp_path).covers == {"acme": (moment(-50), moment(10))}


def _overtake_always(place: Location) -> Callable[[], None]:
    def overtake() -> None:
        builds = TableVersion.at(place, "builds")
        assert builds is not None
        change = transactions.TableChange(builds)
        builds.commit(change, SyncState.newest(builds).to_json())

    return overtake


@pytest.mark.long
def test_one_that_is_overtaken_again_and_again_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    place = Location.of(tmp_path, None)
    transactions.commit(place, PLAIN, batch([Build(1, 1)], 1))
    files = set(tmp_path.glob("builds/**/*.parquet"))
    true, overtake = TableVersion.commit, _overtake_always(place)

    def late(table: TableVersion, *change: object) -> int:
        if table.name == "builds" and change[0].started_paths:  # type: ignore[attr-defined]
            overtake()
        return true(table, *change)  # type: ignore[arg-type]

    with (
        mock.patch.object(TableVersion, "commit", late),
        mock.patch.object(transactions, "_MAX_ATTEMPTS", 3),
        pytest.raises(StoreFailed, match=r"Other writers changed the store at .* 3 attempts"),
    ):
        transactions.commit(place, PLAIN, batch([Build(1, 2)], 2))
    assert set(tmp_path.glob("builds/**/*.parquet")) == files
    assert stored_content(Store(tmp_path)) == expected([Build(1, 1)])


@pytest.mark.parametrize("name", ["builds", "jobs"])
def test_a_commit_whose_answer_was_lost_is_known_for_ones_own(tmp_path: Path, name: str) -> None:
    """An error after a commit that succeeded: a failed checkpoint, or a lost response of an object store."""
    import deltalake

    place, true, lost = Location.of(tmp_path, None), deltalake.DeltaTable.create_write_transaction, []

    def loses_its_answer(table: deltalake.DeltaTable, *args: object, **kwargs: object) -> None:
        true(table, *args, **kwargs)  # type: ignore[arg-type]
        if table.table_uri.rstrip("/").endswith(name) and not lost:
            lost.append(name)
            raise deltalake.exceptions.CommitFailedError("Version already exists")

    with mock.patch.object(deltalake.DeltaTable, "create_write_transaction", loses_its_answer):
        done = transactions.commit(place, PLAIN, batch([Build(1, 1)], 1))
    assert lost == [name]
    assert done.builds == 1
    assert stored_content(Store(tmp_path)) == expected([Build(1, 1)])


@pytest.mark.parametrize("step", ["restore", "add_columns"])
def test_a_commit_between_two_steps_of_a_transaction_is_not_taken_for_its_own(tmp_path: Path, step: str) -> None:
    """Before it commits rows, a transaction may undo what another one left, or add columns."""
    import deltalake

    place = Location.of(tmp_path, None)
    owner = deltalake.DeltaTable if step == "restore" else TableAlterer
    transactions.commit(place, PLAIN, batch([Build(1, 1, jobs=(1,))], 1))
    with dies_at(1, of="commit"):  # after that of the jobs
        transactions.commit(place, PLAIN, batch([Build(1, 2, jobs=(2,))], 2))
    true = getattr(owner, step)
    others = [Build(2, 3, jobs=(3,))]

    def before_another(*args: object, **kwargs: object) -> None:
        true(*args, **kwargs)
        if others:
            transactions.commit(place, Retention(personal=True), batch([others.pop()], 3))

    with mock.patch.object(owner, step, before_another):
        transactions.commit(place, Retention(personal=True), batch([Build(3, 4, jobs=(4,))], 4))
    assert others == []
    assert stored_content(Store(tmp_path)) == expected(
        [Build(1, 1, jobs=(1,)), Build(2, 3, jobs=(3,)), Build(3, 4, jobs=(4,))]
    )


def test_what_is_interrupted_after_its_commit_keeps_its_files(tmp_path: Path) -> None:
    place, true = Location.of(tmp_path, None), TableVersion.commit

    def interrupted(table: TableVersion, *change: object) -> int:
        version = true(table, *change)  # type: ignore[arg-type]
        if table.name == "builds":
            raise KeyboardInterrupt
        return version

    with mock.patch.object(TableVersion, "commit", interrupted), pytest.raises(KeyboardInterrupt):
        transactions.commit(place, PLAIN, batch([Build(1, 1)], 1))
    assert stored_content(Store(tmp_path)) == expected([Build(1, 1)])
