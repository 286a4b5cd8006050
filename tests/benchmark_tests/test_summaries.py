"""Handwritten code gives the same results as the summaries, and a wrong value is noticed."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.benchmarks import rows, summaries

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def pairs() -> dict[str, summaries.Pair]:
    """Of enough builds that no pipeline has all of its own within a few days, for which peers do not allow."""
    return summaries.pairs(*rows.made(3_000, 9_000))


def test_rows_are_the_same_each_time_and_others_by_another_seed() -> None:
    one, other = rows.made(30, 300), rows.made(30, 300, seed=2)
    pd.testing.assert_frame_equal(one.jobs, rows.made(30, 300).jobs)
    assert not one.jobs["started_at"].equals(other.jobs["started_at"])
    assert not one.builds["commit"].equals(other.builds["commit"])


def test_each_summary_has_a_peer_in_pandas_and_some_in_each_other_library(pairs: dict[str, summaries.Pair]) -> None:
    assert {name for name in pairs if name.startswith("pandas")} == {
        f"pandas, {name}" for name in (*summaries.OF_JOBS, *summaries.OF_BUILDS)
    }
    assert sum(name.startswith("Polars") for name in pairs) == sum(name.startswith("DuckDB") for name in pairs) == 9


def test_handwritten_code_gives_the_same(pairs: dict[str, summaries.Pair]) -> None:
    assert {name: error for name, pair in pairs.items() if (error := difference(pair))} == {}


def difference(pair: summaries.Pair) -> str:
    try:
        summaries.check(pair)
    except AssertionError as error:
        return str(error)
    return ""


def test_one_wrong_value_is_noticed(pairs: dict[str, summaries.Pair]) -> None:
    ours, peer = pairs["pandas, percentiles_by_queue"]
    wrong = summaries.Pair(ours, lambda: peer().assign(p95_s=lambda result: result["p95_s"] + 1e-6))
    assert "p95_s" in difference(wrong)
