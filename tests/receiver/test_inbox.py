"""An acknowledged delivery is on disk, and reaches the store once, whatever happens to the receiver."""

from __future__ import annotations

import datetime as dt
import itertools
import os
import random
import resource
import shutil
import socket
import sqlite3
import stat
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

import buildframe as bf
from buildframe import receiver, webhooks
from buildframe.errors import StoreFailed
from buildframe.receiver import server
from buildframe.receiver.inbox import Inbox
from buildframe.receiver.reduced_bodies import reduce_body
from buildframe.spec import Moment
from buildframe.store.retained_columns import Retention
from tests.receiver import concurrent_syncs
from tests.receiver.deliveries import of_job, states, synced
from tests.receiver.running_receiver import SECRET, serving
from tests.refusals import refusal

HEADERS = {"X-Service-Token": SECRET}
LATER = "The delivery cannot be written to disk now. Send it again later."
NOW = 1_800_000_000_000_000


def opened(path: Path, store_id: str = "store-1") -> Inbox:
    inbox = Inbox(path, store_id)
    inbox.open()
    return inbox


def put(inbox: Inbox, *numbers: int) -> list[str | None]:
    stored = [inbox.put(NOW + n, "job.started", b"{%d}" % n * 500) for n in numbers]
    return [one.result(30) for one in stored]


def waiting(inbox: Inbox) -> list[int]:
    return [delivery.received_us - NOW for delivery in inbox.oldest()]


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def close(inbox: Inbox) -> None:
    inbox.stop()
    inbox.close()


def damage_a_body(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-2_000] ^= 8
    path.write_bytes(content)


@pytest.fixture(autouse=True)
def _only_the_owner_writes() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


# --- the database


def test_what_was_put_waits_until_it_is_removed_also_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "inbox.sqlite"
    inbox = opened(path)
    assert put(inbox, *range(5)) == [None] * 5
    inbox.remove(inbox.oldest()[:2])
    close(inbox)
    again = opened(path)
    assert waiting(again) == [2, 3, 4]
    assert put(again, 5) == [None]
    assert [delivery.body for delivery in again.oldest()][-1] == b"{5}" * 500
    again.remove(again.oldest())
    assert waiting(again) == []
    close(again)


def test_each_commit_is_flushed_to_the_disk(tmp_path: Path) -> None:
    """FULL is 2: SQLite flushes the journal, the database, and then the end of the journal."""
    inbox = opened(tmp_path / "inbox.sqlite")
    settings = [inbox._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "journal_mode")]
    assert settings == [2, "truncate"]
    close(inbox)


def test_disk_space_is_released_when_nothing_waits(tmp_path: Path) -> None:
    inbox = opened(tmp_path / "inbox.sqlite")
    put(inbox, *range(300))
    assert inbox.path.stat().st_size > 300 * 1_500
    inbox.remove(inbox.oldest())
    assert inbox.path.stat().st_size < 50_000
    close(inbox)


@pytest.mark.long
def test_files_of_others_in_the_folder_are_not_touched(tmp_path: Path) -> None:
    """Programs write `*.log`, and stores of the same folder have databases of their own."""
    (tmp_path / "app.log").write_text("of another program")
    (tmp_path / "00000000000000000001-aaaaaaaa.log").write_bytes(b"")
    stores = [synced(tmp_path / name) for name in ("one", "two")]  # copies, with the same tables
    folder = tmp_path / "waiting"
    shutil.copytree(tmp_path, folder, ignore=shutil.ignore_patterns("one", "two"))
    for number, store in enumerate(stores):
        with serving(receiver.application(store, [SECRET], every=3600, write_ahead=folder)) as served:
            assert sent(served.url, number) == 204
            kept = shutil.copytree(folder, tmp_path / f"kept{number}")
        assert set(states(store)) == {"build-1", f"build-1/{number}"}
    assert {"app.log", "00000000000000000001-aaaaaaaa.log"} <= set(files(folder))
    with serving(receiver.application(stores[0], [SECRET], write_ahead=kept)) as served:  # has what waits for the other
        assert served.status()["waiting"] == 0
    assert "build-1/1" not in states(stores[0])


