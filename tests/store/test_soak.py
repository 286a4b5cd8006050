"""One day of the soak test; `python -m tests.store.soak` runs two weeks."""

from __future__ import annotations

import pytest

import buildframe as bf
from tests.store.soak import Soak

pytestmark = pytest.mark.long


def test_a_store_that_is_synced_by_processes_that_are_killed_comes_to_equal_the_service(tmp_path):
    with bf.sandbox(builds=120, days=4, seed=7, cancels_at_once=False, quota=None) as ci:
        found = Soak(tmp_path / "store", ci, seed=7, kills=0.9).run(10)
    assert found.did["syncs: killed"] > 0
    assert found.did["syncs: complete"] > 1
    assert found.did["people: all"] > 0
    assert found.builds > 100
    assert len(found.versions) > 4
