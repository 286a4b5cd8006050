"""The search of days at which a series changed: known answers, limits, and p-values that are as low as needed."""

from __future__ import annotations

import numpy as np
import pytest

from buildframe.metrics import change_search
from buildframe.metrics.change_search import Search, Series, find_changes
from buildframe.metrics.clustering import Segments, find_median_ranks
from buildframe.metrics.daily_scores import score_days, score_failures
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


def test_too_few_and_equal_days_are_not_searched() -> None:
    few = [Series(np.arange(days, dtype=float), np.ones(days)) for days in range(4)]
    assert [find_changes(one) for one in [*few, Series(np.full(30, 7.0), np.ones(30))]] == [None] * 5


def test_two_changes_are_found_where_they_are() -> None:
    share = np.repeat([0.05, 0.4, 0.05], 20)
    series = score_failures(np.full(60, 40.0), np.random.default_rng(1).binomial(40, share).astype(float))
    changes = search(series).changes
    assert [change.at for change in changes] == [20, 40]
    assert all(change.low <= change.at <= change.high and change.p < 0.01 for change in changes)


def test_two_days_at_an_end_are_enough_and_one_day_is_an_outlier() -> None:
    for at in (2, 58):
        series = Series(0.1 * noise(60) + (np.arange(60) >= at), np.ones(60))
        assert [change.at for change in search(series).changes] == [at]
    assert search(Series(0.1 * noise(60) + (np.arange(60) == 30), np.ones(60))).changes == []


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
def test_a_late_change_that_is_not_certain_leaves_certain_ones() -> None:
    """The last days alone cannot be certain, and are not taken for correlated days."""
    for last in (3, 4):
        score = levels((7, 0.0), (12, 10.0), (9 - last, 16.0), (last, 11.4))
        found = [search(Series(score + noise(28, seed), np.ones(28))) for seed in range(10)]
        assert sum(bool(one.changes) for one in found) >= 9, last
        assert np.median([one.p for one in found]) < 1e-5, last


def test_a_burst_is_as_certain_wherever_it_lies() -> None:
    for first in (4, 10, 18):
        score = levels((first, 0.0), (7, 10.0), (21 - first, 0.0))
        found = [search(Series(score + noise(28, seed), np.ones(28))) for seed in range(3)]
        for one in found:
            assert {first, first + 7} <= {change.at for change in one.changes}, first
        assert np.median([one.p for one in found]) < 1e-4, first


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


def shares_between(score: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """The largest share of the variance that lies between the days of some part and the others, by definition."""
    days, (first, stop) = score.shape[-1], parts.T
    sums = np.concatenate([np.zeros((*score.shape[:-1], 1)), score.cumsum(axis=-1)], axis=-1)
    own, all_of_them, n = sums[..., stop] - sums[..., first], sums[..., -1:], stop - first
    between = own**2 / n + (all_of_them - own) ** 2 / (days - n) - all_of_them**2 / days
    return between.max(axis=-1) / ((score - score.mean(axis=-1, keepdims=True)) ** 2).sum(axis=-1)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["split", "segment"])
def test_p_values_beyond_all_shuffles_are_right(kind: str) -> None:
    """Against ten times as many shuffles. A factor of four either way is a tenth of the clarity."""
    if kind == "split":  # in two parts, for which four fifths of the level are
        parts, is_later, weight = [(0, stop) for stop in range(2, 27)], np.arange(28) >= 14, 0.8
    else:
        parts = [(first, stop) for first in range(2, 27) for stop in range(first + 2, 27)]
        is_later, weight = (np.arange(28) >= 9) & (np.arange(28) < 19), 0.2
    for seed, size in ((2, 1.8), (3, 2.0), (5, 2.0)) if kind == "split" else ((3, 2.6), (4, 2.6)):
        score, random = noise(28, seed) + size * is_later, np.random.default_rng(5)
        orders = (random.permuted(np.tile(score, (2_000, 1)), axis=1) for _ in range(50))
        by_chance = np.concatenate([shares_between(order, np.array(parts)) for order in orders])
        counted = np.mean(by_chance >= shares_between(score, np.array(parts)) * (1 - 1e-9))
        assert 1e-5 < counted < 5e-4, "between what shuffles count and what no test could see"
        assert counted / 4 < search(Series(score, np.ones(28))).p * weight < 4 * counted, (seed, size)


def test_few_days_of_failures_are_not_clearer_than_the_orders_that_separate_them() -> None:
    series = Series(0.001 * noise(28) + (np.arange(28) >= 22), np.ones(28))
    found = find_changes(series, is_rate=True)
    assert found is not None
    assert found.p == pytest.approx(2 / 376_740 / 0.8)  # any six of 28 days, at either end
    assert found.changes[-1].at == 22
    assert found.changes[-1].p == found.p
    assert search(series).p < found.p
    assert change_search.fewest_days(28, 5.4e-6 / 0.8) == 6


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
