"""A sandbox in a file that is stopped, killed and opened again; its start and its end."""

from __future__ import annotations

import datetime as dt
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from email.utils import parsedate_to_datetime

import httpx
import pytest

from buildframe.errors import BuildframeError, MissingExtra
from buildframe.sandbox_server import Sandbox
from buildframe.sandbox_server.db.database import Database
from buildframe.sandbox_server.simulation.simulator import Simulator
from tests.refusals import refusal

TINY = {"builds": 60, "days": 2, "seed": 5}
HOUR = dt.timedelta(hours=1)


def everything(sandbox, token):
    headers = {"Authorization": f"Bearer {token}"}
    response = httpx.get(f"{sandbox.url}/v2/builds?per_page=100&include_retried_jobs=true", headers=headers)
    assert response.status_code == 200
    return response.text.replace(sandbox.url, "")


def test_a_file_brings_everything_back(tmp_path):
    path = tmp_path / "world.db"
    with Sandbox(path, **TINY) as first:
        token = first.token()
        first.clock.advance(HOUR)
        seen, truth, now = everything(first, token), first.truth, first.clock.now()
    assert token.encode() not in path.read_bytes()
    with Sandbox(path, seed=99, builds=1) as second:
        assert (everything(second, token), second.truth, second.clock.now()) == (seen, truth, now)


@pytest.mark.long
def test_reopening_does_not_change_what_happens_next(tmp_path):
    path = tmp_path / "world.db"
    with Sandbox(**TINY) as whole:
        token = whole.token()
        for _ in range(12):
            whole.clock.advance(HOUR)
        expected = everything(whole, token)
    for _ in range(12):
        with Sandbox(path, **TINY) as part:
            part.clock.advance(HOUR)
    with Sandbox(path, **TINY) as last:
        assert everything(last, last.token()) == expected


SERVES = """
import datetime as dt, sys
from buildframe.sandbox_server import Sandbox
sandbox = Sandbox(sys.argv[1], builds=300, days=2, seed=5)
print(sandbox.token(), flush=True)
while True:
    sandbox.clock.advance(dt.timedelta(minutes=7))
    print(sandbox.clock.now().text(), flush=True)
"""


@pytest.mark.long
@pytest.mark.parametrize("lines", [3, 40])
def test_a_killed_sandbox_is_whole_when_opened_again(tmp_path, lines):
    path = tmp_path / "world.db"
    process = subprocess.Popen([sys.executable, "-c", SERVES, str(path)], stdout=subprocess.PIPE, text=True)
    token = process.stdout.readline().strip()
    printed = [process.stdout.readline().strip() for _ in range(lines)][-1]
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    process.stdout.close()
    with Sandbox(path) as again, Sandbox(builds=300, days=2, seed=5) as unharmed:
        assert again.clock.now().text() >= printed
        unharmed.clock.set(again.clock.now())
        assert everything(again, token) == everything(unharmed, unharmed.token())
        again.clock.advance(HOUR)
        unharmed.clock.advance(HOUR)
        assert everything(again, token) == everything(unharmed, unharmed.token())


@pytest.mark.long
def test_an_interrupted_advance_leaves_a_whole_world(monkeypatch):
    with Sandbox(**TINY) as sandbox, Sandbox(**TINY) as unharmed:
        whole, calls = Simulator._on_finish, []

        def interrupted(*about):
            calls.append(about)
            if len(calls) == 5:
                raise KeyboardInterrupt
            whole(*about)

        with monkeypatch.context() as patch:
            patch.setattr(Simulator, "_on_finish", interrupted)
            with pytest.raises(KeyboardInterrupt):
                sandbox.clock.advance(6 * HOUR)
        for each in (sandbox, unharmed):
            each.clock.advance(6 * HOUR)
        assert everything(sandbox, sandbox.token()) == everything(unharmed, unharmed.token())


