from __future__ import annotations

import functools
import pickle
from collections.abc import Callable

import pytest
from matplotlib import pyplot as plt

from buildframe import metrics

SUMMARIES = (
    "agents_needed", "change_points", "contention", "explain", "flake_score", "flips", "leverage", "objective",
    "outages", "outcomes_by_commit", "percentiles", "recovery_time", "step_graph", "success_trend", "survival",
    "time_ledger", "trend",
)  # fmt: skip
_results: dict[bytes, bytes] = {}


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def remembering(function: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(function)
    def call(*args: object, **options: object) -> object:
        try:
            key = pickle.dumps((function.__name__, args, options))
        except (AttributeError, pickle.PicklingError):  # an argument is a local function
            return function(*args, **options)
        if key not in _results:
            _results[key] = pickle.dumps(function(*args, **options))
        return pickle.loads(_results[key])

    return call


@pytest.fixture(autouse=True, scope="module")
def _numbers_of_the_same_frame_are_computed_once():
    """As they take longer than the drawing, and the same frames are drawn many times. Metrics have their own tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name in SUMMARIES:
            patch.setattr(metrics, name, remembering(getattr(metrics, name)))
        yield
