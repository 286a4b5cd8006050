"""An acknowledged delivery is on disk, and reaches the store once, whatever happens to the receiver."""

from __future__ import annotations

import datetime as dt
import errno
import os
import random
import shutil
import stat
import struct
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

import buildframe as bf
from buildframe import receiver, webhooks
from buildframe.errors import BadInput, StoreFailed
from buildframe.receiver import write_ahead
from buildframe.receiver.inbox import reduce_body
from buildframe.receiver.write_ahead import Record, WriteAhead
from buildframe.spec import Moment
from buildframe.store.retained_columns import Retention
from tests.receiver import concurrent_syncs
from tests.receiver.deliveries import of_job, states, synced
from tests.receiver.running_receiver import SECRET, serving

HEADERS = {"X-Service-Token": SECRET}


def records(begin: int, end: int) -> list[Record]:
    return [Record(n, "job.started", b"{%d}" % n) for n in range(begin, end)]


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def recovered(folder: Path) -> list[Record]:
    log = WriteAhead(folder)
    found = list(log.recover())
    log.close()
    return found


# --- the log


def test_what_was_appended_is_recovered_until_it_is_removed(tmp_path: Path) -> None:
    log = WriteAhead(tmp_path / "waiting")
    log.append(records(0, 3))
    log.append(records(3, 5))
    log.remove(2)
    log.close()
    assert recovered(log.folder) == records(0, 5), "a segment is deleted as a whole"
    again = WriteAhead(log.folder)
    assert list(again.recover()) == records(0, 5)
    again.append(records(5, 6))
    again.remove(5)
    again.close()
    assert recovered(log.folder) == records(5, 6)
    last = WriteAhead(log.folder)
    last.remove(len(list(last.recover())))
    last.close()
    assert files(log.folder) == []


