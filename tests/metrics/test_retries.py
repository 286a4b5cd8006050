from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buildframe.metrics.retries import retry_rate, with_retries
from tests.metrics.metric_frames import at
from tests.refusals import columns_not_named, refusal

TEXTS = ("id", "type", "state", "retried_in_job_id", "retry_type", "retry_source", "queue")
COUNTS = ["executions", "retried", "retried_passed", "automatic", "manual", "of_unknown_kind"]


def attempts(*listed: dict[str, object]) -> pd.DataFrame:
    """Jobs of type script that passed and started, unless they say otherwise."""
    usual = {"id": None, "type": "script", "state": "passed", "started": 0, "retried": False, "queue": "default"}
    names = [*usual, "retried_in_job_id", "retry_type", "retry_source"]
    frame = pd.DataFrame([usual | one for one in listed], columns=names)
    frame = frame.assign(started_at=at(*frame.pop("started")))
    return frame.astype(dict.fromkeys(TEXTS, "str") | {"retried": "boolean"})


def source(id: str, kind: str | None) -> str:
    """`retry_source` of an attempt that repeats another one, as the service sends it."""
    return json.dumps({"job_id": id, "retry_type": kind})


def test_retries_by_what_happened_to_each_job():
    frame = attempts(
        {"id": "a", "state": "failed", "retried": True, "retried_in_job_id": "b"},
        {"id": "b", "retry_source": source("a", "automatic")},
        {"id": "c", "retried": True, "retried_in_job_id": "d"},  # one may retry what passed
        {"id": "d", "retry_source": source("c", "manual"), "started": None},  # waits
        {"id": "e", "state": "failed", "retried": True, "retried_in_job_id": "gone"},
        {"id": "f", "state": "expired", "started": None, "retried": True, "retried_in_job_id": "g"},
        {"id": "g", "retry_source": source("f", "manual")},
        {"id": "h", "state": "running", "retried": None},
        {"id": "i", "type": "trigger", "retried": True},
        {"id": "j"},
    )
    result = retry_rate(frame).loc[0]
    assert result[COUNTS].tolist() == [7, 3, 1, 1, 1, 1]
    assert result["rate"] == 3 / 7
    assert result[["low", "high", "n_effective"]].isna().all(), "all start at one time"
    assert result[["automatic_rate", "manual_rate"]].tolist() == [1 / 7, 1 / 7]


SHAPES: dict[str, Callable[[str], tuple[dict[str, object], dict[str, object]]]] = {
    "retry_source only": lambda kind: ({}, {"retry_source": source("first", kind)}),
    "retry_type of the retried attempt only": lambda kind: ({"retry_type": kind}, {}),
    "both": lambda kind: ({"retry_type": kind}, {"retry_source": source("first", kind)}),
    "a source that says nothing": lambda kind: ({"retry_type": kind}, {"retry_source": source("first", None)}),
    "a sandbox before 1.0": lambda kind: ({}, {"retry_type": kind, "retry_source": source("first", kind)}),
}
"""What the retried and the new attempt say, by the shape in which a service sends it."""


def retried_in(shape: str, kinds: list[str]) -> list[dict[str, object]]:
    """Attempts of a queue that is called like the shape, newest first."""
    jobs: list[dict[str, object]] = []
    for i, kind in enumerate(kinds):
        old, new = f"{shape} {i}", f"{shape} {i} again"
        first, again = SHAPES[shape](kind)
        if "retry_source" in again:
            again["retry_source"] = str(again["retry_source"]).replace('"first"', f'"{old}"')
        jobs += [{"id": old, "state": "failed", "retried": True, "retried_in_job_id": new} | first, {"id": new} | again]
    return [{"queue": shape} | job for job in reversed(jobs)]


def test_four_automatic_and_two_manual_retries_in_each_shape():
    frame = attempts(*(job for shape in SHAPES for job in retried_in(shape, ["automatic"] * 4 + ["manual"] * 2)))
    named = with_retries(frame)[["retry_of_job_id", "retry_of_type"]].assign(retry_type=None, retry_source=None)
    fetched = frame.assign(**named.astype("str"))
    for rows in (frame, fetched):
        counts = retry_rate(rows, by="queue").set_index("queue")[COUNTS]
        assert counts.T.to_dict("list") == {shape: [12, 6, 0, 4, 2, 0] for shape in SHAPES}
    unlinked = fetched.assign(retried_in_job_id=pd.Series(None, frame.index, dtype="str"))
    counts = retry_rate(unlinked, by="queue").set_index("queue")[["automatic", "manual"]]
    assert counts.T.to_dict("list") == {shape: [4, 2] for shape in SHAPES}, "retried, nobody knows in which job"


def test_the_kind_performed_on_a_job_says_nothing_about_its_origin():
    frame = attempts(
        {"id": "a", "retried": True, "retried_in_job_id": "b", "retry_type": "automatic"},
        {"id": "b", "retried": True, "retried_in_job_id": "c", "retry_type": "manual"},
        {"id": "c"},
    )
    assert with_retries(frame)["retry_of_type"].fillna("none").tolist() == ["none", "automatic", "manual"]
    assert with_retries(frame)["retry_of_job_id"].fillna("none").tolist() == ["none", "a", "b"]
    assert retry_rate(frame)[COUNTS].to_numpy().tolist() == [[3, 2, 2, 1, 1, 0]]


