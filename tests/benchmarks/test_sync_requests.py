"""A sync requests each page about once, also if builds start and end while it lists them."""

from __future__ import annotations

from tests.benchmarks import sync_requests
from tests.benchmarks.sync_requests import MINUTE


def test_a_sync_takes_the_requests_that_its_pages_need() -> None:
    """Builds that ended meanwhile are not counted as missing, which would read the list of ended builds again."""
    ((done, took),) = sync_requests.repeated(35, 15 * MINUTE, sync_requests.LIMIT, times=1)
    assert done.complete
    assert 0.9 < done.requests / sync_requests.computed(35, 15 * MINUTE, took) < 1.4
