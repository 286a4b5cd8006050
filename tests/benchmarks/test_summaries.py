"""Handwritten code gives the same results as the summaries, and a wrong value is noticed."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.benchmarks import rows, summaries

PAIRS = summaries.pairs(*rows.made(3_000, 9_000))
"""Enough builds that no pipeline has all of its own within a few days, for which peers do not allow."""


def test_rows_are_the_same_each_time_and_others_by_another_seed() -> None:
    one, other = rows.made(30, 300), rows.made(30, 300, seed=2)
    pd.testing.assert_frame_equal(one.jobs, rows.made(30, 300).jobs)
    assert not one.jobs["started_at"].equals(other.jobs["started_at"])
    assert not one.builds["commit"].equals(other.builds["commit"])


def test_each_engine_and_each_summary_has_a_peer() -> None:
    assert {name for name in PAIRS if name.startswith("pandas")} == {
        f"pandas, {name}" for name in (*summaries.OF_JOBS, *summaries.OF_BUILDS)
    }
    assert sum(name.startswith("Polars") for name in PAIRS) == sum(name.startswith("DuckDB") for name in PAIRS) == 9


@pytest.mark.parametrize("name", PAIRS)
def test_handwritten_code_gives_the_same(name: str) -> None:
    summaries.check(PAIRS[name])


def test_one_wrong_value_is_noticed() -> None:
    ours, peer = PAIRS["pandas, percentiles_by_queue"]
    with pytest.raises(AssertionError, match="p95_s"):
        summaries.check(summaries.Pair(ours, lambda: peer().assign(p95_s=lambda result: result["p95_s"] + 1e-6)))
