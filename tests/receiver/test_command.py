"""The command `receive` in a process of its own, which is stopped and killed."""

from __future__ import annotations

import datetime as dt
import random
import time
from pathlib import Path

import httpx
import pytest

import buildframe as bf
from buildframe.cli import main
from buildframe.sandbox_server import Patience
from tests.receiver import concurrent_syncs
from tests.receiver.deliveries import of_job, states, synced
from tests.receiver.running_receiver import SECRET, equal
from tests.refusals import refusal


@pytest.mark.long
def test_what_waits_is_written_when_it_is_ended(tmp_path: Path) -> None:
    store = synced(tmp_path)
    with concurrent_syncs.receiving(tmp_path, "--every", "1h") as (process, served):
        for number in range(3):
            body = of_job(5, number).body
            assert httpx.post(served.url, content=body, headers={"X-Service-Token": SECRET}).status_code == 204
        assert states(store) == {}
        process.terminate()
        assert process.wait(60) == 0
    assert len(states(store)) == 4


@pytest.mark.long
def test_killed_at_any_instant_it_leaves_a_whole_store_and_a_sync_brings_the_rest(tmp_path: Path) -> None:
    chance, store = random.Random(5), bf.Store(tmp_path)
    hasty = Patience(attempts=2, wait=0.01)
    with bf.sandbox(builds=60, days=2, seed=5, cancels_at_once=False, patience=hasty) as ci:
        store.sync(ci, since="4d", progress=False)
        for _ in range(2):
            with concurrent_syncs.receiving(tmp_path, "--every", "1s") as (process, served):
                hook = ci.sandbox.webhook(served.url, token=SECRET)
                before, deadline = store.version, time.monotonic() + 60
                while store.version == before:
                    ci.sandbox.clock.advance(dt.timedelta(minutes=4))
                    time.sleep(0.2)
                    assert time.monotonic() < deadline
                time.sleep(chance.uniform(0.8, 1.2))
                process.kill()
                ci.sandbox.remove_webhook(hook)
            builds, jobs = store.builds(), store.jobs()
            assert builds["id"].is_unique
            assert jobs["id"].is_unique
            assert jobs["build_id"].isin(builds["id"]).all()
        assert store.sync(ci, since="4d", progress=False).complete
        equal(ci, store)


@pytest.mark.long
@pytest.mark.parametrize("is_well_again", [True, False])
def test_what_failed_is_tried_once_more_when_it_is_ended(tmp_path: Path, is_well_again: bool) -> None:
    store = synced(tmp_path)
    log, away = tmp_path / "builds" / "_delta_log", tmp_path / "away"
    with concurrent_syncs.receiving(tmp_path, "--every", "1s") as (process, served):
        log.rename(away)
        assert httpx.post(served.url, content=of_job(5).body, headers={"X-Service-Token": SECRET}).status_code == 204
        deadline = time.monotonic() + 60
        while not served.status()["failures"]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        if is_well_again:
            away.rename(log)
        process.terminate()
        assert process.wait(60) == (0 if is_well_again else 3)
    if not is_well_again:
        away.rename(log)
        assert states(store) == {}
        with concurrent_syncs.receiving(tmp_path) as (process, served):
            served.until(waiting=0, jobs=1)
            process.terminate()
            assert process.wait(60) == 0
    assert len(states(store)) == 2


def test_what_it_lacks_is_a_line_and_a_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for token, words in {"": "BUILDFRAME_WEBHOOK_TOKEN is not set", SECRET: "`buildframe sync "}.items():
        monkeypatch.setenv("BUILDFRAME_WEBHOOK_TOKEN", token)
        assert main(["receive", str(tmp_path / "none")]) == 1
        assert words in capsys.readouterr().err


def test_a_port_or_a_wait_that_is_none_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    messages = {f"--port={port}": f"'{port}' is not a port" for port in ("65536", "-1", "http")}
    for option, words in (messages | {"--every=often": "not a valid duration"}).items():
        assert refusal(main, ["receive", str(tmp_path), option], error=SystemExit) == "2"
        assert words in capsys.readouterr().err
