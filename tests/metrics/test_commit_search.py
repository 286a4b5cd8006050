"""The search over commits: published histories with the changes that were found in them."""

from __future__ import annotations

import numpy as np

from buildframe.metrics.commit_search import Runs, find_commit_changes


def counts(text: str) -> list[int]:
    return [int(one) for one in text.split()]


NONE = "0 " * 16
HISTORIES = {
    "from passing to failing": ("1 2 3 4 5 6", "2 2 1 1 2 2", "0 0 0 1 2 2", NONE, NONE, [3]),
    "one commit earlier": ("1 2 3 4 5 6", "2 2 1 1 2 2", "0 0 1 1 2 2", NONE, NONE, [2]),
    "two commits only": ("1 1 2 2 2 2", "3 3 1 2 3 3", "0 0 0 2 3 3", NONE, NONE, [2]),
    "two changes": (
        "1 2 3 4 5 6 7 8 9 10 11 12 13 14",
        "2 2 3 2 3 1 1 2 2 3 2 3 2 2",
        "0 0 0 0 0 1 1 2 2 3 2 3 0 0",
        NONE,
        NONE,
        [5, 12],
    ),
    "from passing to flaky": (" ".join(map(str, range(16))), "2 " * 16, "0 " * 6 + "1 " * 10, NONE, NONE, [6]),
    "from flaky to failing": (" ".join(map(str, range(16))), "2 " * 16, "1 " * 6 + "2 " * 10, NONE, NONE, [6]),
    "always passing": ("1 2 3 4 5 6 7 8", "2 " * 8, NONE, NONE, NONE, []),
    "always failing": ("1 2 3 4 5 6 7 8", "2 " * 8, "2 " * 8, NONE, NONE, []),
    "always flaky": ("1 2 3 4 5 6 7 8", "2 " * 8, "1 0 1 0 0 1 0 2", NONE, NONE, []),
    "from flaky to failing, by retries": ("1 2 3 4 5 6 7 8", "2 " * 8, "2 " * 8, "2 " * 8, "0 0 0 0 2 2 2 2", [4]),
    "always failing, with retries": ("1 2 3 4 5 6 7 8", "2 " * 8, "2 " * 8, "2 " * 8, "2 " * 8, []),
    "from failing to flaky, by retries": (
        "1 2 3 5 5 5 7 7", "3 3 3 1 3 3 3 3", "3 3 3 1 3 3 3 3", "3 3 3 1 3 3 3 3", "3 3 3 1 0 0 1 1", [3],
    ),
}  # fmt: skip
"""Positions of commits, runs, runs with a failure, retried runs, those that failed again, and rows with a change.

From the tests of LUCI's changepoint analysis (luci-go, analysis/internal/changepoints/bayesian/bayesian_test.go).
"""


def runs_of(name: str) -> tuple[Runs, list[int]]:
    """Return the runs per commit, and the row at which each commit begins."""
    position, *texts, _ = HISTORIES[name]
    positions = counts(position)
    commits, number = np.unique(positions, return_inverse=True)
    sums = (np.bincount(number, counts(text)[: len(number)]).astype(np.int64) for text in texts)
    return Runs(*sums), [positions.index(commit) for commit in commits]


def test_published_histories() -> None:
    found = {}
    for name in HISTORIES:
        runs, rows = runs_of(name)
        changes, p = find_commit_changes(runs)
        found[name] = [rows[change.at] for change in changes]
        assert all(0 < change.low <= change.at <= change.high < len(rows) for change in changes), name
        assert (p < 0.1) == bool(changes), name
    assert found == {name: expected for name, (*_, expected) in HISTORIES.items()}


def test_a_history_that_never_changes_seldom_has_a_change() -> None:
    random = np.random.default_rng(1)
    found, evidence = [], []
    for rate in np.tile([0.0, 0.05, 0.2, 0.5, 1.0], 60):
        n = random.integers(1, 4, 20)
        nothing = np.zeros(20, np.int64)
        changes, p = find_commit_changes(Runs(n, random.binomial(n, rate), nothing, nothing))
        found.append(bool(changes))
        evidence.append(p <= 0.05)
    assert np.mean(found) <= 0.03
    assert np.mean(evidence) <= 0.05


def test_the_commit_that_turned_a_branch_red_is_found_after_few_runs() -> None:
    nothing = np.zeros(8, np.int64)
    (change,), p = find_commit_changes(Runs(np.full(8, 2), np.array([0, 0, 0, 0, 0, 2, 2, 2]), nothing, nothing))
    assert (change.at, change.low, change.high) == (5, 5, 5)
    assert p == change.p < 0.05


def test_one_commit_has_no_change() -> None:
    for commits in (0, 1):
        nothing = np.zeros(commits, np.int64)
        assert find_commit_changes(Runs(nothing + 5, nothing + 5, nothing, nothing)) == ([], 1.0)
