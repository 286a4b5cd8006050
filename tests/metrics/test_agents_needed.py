"""How long jobs of a queue would wait with each number of agents."""

from __future__ import annotations

import numpy as np
import pytest

from buildframe.metrics.columns import NAT, Integers
from buildframe.metrics.waits_by_agents import Waits, busy_hours, most_at_once, summarize_waits, try_numbers

MINUTE = 60_000_000


def minutes(*values: float | None) -> Integers:
    return np.array([NAT if value is None else round(value * MINUTE) for value in values])


def waits(*rows: tuple[float | None, float | None, float | None], end: float = 100) -> Waits:
    """Waits by when jobs were runnable, started and finished, in minutes."""
    runnable, started, finished = zip(*rows, strict=True) if rows else ((), (), ())
    return Waits(minutes(*runnable), minutes(*started), minutes(*finished), round(end * MINUTE))


def test_a_canceled_wait_missed_the_limit_and_a_short_open_one_is_undecided() -> None:
    summary = summarize_waits(
        waits(
            (0, 1, 4),  # in time
            (0, 5, 9),  # just in time
            (0, 6, 9),  # late
            (10, None, 11),  # canceled after a minute
            (20, None, None),  # open for 80 minutes
            (97, None, None),  # open for 3 minutes
            (None, None, None),  # never runnable
        ),
        limit=300,
        target=0.95,
    )
    assert (summary["started"], summary["canceled_waiting"], summary["undecided"]) == (3, 1, 1)
    assert summary["share_within"] == pytest.approx(2 / 5)


def test_percentiles_of_waits_are_those_of_kaplan_and_meier() -> None:
    summary = summarize_waits(waits((0, 1, 2), (0, 2, 3), (0, None, None)), limit=60, target=0.5)
    assert summary["wait_p50_s"] == 120  # of 1, 2 and at least 100 minutes
    assert np.isnan(summary["wait_p95_s"])


def test_nothing_is_known_without_jobs() -> None:
    summary = summarize_waits(waits(), limit=60, target=0.5)
    assert summary["started"] == 0
    assert np.isnan([summary[name] for name in ("wait_p50_s", "wait_p95_s", "share_within", "low", "high")]).all()


def test_busy_time_and_the_most_at_once() -> None:
    one = waits((0, 0, 30), (0, 30, 60), (0, 10, 50), (0, 90, None))
    assert busy_hours(one) == pytest.approx((30 + 30 + 40 + 10) / 60)
    assert most_at_once(one) == 2  # the second begins as the first ends
    assert (busy_hours(waits()), most_at_once(waits())) == (0, 0)


@pytest.mark.parametrize(("needed", "most", "expected"), [(1, 50, 1), (17, 50, 17), (50, 50, 50), (51, 50, None)])
def test_the_search_finds_the_smallest_number(needed: int, most: int, expected: int | None) -> None:
    tried: list[int] = []

    def passes(n: int) -> bool:
        tried.append(n)
        return n >= needed

    assert try_numbers(1, most, 3, [passes]) == [expected]
    assert len(tried) <= 17
    assert {2, 3, 4, 5} <= {*tried}


def test_a_number_passes_only_if_larger_ones_do() -> None:
    assert try_numbers(1, 8, 2, [lambda n: n not in (1, 5)]) == [6]