def test_retry_sources_may_be_dicts():
    frame = attempts({"id": "a", "retried": True, "retried_in_job_id": "b"}, {"id": "b"})
    frame["retry_source"] = pd.Series([None, {"job_id": "a", "retry_type": "manual"}], dtype=object)
    assert retry_rate(frame)["manual"].tolist() == [1]
    assert with_retries(frame)["retry_of_type"].tolist()[1] == "manual"


def test_a_retry_counts_in_the_group_of_the_job_that_was_retried():
    frame = attempts(
        {"id": "a", "retried": True, "retried_in_job_id": "b", "queue": "mac"},
        {"id": "b", "retry_source": source("a", "automatic"), "queue": "linux"},
        {"id": "c", "started": None, "queue": None},
    )
    result = retry_rate(frame, by="queue")
    assert result["queue"].tolist()[:2] == ["linux", "mac"]
    assert result["automatic"].tolist() == [0, 1, 0]
    assert result["executions"].tolist() == [1, 1, 0]
    assert result.loc[2, ["rate", "low", "high", "automatic_rate", "manual_rate"]].isna().all()


def test_a_job_that_is_there_twice_takes_the_place_once():
    frame = attempts(
        {"id": "a", "retried": True, "retried_in_job_id": "b"},
        {"id": "b", "retry_source": source("a", "manual")},
        {"id": "b", "retry_source": source("a", "manual")},
    )
    assert retry_rate(frame)[COUNTS].to_numpy().tolist() == [[3, 1, 1, 0, 1, 0]]


def test_dtypes_hold_whatever_the_rows():
    full = retry_rate(attempts({"id": "a"}), by="queue")
    dtypes = {"queue": "str"} | dict.fromkeys(COUNTS, "Int64")
    rates = dict.fromkeys(["rate", "low", "high", "n_effective", "automatic_rate", "manual_rate"], "float64")
    assert full.dtypes.astype(str).to_dict() == dtypes | rates
    empty = attempts({}).iloc[:0]
    assert retry_rate(empty, by="queue").dtypes.equals(full.dtypes)
    assert retry_rate(empty).empty
    for rows in (empty, empty.reindex([0, 1])):
        untyped = rows.astype(object).astype({"started_at": rows["started_at"].dtype})
        assert retry_rate(untyped)["executions"].sum() == 0


def test_columns_of_nulls_have_no_type_in_polars():
    frame = pl.from_pandas(attempts({"id": "a", "retried": True}, {"id": "b", "retry_source": source("a", "manual")}))
    for names in (["retried_in_job_id"], ["retry_source"], ["retried_in_job_id", "retry_source"]):
        result = retry_rate(frame.with_columns(**dict.fromkeys(names, pl.lit(None))))
        assert result[COUNTS].to_numpy().tolist() == [[2, 1, 1, 0, 0, 1]], names


def test_missing_columns_are_named():
    names = ["id", "type", "state", "started_at", "retried", "retried_in_job_id"]
    assert columns_not_named(retry_rate, attempts({"id": "a"}), names) == set()
    without = attempts({"id": "a"}).drop(columns=["retry_type", "retry_source"])
    assert "no column 'retry_of_type'" in refusal(retry_rate, without)


one = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["script", "script", "trigger", None]),
        "state": st.sampled_from(["passed", "failed", None]),
        "started": st.sampled_from([0, 0, None]),
        "retried": st.sampled_from([True, True, False, None]),
        "retried_in_job_id": st.sampled_from(["0", "1", "2", "gone", None]),
        "retry_type": st.sampled_from(["automatic", "manual", "by magic", None]),
        "retry_source": st.sampled_from([source("x", kind) for kind in ("automatic", "manual", None)] + [None]),
        "queue": st.sampled_from(["a", "b", None]),
    }
)
many = st.lists(one, max_size=8).map(lambda drawn: [job | {"id": str(i)} for i, job in enumerate(drawn)])


def naive(drawn: list[dict[str, object]]) -> dict[object, list[int]]:
    kinds = {job["id"]: json.loads(str(job["retry_source"] or "{}")).get("retry_type") for job in drawn}
    counts: dict[object, list[int]] = {}
    for job in drawn:
        if job["type"] != "script":
            continue
        count = counts.setdefault(job["queue"], [0] * len(COUNTS))
        if job["started"] is not None:
            count[0] += 1
            if job["retried"]:
                kind = kinds.get(job["retried_in_job_id"]) or job["retry_type"]
                count[1] += 1
                count[2] += job["state"] == "passed"
                count[{"automatic": 3, "manual": 4}.get(str(kind), 5)] += 1
    return counts


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(many, st.randoms(use_true_random=False))
def test_agrees_with_the_definition_in_any_order(drawn, random):
    result = retry_rate(attempts(*random.sample(drawn, len(drawn))), by="queue")
    found = {None if pd.isna(row[0]) else row[0]: list(row[1:7]) for row in result.itertuples(index=False)}
    assert found == naive(drawn)
    np.testing.assert_array_equal(result["automatic"] + result["manual"] + result["of_unknown_kind"], result["retried"])
    assert list(found) == sorted(found, key=lambda key: (key is None, key))
