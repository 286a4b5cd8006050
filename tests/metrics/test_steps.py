from __future__ import annotations

import pandas as pd
import pytest
from tests.metrics.engine_frames import in_spark
from tests.metrics.random_frames import jobs_of

from buildframe import metrics
from buildframe.errors import BadInput


def frame_of(*names: str | None, key: str | None = None) -> pd.DataFrame:
    keys = pd.Series([key] * len(names), dtype="str")
    return pd.DataFrame({"step_key": keys, "name": pd.Series(names, dtype="str")})


def step_of(name: str | None, key: str | None = None, among: tuple[str, ...] = ()) -> object:
    return metrics.step(frame_of(name, *among, key=key)).iloc[0]


TENTHS = tuple(f"RSpec {shard}/10" for shard in range(11))


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
    assert step_of(name, among=(*TENTHS, "RSpec (1/2)", "RSpec 2 of 2")) == "RSpec"


@pytest.mark.parametrize("total", ["2", "3", "18"])
def test_a_suffix_is_a_shard_only_if_all_shards_are_there(total):
    versions = [f":iphone: iOS {number}/{total}" for number in range(1, int(total) + 1)]
    assert set(metrics.step(frame_of(*versions))) == {"iOS"}
    assert metrics.step(frame_of(*versions[1:])).tolist() == [name.removeprefix(":iphone: ") for name in versions[1:]]
    other = [name.replace("iOS", "tvOS") for name in versions[:1]]
    assert metrics.step(frame_of(*versions[1:], *other)).iloc[-1] == f"tvOS 1/{total}"


def test_shards_may_count_from_zero_and_differ_in_their_spelling():
    assert set(metrics.step(frame_of("RSpec 0/2", "RSpec 1/2"))) == {"RSpec"}
    assert set(metrics.step(frame_of("RSpec (1 of 2)", ":x: RSpec 2/2", "RSpec 2/2"))) == {"RSpec"}
    assert metrics.step(frame_of("RSpec 1/2", "RSpec 2/3")).tolist() == ["RSpec 1/2", "RSpec 2/3"]


def test_a_shard_that_the_service_numbers_is_one_also_alone():
    frame = frame_of("RSpec 3/10", "iOS 17/18", "unit 1/2").assign(
        parallel_group_total=pd.array([10, None, 3], "Int64")
    )
    assert metrics.step(frame).tolist() == ["RSpec", "iOS 17/18", "unit 1/2"]
    assert (
        metrics.with_seconds(jobs_of("few").assign(name="a 3/4", step_key=None, parallel_group_total=4))[
            "step"
        ].tolist()
        == ["a"] * 9
    )


def test_spark_says_the_same_of_names_of_many_rows():
    frame = metrics.with_seconds(jobs_of("many"))
    names = [":x: iOS 17/18", "RSpec 1/2", "RSpec 2/2", "lint #2", "unit 3/4", None]
    frame = frame.assign(
        name=pd.Series(names * 500, dtype="str"), parallel_group_total=pd.array([None] * 3000, "Int64")
    )
    frame.loc[frame.index % 6 == 4, "parallel_group_total"] = 4
    keyed = frame["step_key"].notna()
    frame["name"] = frame["name"].mask(keyed & frame["name"].eq("RSpec 1/2"), "Web 1/2")  # seen beside a key only
    frame["name"] = frame["name"].mask(~keyed & frame["name"].eq("lint #2"), "Web 2/2")
    expected = metrics.with_seconds(frame)
    assert set(expected.loc[frame["step_key"].isna(), "step"].dropna()) == {"iOS 17/18", "RSpec", "Web", "unit"}
    result = metrics.with_seconds(in_spark(frame.drop(columns="step"))).toArrow().select(["id", "step"]).to_pandas()
    found = result.set_index("id")["step"].reindex(frame["id"]).fillna("null")
    assert found.tolist() == expected["step"].fillna("null").tolist()


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
    assert metrics.step(pd.concat([frame_of("a 1/2"), frame_of("a 2/2", key="k")])).tolist() == ["a", "k"]
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
