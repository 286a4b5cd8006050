"""Deliveries that are lost, doubled or out of order: the next sync makes the store equal to the service."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path

import pytest

import buildframe as bf
from buildframe.workspace import Workspace
from tests.receiver.running_receiver import equal, line, receiver
from tests.store.user_actions import People

pytestmark = pytest.mark.long

STEP = dt.timedelta(minutes=6)


def live(ci: Workspace, steps: int, chance: random.Random) -> None:
    """Time goes on, and people do what they do."""
    people = People(ci, chance)
    for _ in range(steps):
        ci.sandbox.clock.advance(STEP)
        people.act()


def test_a_sync_heals_what_the_line_did(tmp_path: Path) -> None:
    chance, store = random.Random(1), bf.Store(tmp_path)
    with bf.sandbox(builds=100, days=3, seed=1, cancels_at_once=False) as ci:
        store.sync(ci, since="4d", progress=False)
        for _ in range(2):
            with receiver(tmp_path) as served, line(ci.sandbox, served.url, chance) as way:
                live(ci, 4, chance)
            assert min(way.did[what] for what in ("lost", "late", "twice")) > 0
            assert store.sync(ci, since="4d", progress=False).complete
            equal(ci, store)


def test_syncs_amid_deliveries_come_to_the_same_end(tmp_path: Path) -> None:
    chance, store = random.Random(3), bf.Store(tmp_path)
    with bf.sandbox(builds=100, days=3, seed=3, cancels_at_once=False) as ci:
        store.sync(ci, since="4d", progress=False)
        with receiver(tmp_path, every=0.02) as served, line(ci.sandbox, served.url, chance):
            for _ in range(3):
                live(ci, 3, chance)
                assert store.sync(ci, since="4d", progress=False).complete
        assert served.url
        store.sync(ci, since="4d", progress=False)
        equal(ci, store)
