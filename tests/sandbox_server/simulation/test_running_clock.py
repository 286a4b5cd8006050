"""A sandbox with a running clock: each response shows the state at its time, and a kill at any time loses nothing."""

from __future__ import annotations

import datetime as dt
import signal
import subprocess
import sys
import threading
import time
from email.utils import parsedate_to_datetime

import pytest

from buildframe.errors import BadInput
from buildframe.sandbox_server import Sandbox
from buildframe.spec import Moment
from tests.sandbox_server.planted_pipelines import Planted, assert_whole, block, runs_of, step

TINY = {"builds": 60, "days": 2, "seed": 5}
HOUR = dt.timedelta(hours=1)


def until(true):
    """Wait for something that must become true."""
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


def dated(api):
    return parsedate_to_datetime(api("/builds", per_page=1).headers["Date"])


@pytest.mark.long
def test_time_goes_on_and_commits_keep_arriving(api_client):
    with Sandbox(**TINY, speed=7200) as sandbox:
        api = api_client(sandbox)
        first, newest = dated(api), api("/builds").json()[0]
        until(lambda: dated(api) > first + 3 * HOUR)
        until(lambda: api("/builds").json()[0]["id"] != newest["id"])
        until(lambda: api(newest["url"].removeprefix(f"{sandbox.url}/v2")).json()["finished_at"])
        assert_whole(sandbox)


@pytest.mark.long
def test_every_answer_is_of_its_moment(api_client):
    with Sandbox(**TINY, speed=600) as sandbox:
        api, last = api_client(sandbox), sandbox.clock.now()
        for _ in range(20):
            response = api("/builds", per_page=100)
            shown = parsedate_to_datetime(response.headers["Date"])
            assert shown >= last.replace(microsecond=0)
            for build in response.json():
                stamps = [job.get("started_at") for job in build["jobs"]] + [build["created_at"], build["finished_at"]]
                assert all(timestamp(stamp) < shown + dt.timedelta(seconds=1) for stamp in stamps if stamp)
            last = sandbox.clock.now()


def timestamp(stamp):
    return dt.datetime.fromisoformat(stamp.replace(" UTC", "Z"))


def test_a_running_clock_goes_on_and_can_be_moved_forward_only():
    with Sandbox(**TINY, speed=1000) as sandbox:
        first = sandbox.clock.now()
        time.sleep(0.01)
        then = sandbox.clock.now()
        assert then - first >= dt.timedelta(seconds=10)
        assert sandbox.clock.advance(5 * HOUR) - then >= 5 * HOUR
        assert sandbox.clock.now() - then >= 5 * HOUR
        with pytest.raises(BadInput, match="before"):
            sandbox.clock.set(then)


def test_actions_happen_at_the_current_time(api_client):
    with Sandbox(**TINY, speed=3600) as sandbox:
        pipeline = Planted(api_client(sandbox), step("a"), block("b"))
        before = sandbox.clock.now()
        run = pipeline.create()
        assert before.us <= run.created <= sandbox.clock.now().us
        (number,) = sandbox.push("docs")
        build = pipeline.api(f"/organizations/acme/pipelines/docs/builds/{number}").json()
        assert timestamp(build["created_at"]) >= before.replace(microsecond=0)
        until(lambda: pipeline.get(run)["blocked"])


def test_it_goes_on_where_it_stopped(tmp_path):
    path = tmp_path / "world.db"
    with Sandbox(path, **TINY, speed=3600) as sandbox:
        sandbox.clock.advance(HOUR)
        shown = sandbox.clock.now()
    with Sandbox(path) as again:
        stopped = again.clock.now()
        assert stopped >= shown
        time.sleep(0.3)
        assert again.clock.now() == stopped
        assert_whole(again)
    with Sandbox(path, speed=60) as third:
        assert third.clock.now() >= stopped
        until(lambda: third.clock.now() > stopped + dt.timedelta(seconds=20))


def test_no_thread_is_left():
    before = {thread.ident for thread in threading.enumerate()}
    with Sandbox(**TINY, speed=3600):
        assert "buildframe sandbox's clock" in {thread.name for thread in threading.enumerate()}
    until(lambda: {thread.ident for thread in threading.enumerate()} <= before)


RUNS = """
import sys, threading
from buildframe.sandbox_server import Sandbox
sandbox = Sandbox(sys.argv[1], builds=200, days=2, seed=7, speed=20_000)
print(sandbox.clock.now().text(), flush=True)
while True:
    sandbox.push("mobile", 3)
    print(sandbox.clock.now().text(), flush=True)
"""


@pytest.mark.long
def test_it_is_whole_however_often_it_is_killed(tmp_path):
    path, numbers = tmp_path / "world.db", set()
    for lines in (1, 4, 9, 15, 40):
        process = subprocess.Popen([sys.executable, "-c", RUNS, str(path)], stdout=subprocess.PIPE, text=True)
        last_line = [process.stdout.readline().strip() for _ in range(lines)][-1]
        time.sleep(lines / 100)
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        process.stdout.close()
        with Sandbox(path) as again:
            assert again.clock.now() >= Moment.parse(last_line)
            assert_whole(again)
            found = {(run.pipeline_key, run.number) for run in runs_of(again)}
            assert numbers < found
            numbers = found
            again.clock.advance(HOUR)
            assert_whole(again)
