"""Deliveries of the builds that `tests.store.batches` creates, too."""

from __future__ import annotations

import datetime as dt
import functools
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import buildframe as bf
from buildframe import webhooks
from buildframe.spec import Moment
from buildframe.store import transactions
from buildframe.store.location import Location
from buildframe.store.sync_state import Coverage
from buildframe.webhooks import Event
from tests import worlds
from tests.store.batches import BEGIN, PLAIN, Build, batch, moment

URL = "https://api.example.com/v2/organizations/{}/pipelines/{}/builds/{}"
SENT = Moment(2026, 11, 5, tzinfo=dt.UTC)
"""Default time of receipt: later than all times in the deliveries."""


def stamp(second: float) -> str:
    return Moment.of(BEGIN + dt.timedelta(days=30, seconds=second)).text()


def event(
    name: str = "build.running",
    key: int = 1,
    *,
    job: dict[str, Any] | None = None,
    organization: str = "acme",
    pipeline: dict[str, Any] | None = None,
    received_at: Moment = SENT,
    **build: Any,
) -> Event:
    """One of the build of this key, created on the first day, which is what it says besides."""
    head = {
        "id": f"build-{key}",
        "number": key,
        "url": URL.format(organization, "web", key),
        "state": "running",
        "created_at": Moment.of(BEGIN + dt.timedelta(seconds=key)).text(),
        "creator": {"id": "u-1", "name": "Ada Example", "email": "ada@example.com"},
        "env": {"SECRET": "hunter2"},
    }
    whole = {
        "event": name,
        "build": head | build,
        "pipeline": {"id": f"pipeline-{key % 2}", "slug": "web"} if pipeline is None else pipeline,
        **({} if job is None else {"job": {"type": "script", "state": "running", **job}}),
    }
    return webhooks.parse(json.dumps(whole).encode(), received_at=received_at)


def of_job(
    second: float, number: int = 0, key: int = 1, state: str = "running", received_at: Moment = SENT, **more: Any
) -> Event:
    """Return the event of a job that started in this second."""
    own = {"id": f"build-{key}/{number}", "started_at": stamp(second), "state": state}
    return event(f"job.{state}", key, job=own | more, received_at=received_at)


def synced(
    folder: Path | str,
    *builds: Build,
    at: int = 0,
    scope: str = "acme",
    options: dict[str, str] | None = None,
    **more: Any,
) -> bf.Store:
    """Return a store after a sync in this second. A first sync without more is made once, and copied."""
    if isinstance(folder, Path) and not (options or more or any(folder.glob("*"))):
        shutil.copytree(_first(builds, at, scope), folder, dirs_exist_ok=True)
    else:
        _sync(folder, builds, at, scope, options, more)
    return bf.Store(folder, storage_options=options)


@functools.cache
def _first(builds: tuple[Build, ...], at: int, scope: str) -> Path:
    folder = Path(tempfile.mkdtemp(dir=os.environ[worlds.FOLDER]))
    _sync(folder, builds, at, scope, None, {})
    return folder


def _sync(
    folder: Path | str,
    builds: tuple[Build, ...],
    at: int,
    scope: str,
    options: dict[str, str] | None,
    more: dict[str, Any],
) -> None:
    mark = Coverage(moment(-100), moment(at), moment(at))
    transactions.commit(
        Location.of(folder, options), PLAIN, batch(builds, at, scope=scope, coverage=mark, base=mark, **more)
    )


def states(store: bf.Store) -> dict[str, str]:
    """Return the states of builds and jobs by id."""
    both = [frame.set_index("id")["state"].to_dict() for frame in (store.builds(), store.jobs())]
    return both[0] | both[1]
