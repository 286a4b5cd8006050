from __future__ import annotations

import pandas as pd
import pytest

from buildframe import metrics
from buildframe.errors import BadInput


def step_of(name: str | None, key: str | None = None) -> object:
    frame = pd.DataFrame({"step_key": pd.Series([key], dtype="str"), "name": pd.Series([name], dtype="str")})
    return metrics.step(frame).iloc[0]


@pytest.mark.parametrize(
    "name",
    [
        "RSpec",
        ":rspec: RSpec",
        "RSpec 3/10",
        "RSpec (3/10)",
        "RSpec [3/10]",
        "RSpec #3",
        "RSpec (#3)",
        "RSpec 3 of 10",
        "RSpec - 3/10",
        "RSpec 0/10",
        ":a::b: RSpec  10/10 ",
        "RSpec (shard 3 of 10)",
        "RSpec shard 3",
        ":c++:RSpec #12",
        "RSpec #3/10",
        "RSpec :x: 3/10",
        "RSpec: part 1/2",
    ],
)
def test_attempts_and_shards_of_a_step_are_one(name):
    assert step_of(name) == "RSpec"


@pytest.mark.parametrize(
    "name",
    [
        "C#3",
        "test:unit:fast",
        "Python 3",
        "Ubuntu 22/04",
        "v1.2/3",
        "deploy 10:30:15",
        "3/10",
        "(3/10)",
        ":rocket:",
        "RSpec 3/10 slow",
        "Hard 5",
    ],
)
def test_what_only_looks_like_it_stays(name):
    assert step_of(name) == name


def test_the_key_goes_before_the_name():
    assert step_of(":x: Tests 1/2", key="tests") == "tests"
    assert pd.isna(step_of(None))
    assert step_of(None, key="k") == "k"


def test_index_dtype_and_empty():
    frame = pd.DataFrame({"step_key": [None, None], "name": ["a #1", "a #2"]}, index=[4, 4])
    result = metrics.step(frame)
    assert list(result.index) == [4, 4]
    assert list(result) == ["a", "a"]
    for rows in (result, metrics.step(frame.iloc[:0]), metrics.step(frame.assign(name=None))):
        assert rows.dtype == "str"
        assert rows.name == "step"


def test_missing_columns_are_named():
    with pytest.raises(BadInput, match="'step_key'"):
        metrics.step(pd.DataFrame({"name": ["a"]}))
    with pytest.raises(BadInput, match="'name'"):
        metrics.step(pd.DataFrame({"step_key": ["a"]}))
