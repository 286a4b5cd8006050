from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from metric_frames import START, UTC

from buildframe import metrics
from buildframe.errors import BadInput

pytestmark = pytest.mark.slow

NILE = [
    1120, 1160, 963, 1210, 1160, 1160, 813, 1230, 1370, 1140, 995, 935, 1110, 994, 1020, 960, 1180, 799, 958, 1140,
    1100, 1210, 1150, 1250, 1260, 1220, 1030, 1100, 774, 840, 874, 694, 940, 833, 701, 916, 692, 1020, 1050, 969,
    831, 726, 456, 824, 702, 1120, 1100, 832, 764, 821, 768, 845, 864, 862, 698, 845, 744, 796, 1040, 759,
    781, 865, 845, 944, 984, 897, 822, 1010, 771, 676, 649, 846, 812, 742, 801, 1040, 860, 874, 848, 890,
    744, 749, 838, 1050, 918, 986, 797, 923, 975, 815, 1020, 906, 901, 1170, 912, 746, 919, 718, 714, 740,
]  # fmt: skip
"""Yearly flow of the Nile at Aswan, 1871 to 1970 (Cobb 1978, Biometrika 65: 243-251, table 1)."""


def rows(values: list[float] | np.ndarray, **more: object) -> pd.DataFrame:
    times = START + pd.to_timedelta(np.arange(len(values)), unit="h")
    return pd.DataFrame({"x_s": np.array(values, float), "created_at": pd.Series(times, dtype=UTC), **more})


def change_point_of(values: list[float] | np.ndarray, hours: object = None) -> pd.Series:
    """Return the only row of the result."""
    frame = rows(values)
    if hours is not None:
        frame["created_at"] = pd.Series(START + pd.to_timedelta(hours, unit="h"), dtype=UTC)
    return metrics.change_point(frame, of="x_s").iloc[0]


def by_definition(values: list[float], hours: list[int]) -> tuple[float, int] | None:
    """The largest sum of signs over all pairs before and after a moment, and the first such moment; slow."""
    values, hours = np.array(values, float), np.array(hours)
    signs = np.sign(np.subtract.outer(values, values))
    moments = sorted(set(hours.tolist()))[1:]
    sums = [abs(signs[np.ix_(hours < moment, hours >= moment)].sum()) for moment in moments]
    return (max(sums), moments[int(np.argmax(sums))]) if moments else None


def test_the_nile_changed_in_1899():
    result = change_point_of(NILE)
    assert 1871 + result["n_before"] == 1899
    pairs = np.sign(np.subtract.outer(NILE[:28], NILE[28:])).sum()  # by its definition as a sum over pairs
    assert result["p_value"] == pytest.approx(2 * np.exp(-6 * pairs**2 / (100**3 + 100**2)))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 8)), min_size=10, max_size=40))
def test_what_the_definition_says_also_of_rows_of_one_time(drawn):
    values, hours = [value for value, _ in drawn], [hour for _, hour in drawn]
    result, expected = change_point_of(values, hours), by_definition(values, hours)
    if expected is None:
        assert result[["n_before", "at", "p_value", "p50_before_s", "p50_after_s"]].isna().all()
        return
    n, (most, moment) = len(values), expected
    before = [value for value, hour in drawn if hour < moment]
    assert result["at"] == START + pd.Timedelta(moment, "h")
    assert (result["n"], result["n_before"]) == (n, len(before))
    assert result["p_value"] == pytest.approx(min(1, 2 * np.exp(-6 * most**2 / (n**3 + n**2))))
    assert result["p50_before_s"] == np.median(before)
    assert result["p50_after_s"] == np.median([value for value, hour in drawn if hour >= moment])


def test_the_moment_and_both_medians():
    result = metrics.change_point(rows(NILE).sample(frac=1, random_state=1), of="x_s").iloc[0]
    assert result["n"] == 100
    assert result["n_before"] == 28
    assert result["at"] == START + pd.Timedelta(28, "h")
    assert result["p50_before_s"] == np.median(NILE[:28])
    assert result["p50_after_s"] == np.median(NILE[28:])


def test_groups_and_what_is_left_out():
    frame = pd.concat(
        [rows(NILE, pipeline="nile"), rows(NILE[:9], pipeline="few"), rows([np.nan] * 20, pipeline="none")]
    )
    result = metrics.change_point(frame, of="x_s", by="pipeline")
    assert result["pipeline"].tolist() == ["few", "nile", "none"]
    assert result["n"].tolist() == [9, 100, 0]
    assert result["n_before"].isna().tolist() == [True, False, True]
    assert {name: str(dtype) for name, dtype in result.dtypes.items()} == {
        "pipeline": "str", "n": "Int64", "n_before": "Int64", "at": UTC, "p_value": "float64",
        "p50_before_s": "float64", "p50_after_s": "float64",
    }  # fmt: skip
    nothing = metrics.change_point(frame.iloc[:0], of="x_s", by="pipeline")
    assert nothing.empty
    assert list(nothing) == list(result)


def test_chance_alone_seldom_finds_one():
    random = np.random.default_rng(8)
    frame = pd.concat([rows(random.lognormal(0, 1, 60), pipeline=f"p{i}") for i in range(400)])
    found = metrics.change_point(frame, of="x_s", by="pipeline")["p_value"] < 0.05
    assert 0 < found.mean() < 0.05 + 3.5 * np.sqrt(0.05 * 0.95 / 400)


@given(st.lists(st.integers(0, 5), min_size=10, max_size=60), st.integers(1, 1000))
def test_only_the_order_of_values_matters(values, factor):
    plain = np.array(values, float)
    kinds = {"plain": plain, "cubed": plain**3 * factor, "turned": -plain}
    frame = pd.concat([rows(numbers, kind=kind) for kind, numbers in kinds.items()])
    changes = metrics.change_point(frame, of="x_s", by="kind").set_index("kind")
    plain, cubed, turned = (changes.loc[kind] for kind in kinds)
    assert cubed[["n_before", "p_value"]].equals(plain[["n_before", "p_value"]])
    assert turned["p_value"] == pytest.approx(plain["p_value"])
    assert 1 <= plain["n_before"] < len(values)
    assert 0 < plain["p_value"] <= 1


@pytest.mark.parametrize("made", [pl.from_pandas, duckdb.from_df], ids=["polars", "duckdb"])
@pytest.mark.parametrize("by", [None, "pipeline"])
def test_frames_of_other_engines(made, by):
    frame = pd.concat([rows(NILE, pipeline="nile"), rows(NILE[::-1], pipeline="elin")]).astype({"pipeline": "str"})
    result = metrics.change_point(made(frame), of="x_s", by=by)
    if by is not None:
        pd.testing.assert_frame_equal(result, metrics.change_point(frame, of="x_s", by=by))
    assert result["n"].sum() == 200


def test_bad_input():
    with pytest.raises(BadInput, match="no column 'created_at'"):
        metrics.change_point(rows(NILE).drop(columns="created_at"), of="x_s")