def test_a_database_of_another_store_is_refused_and_stays(tmp_path: Path) -> None:
    inbox = opened(tmp_path / "inbox.sqlite")
    put(inbox, 1)
    close(inbox)
    before = inbox.path.read_bytes()
    with pytest.raises(StoreFailed, match="another store"):
        Inbox(inbox.path, "store-2")
    assert inbox.path.read_bytes() == before


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "of-another-program"
    for folder, name in ((tmp_path / "a", "inbox.sqlite"), (tmp_path / "b", "inbox.lock")):
        folder.mkdir()
        (folder / name).symlink_to(target)
        assert f"{name}' is a link" in refusal(Inbox, folder / "inbox.sqlite", "store-1", error=StoreFailed)
        assert not target.exists()
    store = synced(tmp_path / "store")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "store/_deliveries").symlink_to(tmp_path / "elsewhere")
    assert "_deliveries' is a link" in refusal(receiver.application, store, [SECRET], error=StoreFailed)


@pytest.mark.parametrize("name", ["w", "w/inbox.sqlite", "w/inbox.lock", "w/inbox.sqlite-journal"])
def test_what_another_user_could_write_to_is_refused_also_while_the_receiver_runs(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite deletes the files that a journal names."""
    path = tmp_path / "w/inbox.sqlite"
    inbox = opened(path)
    assert put(inbox, 1) == [None]
    with monkeypatch.context() as patch:
        lstat, owner = Path.lstat, os.geteuid() + 1
        status = os.stat_result([*(tmp_path / name).lstat()[:4], owner, *(tmp_path / name).lstat()[5:]])
        patch.setattr(Path, "lstat", lambda self: status if self == tmp_path / name else lstat(self))
        of_another_user = refusal(Inbox, path, "store-1", error=StoreFailed)
        if name != "w/inbox.lock":
            assert_refused_once_replaced(inbox, tmp_path / "copy", 0o600)
    assert put(inbox, 3) == [None]
    (tmp_path / name).chmod((tmp_path / name).stat().st_mode | stat.S_IWGRP)
    of_a_group = refusal(Inbox, path, "store-1", error=StoreFailed)
    if name != "w/inbox.lock":
        assert_refused_once_replaced(inbox, tmp_path / "copy", 0o660 if name == "w/inbox.sqlite" else 0o600)
    close(inbox)
    for said in (of_another_user, of_a_group):
        assert f"{name}'" in said
        assert "--write-ahead" in said


def assert_refused_once_replaced(inbox: Inbox, copy: Path, mode: int) -> None:
    """The database is another file, so its permissions are read again."""
    shutil.copy(inbox.path, copy)
    inbox.path.unlink()
    os.rename(copy, inbox.path)
    inbox.path.chmod(mode)
    assert put(inbox, 2) == [LATER]


def test_a_store_in_which_all_users_can_write_needs_another_folder(tmp_path: Path) -> None:
    store = synced(tmp_path / "store")
    (tmp_path / "store").chmod(0o777)
    with pytest.raises(StoreFailed, match=r"Every user .*--write-ahead"):
        receiver.application(store, [SECRET])
    receiver.application(store, [SECRET], write_ahead=tmp_path / "w")
    (tmp_path / "store").chmod(0o1777)  # as a folder for temporary files
    receiver.application(store, [SECRET])


def test_stores_that_cannot_be_are_refused() -> None:
    path, remote = (refusal(receiver.application, store, [SECRET]) for store in ("ci-history", bf.Store("s3://a/b")))
    assert "Pass buildframe.Store" in path
    assert "--write-ahead" in remote


def test_any_flipped_bit_loses_a_few_deliveries_at_most_and_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = opened(tmp_path / "inbox.sqlite")
    put(inbox, *range(50))
    close(inbox)
    whole, chance, losses = inbox.path.read_bytes(), random.Random(7), []
    for trial in range(60):
        folder = tmp_path / str(trial)
        folder.mkdir()
        place = chance.randrange(8_192, len(whole))  # the first page has the header, the second one maps the others
        path = folder / "inbox.sqlite"
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << chance.randrange(8)]) + whole[place + 1 :])
        flipped = path.read_bytes()
        caplog.clear()
        again = opened(path)
        found = waiting(again)
        assert set(found) <= set(range(50))
        assert put(again, 50) == [None]
        assert waiting(again) == [*found, 50]
        close(again)
        losses.append(50 - len(found))
        aside = list(folder.glob("*-damaged-*.sqlite"))
        if losses[-1]:
            assert "The next sync adds lost ones" in caplog.text
            assert [path.read_bytes() for path in aside] == [flipped]
    assert sum(loss == 1 for loss in losses) > 20
    assert sum(loss > 10 for loss in losses) < 6, losses


def test_one_damaged_page_loses_only_its_own_deliveries(tmp_path: Path) -> None:
    """The first four pages are header, map, and roots of the tables; a page holds at most three of the deliveries."""
    inbox = opened(tmp_path / "inbox.sqlite")
    put(inbox, *range(50))
    inbox.remove(inbox.oldest()[:20])  # so ids begin at 21
    close(inbox)
    whole = inbox.path.read_bytes()
    pages = [page for page in range(4 * 4096, len(whole), 4096) if whole[page] == 13]  # leaves of tables
    assert len(pages) > 10
    for place, page in enumerate(pages):
        damage = (bytes(4096), bytes([13 ^ 1]), bytes([13 ^ 8]))[place % 3]
        inbox.path.write_bytes(whole[:page] + damage + whole[page + len(damage) :])
        again = opened(inbox.path)
        assert len(waiting(again)) >= 27
        close(again)


def test_a_damaged_id_loses_nothing(tmp_path: Path) -> None:
    inbox = opened(tmp_path / "inbox.sqlite")
    put(inbox, *range(50))
    close(inbox)
    content = bytearray(inbox.path.read_bytes())
    last = content.rindex(b"job.started", 0, content.index(b"{49}"))
    number = content.rindex(50, last - 25, last)  # the id is one byte before the header of the row
    content[number] = 18
    inbox.path.write_bytes(content)
    again = opened(inbox.path)
    assert sorted(waiting(again)) == list(range(50))
    assert list(tmp_path.glob("*-damaged-*.sqlite"))
    close(again)


def test_a_copy_that_fails_loses_nothing(tmp_path: Path) -> None:
    inbox = opened(tmp_path / "inbox.sqlite")
    put(inbox, *range(50))
    close(inbox)
    damage_a_body(inbox.path)
    inbox = opened(inbox.path)
    with full_disk(40_000), pytest.raises(sqlite3.Error):
        waiting(inbox)
    assert files(tmp_path) == ["inbox.lock", "inbox.sqlite", "inbox.sqlite-journal"]
    assert put(inbox, 50) == [None]
    assert len(waiting(inbox)) == 50
    assert len(list(tmp_path.glob("inbox-damaged-*.sqlite"))) == 1
    close(inbox)


def test_what_is_no_database_is_renamed_and_the_receiver_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for content in (b"no database", bytes(100_000), b"SQLite format 3\0" + b"\xff" * 9_000):
        folder = tmp_path / str(len(content))
        folder.mkdir()
        (folder / "inbox.sqlite").write_bytes(content)
        caplog.clear()
        inbox = opened(folder / "inbox.sqlite")
        assert put(inbox, 1) == [None]
        close(inbox)
        assert [path.read_bytes() for path in folder.glob("inbox-damaged-*.sqlite")] == [content]
        assert "was damaged" in caplog.text


def test_a_moved_database_is_noticed_before_anything_is_acknowledged(tmp_path: Path) -> None:
    inbox = opened(tmp_path / "inbox.sqlite")
    put(inbox, 1)
    inbox.path.rename(tmp_path / "moved.sqlite")
    assert put(inbox, 2) == [None]
    close(inbox)
    again = opened(inbox.path)
    assert waiting(again) == [2]
    close(again)


def test_a_folder_that_is_away_for_a_while_is_no_damage(tmp_path: Path) -> None:
    inbox = opened(tmp_path / "w/inbox.sqlite")
    put(inbox, 1)
    (tmp_path / "w").rename(tmp_path / "away")
    assert put(inbox, 2) == [LATER]
    (tmp_path / "away").rename(tmp_path / "w")
    assert put(inbox, 3) == [None]
    assert waiting(inbox) == [1, 3]
    assert not list(tmp_path.glob("w/*damaged*"))
    close(inbox)


def test_a_batch_of_a_replaced_database_removes_nothing_else(tmp_path: Path) -> None:
    one, two = opened(tmp_path / "inbox.sqlite"), opened(tmp_path / "inbox.sqlite")
    put(one, 1, 2, 3)
    batch = one.oldest()
    one.path.rename(tmp_path / "moved.sqlite")
    assert put(two, 4, 5, 6, 7) == [None] * 4
    one.remove(batch)
    assert (waiting(one), waiting(two)) == ([4, 5, 6, 7], [4, 5, 6, 7])
    close(one)
    close(two)


def test_of_two_receivers_that_meet_damage_one_replaces_the_database(tmp_path: Path) -> None:
    one, two = opened(tmp_path / "inbox.sqlite"), opened(tmp_path / "inbox.sqlite")
    put(one, *range(40))
    damage_a_body(one.path)
    assert len(waiting(two)) == len(waiting(one)) == 39
    assert put(one, 40) == put(two, 41) == [None]
    assert len(list(tmp_path.glob("*-damaged-*.sqlite"))) == 1
    assert waiting(one)[-2:] == waiting(two)[-2:] == [40, 41]
    close(one)
    close(two)


def test_a_database_is_not_replaced_during_a_commit_of_another_receiver(tmp_path: Path) -> None:
    two = opened(tmp_path / "inbox.sqlite")
    put(two, *range(10))
    damage_a_body(two.path)
    one = opened(two.path)
    with ThreadPoolExecutor(1) as pool:
        with closing(sqlite3.connect(two.path, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute("UPDATE deliveries SET received_us = received_us WHERE id = 1")
            replaced = pool.submit(waiting, one)
            time.sleep(0.3)
            assert not replaced.done()
            database.execute("COMMIT")
        assert len(replaced.result(30)) == 9
    close(one)
    close(two)


def test_each_request_gets_a_response_if_the_database_is_replaced_by_that_of_another_store(tmp_path: Path) -> None:
    one = opened(tmp_path / "inbox.sqlite")
    one.path.rename(tmp_path / "moved.sqlite")
    other = opened(one.path, "store-2")
    for n in (1, 2):
        assert put(one, n) == [LATER]
        assert (one.failures, waiting(other)) == (n, [])
    close(other)
    one.path.unlink()
    assert put(one, 2) == [None]
    assert (one.failures, waiting(one)) == (0, [2])
    close(one)


def test_a_damaged_header_does_not_stop_the_receiver(tmp_path: Path) -> None:
    """Place 18 has the version of the file format for writing, 47 the schema format, 0 the magic, 17 the page size."""
    inbox = opened(tmp_path / "inbox.sqlite")
    put(inbox, 1)
    close(inbox)
    whole = inbox.path.read_bytes()
    for place, bit in [(18, 8), (18, 128), (47, 1), (0, 1), (17, 4)]:
        folder = tmp_path / f"{place}-{bit}"
        folder.mkdir()
        content = bytearray(whole)
        content[place] ^= bit
        (folder / "inbox.sqlite").write_bytes(content)
        again = opened(folder / "inbox.sqlite")
        assert put(again, 2) == [None]
        assert waiting(again)[-1] == 2
        close(again)
        assert [path.read_bytes() for path in folder.glob("*-damaged-*.sqlite")] == [content]


def test_one_receiver_of_a_store_writes_at_a_time(tmp_path: Path) -> None:
    one, two = opened(tmp_path / "inbox.sqlite"), opened(tmp_path / "inbox.sqlite")
    assert (one.take_turn(), two.take_turn(), one.take_turn()) == (True, False, True)
    put(two, 1)
    assert waiting(one) == [1]
    close(one)
    assert two.take_turn()
    close(two)


def test_a_lock_that_is_damaged_is_named(tmp_path: Path) -> None:
    (tmp_path / "inbox.lock").write_bytes(b"no database" * 400)
    inbox = opened(tmp_path / "inbox.sqlite")
    with pytest.raises(StoreFailed, match=r"inbox\.lock' .*delete"):
        inbox.take_turn()
    close(inbox)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    store = synced(tmp_path / "store")
    (tmp_path / "file").touch()
    with pytest.raises(StoreFailed, match=r"file/.* opened: .*--write-ahead"):
        receiver.application(store, [SECRET], write_ahead=tmp_path / "file")


# --- the receiver


def test_what_is_unknown_at_the_end_is_a_failure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The folder is away while the receiver runs, and when it stops."""
    application = receiver.application(synced(tmp_path / "store"), [SECRET], every=3600, write_ahead=tmp_path / "w")
    with serving(application) as served:
        assert sent(served.url, 0) == 204
        (tmp_path / "w").rename(tmp_path / "away")
        health = httpx.get(f"{served.url}health")
        assert (health.status_code, health.json()["waiting"], health.json()["disk_failures"]) == (503, None, 1)
    assert application.state.status()["waiting"] is None
    assert "An unknown number of deliveries stay in " in caplog.text


def test_a_receiver_that_did_not_start_or_may_have_left_deliveries_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(is_started: bool, lost: int, waiting: int | None) -> bool:
        running = SimpleNamespace(started=is_started, run=lambda sockets: None)
        monkeypatch.setattr(server, "server", lambda application: running)
        state = SimpleNamespace(status=lambda: {"lost": lost, "waiting": waiting})
        application: Any = SimpleNamespace(state=state)
        with socket.socket() as listener:
            return server.serve(application, listener)

    cases = [(True, 0, 0), (False, 0, 0), (True, 1, 0), (True, 0, 1), (True, 0, None)]
    assert [fails(*case) for case in cases] == [False, True, True, True, True]


def sent(url: str, number: int) -> int:
    return httpx.post(url, content=of_job(5 + number, number).body, headers=HEADERS, timeout=30).status_code


def test_no_secret_and_no_name_is_on_disk_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    store, folder = synced(tmp_path / "store"), tmp_path / "waiting"
    with serving(receiver.application(store, [SECRET], every=3600, write_ahead=folder)) as served:
        assert sent(served.url, 0) == 204
        content = b"".join(path.read_bytes() for path in folder.iterdir())
        assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert b"build-1/0" in content
    assert not [word for word in (SECRET, "hunter2", "Ada", "ada@example.com") if word.encode() in content]


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Let no file of this process become larger than so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_a_503_and_the_receiver_recovers_without_a_delivery(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = synced(tmp_path / "store")
    with serving(receiver.application(store, [SECRET], every=3600, write_ahead=tmp_path / "w")) as served:
        (path,) = (tmp_path / "w").glob("*.sqlite")
        with full_disk(path.stat().st_size):
            refused = [sent(served.url, number) for number in range(40)]
            assert set(refused[-2:]) == {503}
            health = httpx.get(f"{served.url}health")
            assert health.status_code == 503
            assert health.json()["disk_failures"] == refused.count(503)
            assert health.json()["waiting"] == health.json()["received"] == refused.count(204)
        health = httpx.get(f"{served.url}health")
        assert (health.status_code, health.json()["disk_failures"]) == (200, 0)
    assert caplog.text.count("Deliveries are refused because ") == 1
    assert "Deliveries are accepted again" in caplog.text
    assert len(states(store)) == 1 + refused.count(204)


def test_what_the_store_has_already_is_replayed_without_a_trace(tmp_path: Path) -> None:
    """The receiver died between the store's commit and the removal."""
    store, kept = synced(tmp_path / "store"), tmp_path / "kept"
    with serving(receiver.application(store, [SECRET], every=3600, write_ahead=tmp_path / "w")) as served:
        assert [sent(served.url, number) for number in range(3)] == [204] * 3
        shutil.copytree(tmp_path / "w", kept)
    before, version = store.jobs(), store.version
    with serving(receiver.application(store, [SECRET], write_ahead=kept)) as served:
        served.until(waiting=0, failures=0)
    assert store.version == version
    assert store.jobs().equals(before)


@pytest.mark.long
def test_what_was_received_is_replayed_as_it_was_received(tmp_path: Path) -> None:
    stores = [synced(tmp_path / name) for name in ("one", "two")]
    with serving(receiver.application(stores[0], [SECRET], every=3600)) as served:
        assert [sent(served.url, number) for number in range(3)] == [204] * 3
        shutil.copytree(tmp_path / "one/_deliveries", tmp_path / "two/_deliveries")
    with serving(receiver.application(stores[1], [SECRET])) as served:
        served.until(jobs=3)
    one, two = (store.jobs() for store in stores)
    assert one.sort_values("id", ignore_index=True).equals(two.sort_values("id", ignore_index=True))


@pytest.mark.long
def test_killed_at_any_instant_the_store_gets_all_that_was_answered(tmp_path: Path) -> None:
    chance, store = random.Random(20), synced(tmp_path)
    answered: Counter[str] = Counter()
    lock, numbers = threading.Lock(), iter(range(100_000))

    def deliver(url: str, until: threading.Event) -> None:
        with httpx.Client(timeout=10) as http:
            while not until.is_set():
                with lock:
                    number = next(numbers)
                try:
                    status = http.post(url, content=of_job(5 + number, number).body, headers=HEADERS).status_code
                except httpx.HTTPError:
                    return
                if status == 204:
                    answered[f"build-1/{number}"] += 1

    for _ in range(4):
        over = threading.Event()
        with concurrent_syncs.receiving(tmp_path, "--every", "1s") as (process, served), ThreadPoolExecutor(4) as pool:
            for _ in range(4):
                pool.submit(deliver, served.url, over)
            time.sleep(chance.uniform(0.2, 2.5))
            process.kill()
            over.set()
    with concurrent_syncs.receiving(tmp_path) as (process, served):
        served.until(waiting=0)
        process.terminate()
        assert process.wait(60) == 0
    stored = store.jobs()["id"]
    assert len(answered) > 10
    assert stored.is_unique
    assert set(answered) <= set(stored)


# --- the reduced body


@pytest.fixture(scope="module")
def bodies() -> Iterator[list[bytes]]:
    """Deliveries of a sandbox in which all kinds of things happen."""
    from tests.sandbox_server.webhook_receiver import Receiver, settled

    receiver = Receiver()
    with bf.sandbox(builds=150, days=3, seed=4) as ci:
        ci.sandbox.webhook(receiver.url, token=SECRET)
        ci.pipeline("web").create_build(commit="HEAD", branch="main", env={"KEY": "hunter2"})
        ci.sandbox.clock.advance(dt.timedelta(hours=3))
        settled(ci.sandbox)
    yield [body for _, body in receiver.got]
    receiver.stop()


@pytest.mark.long
def test_the_store_keeps_the_same_of_it(bodies: list[bytes]) -> None:
    with_build = [body for body in bodies if b'"build":' in body]
    assert len(with_build) > 50
    whole = webhooks.frames([parsed(body) for body in with_build])
    for personal, env in itertools.product([False, True], repeat=2):
        excluded = Retention(personal, env).excluded_columns
        reduced = webhooks.frames([parsed(reduce_body(body, personal=personal, env=env)) for body in with_build])
        for table in ("builds", "jobs"):
            one, other = (getattr(frames, table).drop(columns=list(excluded(table))) for frames in (whole, reduced))
            assert one.equals(other), (personal, env, table)


def parsed(body: bytes) -> webhooks.Event:
    return webhooks.parse(body, {"X-Buildkite-Event": "job.started"}, received_at=Moment.from_us(0))


def test_odd_bodies_are_kept_as_they_are() -> None:
    large = b'{"build": {"id": 1e400, "meta_data": {"a": 99999999999999999999999999}}}'
    odd = [large, b'{"build": 7}', b'{"build": null}']
    reduced = [reduce_body(body, personal=False, env=False).replace(b" ", b"") for body in odd]
    assert reduced == [body.replace(b" ", b"") for body in odd]
