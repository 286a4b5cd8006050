"""How much time builds would save if one step took less time."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from buildframe.metrics.paired_savings import estimate_saving


def test_the_interval_of_a_saving_is_that_of_its_days() -> None:
    """With as many builds on each day it is the t interval of the means of days."""
    random = np.random.default_rng(2)
    saved = random.normal(10, 3, (6, 20)) + random.normal(0, 4, (6, 1))
    saving = estimate_saving(saved.ravel(), np.repeat(np.arange(6), 20))
    low, high = stats.t.interval(0.95, 5, saved.mean(), stats.sem(saved.mean(1)))
    assert saving[:3] == pytest.approx((saved.mean(), low, high))
    assert saving.hours() == pytest.approx(np.array([saved.mean(), low, high]) * 120 / 3600)


def test_unknown_differences_are_left_out_and_few_days_have_no_interval() -> None:
    saving = estimate_saving(np.array([1.0, np.nan, 3.0]), np.array([0, 1, 2]))
    assert (saving.mean, saving.builds) == (2, 2)
    assert np.isnan(saving.low)
    assert np.isnan(estimate_saving(np.array([np.nan]), np.array([0])).mean)
