"""The search of days at which a series changed: known answers, and what it promises about chance."""

from __future__ import annotations

import numpy as np
import pytest

from buildframe.metrics.change_search import Series, find_changes, score_durations, score_failures

NILE = """
1120 1160 963 1210 1160 1160 813 1230 1370 1140 995 935 1110 994 1020 960 1180 799 958 1140 1100 1210 1150 1250 1260
1220 1030 1100 774 840 874 694 940 833 701 916 692 1020 1050 969 831 726 456 824 702 1120 1100 832 764 821 768 845 864
862 698 845 744 796 1040 759 781 865 845 944 984 897 822 1010 771 676 649 846 812 742 801 1040 860 874 848 890 744 749
838 1050 918 986 797 923 975 815 1020 906 901 1170 912 746 919 718 714 740
"""
"""Annual flow of the Nile at Aswan from 1871 on (Cobb, G. W. (1978). Biometrika 65, 243-251)."""


def test_the_nile_changed_in_1899() -> None:
    flow = np.array(NILE.split(), np.float64)
    (change,) = find_changes(score_durations(np.arange(100), flow), np.random.default_rng(0))
    assert 1871 + change.at == 1899
    assert change.low <= change.at <= change.high
    assert change.p < 0.01


def test_a_constant_series_has_no_change() -> None:
    assert find_changes(score_durations(np.repeat(np.arange(30), 4), np.full(120, 7.0)), np.random.default_rng(0)) == []


@pytest.mark.parametrize("days", range(4))
def test_too_few_days_have_no_change(days: int) -> None:
    assert find_changes(Series(np.arange(days, dtype=float), np.ones(days)), np.random.default_rng(0)) == []


def test_two_changes_are_found_where_they_are() -> None:
    random = np.random.default_rng(1)
    share = np.repeat([0.05, 0.4, 0.05], 20)
    n = np.full(60, 40.0)
    changes = find_changes(score_failures(n, random.binomial(40, share).astype(float)), np.random.default_rng(0))
    assert [change.at for change in changes] == pytest.approx([20, 40], abs=1)