def test_a_write_that_fails_changes_nothing(monkeypatch):
    with Sandbox(**TINY) as sandbox, Sandbox(**TINY) as unharmed:
        token, before = sandbox.token(), sandbox.clock.now()
        seen = everything(sandbox, token)

        def full(*_):
            raise sqlite3.OperationalError("database or disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(Database, "_put", full)
            with pytest.raises(sqlite3.OperationalError):
                sandbox.clock.advance(6 * HOUR)
        assert (everything(sandbox, token), sandbox.clock.now()) == (seen, before)
        for each in (sandbox, unharmed):
            each.clock.advance(6 * HOUR)
        assert everything(sandbox, token) == everything(unharmed, unharmed.token())


@pytest.mark.long
def test_responses_are_whole_while_the_clock_runs(api_client):
    with Sandbox(**TINY) as sandbox:
        api, n_requests = api_client(sandbox), 0
        mover = threading.Thread(target=lambda: [sandbox.clock.advance(HOUR) for _ in range(100)])
        mover.start()
        while mover.is_alive():
            response = api("/builds", per_page=100)
            now = parsedate_to_datetime(response.headers["Date"])
            for build in response.json():
                created = dt.datetime.fromisoformat(build["created_at"].replace(" UTC", "Z"))
                assert created < now + dt.timedelta(seconds=1)
                ended = build["state"] in ("passed", "failed", "canceled")
                assert ended == (build["finished_at"] is not None)
            n_requests += 1
        mover.join()
        assert n_requests > 3


def test_one_file_has_one_sandbox_at_a_time(tmp_path):
    path = tmp_path / "world.db"
    with Sandbox(path, **TINY):
        assert "another sandbox" in refusal(Sandbox, path)
    Sandbox(path).stop()


def test_other_files_are_refused_and_left_alone(tmp_path):
    text, other = tmp_path / "notes.txt", tmp_path / "other.db"
    text.write_text("not a database, but long enough to be taken for one " * 100)
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    before = [text.read_bytes(), sqlite3.connect(other).execute("SELECT name FROM sqlite_master").fetchall()]
    for path in (text, other):
        assert "not a sandbox file" in refusal(Sandbox, path)
    assert [text.read_bytes(), sqlite3.connect(other).execute("SELECT name FROM sqlite_master").fetchall()] == before


def test_several_at_once_and_stopped_twice():
    one, other = Sandbox(**TINY), Sandbox(**TINY)
    assert one.url != other.url
    assert one.url.startswith("http://127.0.0.1:")
    one.stop()
    one.stop()
    assert "stopped" in repr(one)
    with pytest.raises(httpx.ConnectError):
        httpx.get(one.url)
    with pytest.raises(BuildframeError, match="stopped"):
        one.clock.now()
    assert httpx.get(other.url).status_code == 404
    other.stop()


def test_no_thread_is_left_behind():
    def servers():
        return [thread for thread in threading.enumerate() if thread.name == "buildframe sandbox"]

    before = len(servers())
    with Sandbox(**TINY):
        assert len(servers()) == before + 1
    assert len(servers()) == before


@pytest.mark.long
def test_a_program_ends_without_stopping_its_sandbox():
    code = "from buildframe.sandbox_server import Sandbox; s = Sandbox(builds=20, days=1); print(s)"
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - began < 15


def test_it_starts_inside_a_running_event_loop():
    import asyncio

    async def cell():
        with Sandbox(**TINY) as sandbox:
            return httpx.get(f"{sandbox.url}/v2/builds").status_code

    assert asyncio.run(cell()) == 401


def test_no_token_shows(small):
    token = small.token()
    assert token not in repr(small) + repr(vars(small)) + repr(small.truth)


WITHOUT_PACKAGES = """
import sys
from buildframe.errors import MissingExtra
from buildframe.sandbox_server import Sandbox
for missing in ("starlette", "uvicorn", "yaml"):
    sys.modules[missing] = None
    try:
        Sandbox(builds=5, days=1)
    except MissingExtra as why:
        print(why)
    del sys.modules[missing]
"""


@pytest.mark.long
def test_a_missing_package_names_the_extra():
    done = subprocess.run([sys.executable, "-c", WITHOUT_PACKAGES], capture_output=True, text=True, timeout=30)
    message = str(MissingExtra("The sandbox", "sandbox"))
    assert done.stdout.splitlines() == [message] * 3, done.stderr
    assert "buildframe[sandbox]" in message
