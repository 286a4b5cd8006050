"""The search of days at which a series changed: known answers, limits, and p-values that are as low as needed."""

from __future__ import annotations

import numpy as np
import pytest

from buildframe.metrics import change_search
from buildframe.metrics.change_levels import Segments, find_median_ranks
from buildframe.metrics.change_search import Search, Series, find_changes, score_days, score_failures
from buildframe.metrics.discoveries import are_notable


def search(series: Series) -> Search:
    found = find_changes(series)
    assert found is not None
    return found


def noise(days: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(days)


def correlated(days: int, by: float, seed: int) -> np.ndarray:
    """Days of which each repeats a part of the one before."""
    values = noise(days, seed)
    for i in range(1, days):
        values[i] += by * values[i - 1]
    return values


@pytest.mark.parametrize("days", range(4))
def test_too_few_days_are_not_searched(days: int) -> None:
    assert find_changes(Series(np.arange(days, dtype=float), np.ones(days))) is None


def test_equal_days_are_not_searched() -> None:
    assert find_changes(Series(np.full(30, 7.0), np.ones(30))) is None


def test_two_changes_are_found_where_they_are() -> None:
    share = np.repeat([0.05, 0.4, 0.05], 20)
    series = score_failures(np.full(60, 40.0), np.random.default_rng(1).binomial(40, share).astype(float))
    changes = search(series).changes
    assert [change.at for change in changes] == [20, 40]
    assert all(change.low <= change.at <= change.high and change.p < 0.01 for change in changes)


@pytest.mark.parametrize("at", [2, 58])
def test_two_days_at_an_end_are_enough(at: int) -> None:
    series = Series(0.1 * noise(60) + (np.arange(60) >= at), np.ones(60))
    assert [change.at for change in search(series).changes] == [at]


def test_one_day_is_an_outlier() -> None:
    series = Series(0.1 * noise(60) + (np.arange(60) == 30), np.ones(60))
    assert search(series).changes == []


def test_days_with_few_rows_count_less() -> None:
    n = np.tile([40.0, 1.0], 10)
    scores = np.tile([0.0, 1.0], 10) + 0.1 * noise(20)
    weight = score_days(n, n * scores, n * (scores**2 + 1)).weight
    assert weight[0] > 2 * weight[1]
    alike = score_days(n, n * scores, n * scores**2).weight  # rows of a day are all equal
    assert alike == pytest.approx(np.ones(20))


def test_the_place_of_a_weak_change_is_less_certain() -> None:
    widths = []
    for size in (1.0, 4.0):
        (change,) = search(Series(noise(60, 4) + size * (np.arange(60) >= 30), np.ones(60))).changes
        assert change.low <= 30 <= change.high
        widths.append(change.high - change.low)
    assert widths[0] > widths[1]


def levels(*parts: tuple[int, float]) -> np.ndarray:
    return np.concatenate([np.full(days, level) for days, level in parts])


@pytest.mark.long
@pytest.mark.parametrize("last", [3, 4])
def test_a_late_change_that_is_not_certain_leaves_certain_ones(last: int) -> None:
    """The last days alone cannot be certain, and are not taken for correlated days."""
    score = levels((7, 0.0), (12, 10.0), (9 - last, 16.0), (last, 11.4))
    found = [search(Series(score + noise(28, seed), np.ones(28))) for seed in range(10)]
    assert sum(bool(one.changes) for one in found) >= 9
    assert np.median([one.p for one in found]) < 1e-5


@pytest.mark.parametrize("first", [4, 10, 15, 18])
def test_a_burst_is_as_certain_wherever_it_lies(first: int) -> None:
    score = levels((first, 0.0), (7, 10.0), (21 - first, 0.0))
    found = [search(Series(score + noise(28, seed), np.ones(28))) for seed in range(5)]
    for one in found:
        assert {first, first + 7} <= {change.at for change in one.changes}
    assert np.median([one.p for one in found]) < 1e-4


@pytest.mark.long
def test_correlated_days_make_the_search_more_careful() -> None:
    found = [search(Series(correlated(60, 0.6, seed), np.ones(60))) for seed in range(30)]
    assert np.mean([bool(one.changes) for one in found]) < 0.5  # three of four without the correction
    assert all(one.inflation >= 1 for one in found)
    assert np.mean([one.inflation > 1.5 for one in found if one.changes]) > 0.5


@pytest.mark.long
def test_a_long_series_is_searched_for_short_segments() -> None:
    days = 1500
    series = Series(noise(days) + 3 * ((np.arange(days) >= 700) & (np.arange(days) < 730)), np.ones(days))
    assert [change.at for change in search(series).changes] == pytest.approx([700, 730], abs=1)


@pytest.mark.long
def test_a_clearer_change_has_a_lower_p_value() -> None:
    p = [search(Series(noise(60) + size * (np.arange(60) >= 30), np.ones(60))).p for size in (0.5, 1.5, 2.0, 3.0)]
    assert p == sorted(p, reverse=True)
    assert p[0] > 0.001
    assert p[1] < 0.0001
    assert p[3] < 1e-10
    both = search(Series(noise(60) + 3 * (np.arange(60) // 20 == 1), np.ones(60)))
    assert all(change.p >= both.p for change in both.changes)


def test_few_days_of_failures_are_not_clearer_than_the_orders_that_separate_them() -> None:
    series = Series(0.001 * noise(28) + (np.arange(28) >= 22), np.ones(28))
    found = find_changes(series, is_rate=True)
    assert found is not None
    assert found.p == pytest.approx(2 / 376_740 / 0.8)  # any six of 28 days, at either end
    assert found.changes[-1].at == 22
    assert found.changes[-1].p == found.p
    assert search(series).p < found.p
    assert change_search.fewest_days(28, 5.4e-6 / 0.8) == 6


@pytest.mark.long
@pytest.mark.parametrize("kind", ["split", "segment"])
def test_p_values_beyond_all_shuffles_are_right(kind: str) -> None:
    """Against a hundred times as many shuffles; a factor of four either way is a tenth of the clarity."""
    random = np.random.default_rng(5)
    series = Series(random.standard_normal(28), np.ones(28))
    ways = change_search._splits(28) if kind == "split" else change_search._segments(28)
    n = 300_000 if kind == "split" else 50_000
    order = random.permuted(np.tile(np.arange(28), (n, 1)), axis=1)
    parts = np.array_split(order, 100)
    explained = np.concatenate([ways.explained(series.score[own], series.weight[own]).max(-1) for own in parts])
    clarity = change_search._clarity(explained, 1.0)
    known = clarity[: change_search._MAX_FOR_TAIL]
    for p in (3e-4, 1e-4) if kind == "segment" else (3e-4, 1e-4, 3e-5):
        limit = float(np.quantile(clarity, 1 - p))
        extrapolated = change_search._tail_probability(known[known < limit * (1 - 1e-9)], limit)
        assert p / 4 < extrapolated < 4 * p


def test_notable_groups_are_those_of_benjamini_and_hochberg() -> None:
    from scipy.stats import false_discovery_control

    random = np.random.default_rng(1)
    for _ in range(200):
        p = random.random(random.integers(1, 30)) ** random.integers(1, 6)
        np.testing.assert_array_equal(are_notable(p), false_discovery_control(p) <= 0.05)
    assert are_notable([np.nan, 0.04, np.nan]).tolist() == [False, True, False]  # the others are no tests
    assert are_notable([]).tolist() == []
    assert are_notable([0.001, 0.004, 0.5], 0.005).tolist() == [True, False, False]


def test_a_short_segment_borrows_the_spread_of_days_from_the_other() -> None:
    random = np.random.default_rng(3)
    n = np.full(40, 20.0)
    hits = random.binomial(20, np.clip(0.5 + 0.25 * random.standard_normal(40), 0, 1)).astype(float)
    segments = Segments(np.repeat([0, 1], [38, 2]), n, hits, 2)
    before, after = segments.sizes(np.array([0]), np.ones(1))
    assert before[0] < 38 * 20 / 3
    assert after[0] / before[0] == pytest.approx(2 / 38)
    _, doubled = segments.sizes(np.array([0]), np.full(1, 2.0))
    assert doubled[0] == pytest.approx(after[0] / 2)


def test_a_median_of_few_rows_has_no_interval() -> None:
    assert find_median_ranks(np.array([100.0, 3.0]), np.array([100.0, 3.0])).tolist() == [[39, 62], [0, 0]]
