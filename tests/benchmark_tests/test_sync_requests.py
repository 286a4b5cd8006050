"""A sync requests each page about once, also if builds start and end while it lists them."""

from __future__ import annotations

import pytest

from tests.benchmarks import sync_requests
from tests.benchmarks.sync_requests import MINUTE

pytestmark = pytest.mark.long


def test_a_sync_takes_the_requests_that_its_pages_need() -> None:
    """Builds that ended meanwhile are not counted as missing, which would search the list of ended builds.

    On a busy machine the count may come late, and then they are. That happened in 2 of 13 syncs, so one of three is
    enough.
    """
    assert any(0.9 < _requests_per_computed() < 1.4 for _ in range(3))


def _requests_per_computed() -> float:
    ((done, took),) = sync_requests.repeated(35, 15 * MINUTE, sync_requests.LIMIT, times=1)
    assert done.complete
    return done.requests / sync_requests.computed(35, 15 * MINUTE, took)