def test_a_record_that_is_not_whole_is_dropped_and_those_before_it_are_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = WriteAhead(tmp_path)
    log.append(records(0, 2))
    log.close()
    (path,) = files(tmp_path)
    whole = path.read_bytes()
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        caplog.clear()
        found = recovered(tmp_path)
        assert found == records(0, len(found))
        assert len(found) == (1 if end >= len(whole) // 2 else 0)
        assert ("are an incomplete delivery" in caplog.text) == (end not in (0, len(whole) // 2))
    path.write_bytes(whole[:-1] + b"?")
    assert recovered(tmp_path) == records(0, 1)
    path.write_bytes(whole + bytes(4096))  # as a power cut may leave it
    assert recovered(tmp_path) == records(0, 2)


def test_one_record_that_is_damaged_takes_no_other_with_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = WriteAhead(tmp_path)
    log.append(records(0, 3))
    log.close()
    (path,) = files(tmp_path)
    whole = path.read_bytes()
    place = len(whole) // 2
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    assert recovered(tmp_path) == [*records(0, 1), *records(2, 3)]
    assert "is damaged. The next sync adds" in caplog.text


def test_a_file_of_another_version_is_left_and_holds_up_no_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = msgspec.msgpack.encode(["of", "another", "version", 4])
    other = tmp_path / "00000000000000000001-other.log"
    other.write_bytes(struct.pack("<II", len(data), zlib.crc32(data)) + data)
    log = WriteAhead(tmp_path)
    log.append(records(0, 1))
    log.close()
    assert recovered(tmp_path) == records(0, 1)
    assert other.exists()
    assert f"Deliveries in {other} cannot be read and stay there" in caplog.text


def test_disk_space_is_released_while_deliveries_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_ahead, "MAX_SEGMENT_BYTES", 200)
    log = WriteAhead(tmp_path)
    for n in range(100):
        log.append(records(n, n + 1))
        if n >= 10:
            log.remove(1)
        assert len(files(tmp_path)) < 6
    log.remove(10)
    assert sum(path.stat().st_size for path in files(tmp_path)) == 0
    log.close()
    assert files(tmp_path) == []


def test_a_receiver_leaves_the_files_of_another_that_runs(tmp_path: Path) -> None:
    one, two = WriteAhead(tmp_path), WriteAhead(tmp_path)
    one.append(records(0, 1))
    assert list(two.recover()) == []
    two.append(records(1, 2))
    one.close()
    assert list(two.recover()) == records(0, 1)
    two.close()


class FailingOs:
    """The module `os`, in which one call fails. Other named calls, which come after such a failure, fail always."""

    def __init__(self, names: str, at: int, code: int) -> None:
        self._name, *self._others = names.split()
        self._left, self._code = at, code
        self.failed = False

    def __getattr__(self, name: str) -> Any:
        if name in self._others:
            return self._raise
        return self._fail if name == self._name else getattr(os, name)

    def _fail(self, *arguments: Any) -> Any:
        self._left -= 1
        if self._left != 0:
            return getattr(os, self._name)(*arguments)
        if self._name == "write":
            os.write(arguments[0], bytes(arguments[1])[:7])
        if self._others:
            raise OSError(self._code, os.strerror(self._code))
        return self._raise()

    def _raise(self, *_: Any) -> Any:
        self.failed = True
        raise OSError(self._code, os.strerror(self._code))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
@pytest.mark.parametrize("name", ["open", "write", "fsync", "write ftruncate", "fsync ftruncate"])
def test_each_call_that_fails_in_turn_loses_nothing_that_was_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    happened = 0
    for at in range(1, 12):
        folder = tmp_path / f"{name}-{at}"
        log, taken = WriteAhead(folder), []
        failing = FailingOs(name, at, code)
        monkeypatch.setattr(write_ahead, "os", failing)
        for n in range(8):
            try:
                log.append(records(n, n + 1))
            except OSError as why:
                assert why.errno == code  # noqa: PT017
            else:
                taken.append(n)
            if n == 3:
                log.remove(len(taken))
                taken.clear()
        log.close()
        monkeypatch.undo()
        found = [record.received_us for record in recovered(folder)]
        assert set(taken) <= set(found)
        assert len(found) == len(set(found))
        happened += failing.failed
    assert happened


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    store = synced(tmp_path / "store")
    (tmp_path / "file").touch()
    with pytest.raises(StoreFailed, match=r"file' for waiting deliveries cannot be written: .*--write-ahead"):
        receiver.application(store, [SECRET], write_ahead=tmp_path / "file")


def test_an_object_store_needs_a_local_folder() -> None:
    with pytest.raises(
        BadInput, match=r"s3://bucket/x is not a local folder\. Set a persistent local folder .* with --write-ahead"
    ):
        receiver.application(bf.Store("s3://bucket/x"), [SECRET])


# --- the receiver


def sent(url: str, number: int) -> int:
    return httpx.post(url, content=of_job(5 + number, number).body, headers=HEADERS, timeout=30).status_code


def test_no_secret_and_no_name_is_on_disk_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    store, folder = synced(tmp_path / "store"), tmp_path / "waiting"
    with serving(receiver.application(store, [SECRET], every=3600, write_ahead=folder)) as served:
        assert sent(served.url, 0) == 204
        (path,) = files(folder)
        content = path.read_bytes()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert b"build-1/0" in content
    assert not [word for word in (SECRET, "hunter2", "Ada", "ada@example.com") if word.encode() in content]
    assert files(folder) == []


def test_a_full_disk_is_a_503_and_a_line_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = synced(tmp_path)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    failing = FailingOs("none", 1, 0)
    failing.fsync = full  # type: ignore[attr-defined]
    with serving(receiver.application(store, [SECRET], every=3600)) as served:
        with monkeypatch.context() as patch:
            patch.setattr(write_ahead, "os", failing)
            no = httpx.post(served.url, content=of_job(5).body, headers=HEADERS)
            assert (no.status_code, no.headers["Retry-After"]) == (503, "30")
            assert sent(served.url, 0) == 503
            health = httpx.get(f"{served.url}health")
            assert (health.status_code, health.json()["disk_failures"], health.json()["received"]) == (503, 2, 0)
            assert (health.json()["waiting"], health.json()["waiting_bytes"]) == (0, 0)
        assert sent(served.url, 1) == 204
        assert served.status()["disk_failures"] == 0
    assert caplog.text.count("Deliveries are refused because ") == 1
    assert "No space left on device" in caplog.text
    assert "Deliveries are accepted again" in caplog.text
    assert set(states(store)) == {"build-1", "build-1/1"}


@pytest.mark.slow
def test_what_the_store_has_already_is_replayed_without_a_trace(tmp_path: Path) -> None:
    """The receiver died between the store's commit and the removal."""
    store, folder = synced(tmp_path / "store"), tmp_path / "waiting"
    with serving(receiver.application(store, [SECRET], every=3600, write_ahead=folder)) as served:
        assert [sent(served.url, number) for number in range(3)] == [204] * 3
        kept = shutil.copytree(folder, tmp_path / "kept")
    before, version = store.jobs(), store.version
    with serving(receiver.application(store, [SECRET], write_ahead=kept)) as served:
        served.until(received=3, waiting=0)
    assert store.version == version
    assert store.jobs().equals(before)
    assert files(kept) == []


@pytest.mark.slow
def test_what_was_received_is_replayed_as_it_was_received(tmp_path: Path) -> None:
    stores = [synced(tmp_path / name) for name in ("one", "two")]
    folder = tmp_path / "waiting"
    with serving(receiver.application(stores[0], [SECRET], every=3600, write_ahead=folder)) as served:
        assert [sent(served.url, number) for number in range(3)] == [204] * 3
        kept = shutil.copytree(folder, tmp_path / "kept")
    with serving(receiver.application(stores[1], [SECRET], write_ahead=kept)) as served:
        served.until(jobs=3)
    one, two = (store.jobs() for store in stores)
    assert one.sort_values("id", ignore_index=True).equals(two.sort_values("id", ignore_index=True))


@pytest.mark.slow
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
    assert files(tmp_path / "_deliveries") == []


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


@pytest.mark.slow
@pytest.mark.parametrize("personal", [False, True])
@pytest.mark.parametrize("env", [False, True])
def test_the_store_keeps_the_same_of_it(bodies: list[bytes], personal: bool, env: bool) -> None:
    retention = Retention(personal, env)
    with_build = [body for body in bodies if b'"build":' in body]
    assert len(with_build) > 50
    for table in ("builds", "jobs"):
        frames = [
            getattr(webhooks.frames([parsed(body) for body in some]), table).drop(
                columns=list(retention.excluded_columns(table))
            )
            for some in (with_build, [reduce_body(body, personal=personal, env=env) for body in with_build])
        ]
        assert frames[0].equals(frames[1])


def parsed(body: bytes) -> webhooks.Event:
    return webhooks.parse(body, {"X-Buildkite-Event": "job.started"}, received_at=Moment.from_us(0))


@pytest.mark.parametrize(
    "body",
    [b'{"build": {"id": 1e400, "meta_data": {"a": 99999999999999999999999999}}}', b'{"build": 7}', b'{"build": null}'],
)
def test_odd_bodies_are_kept_as_they_are(body: bytes) -> None:
    assert reduce_body(body, personal=False, env=False).replace(b" ", b"") == body.replace(b" ", b"")
