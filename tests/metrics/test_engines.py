"""Every summary gives the same result on every engine, whatever the rows."""

from __future__ import annotations

import inspect

import polars as pl
import pytest

from buildframe import metrics
from buildframe.errors import BadInput
from tests.metrics.engine_frames import (
    ENGINES,
    FUNCTIONS,
    LIKE_OTHERS,
    SMALL,
    SUMMARIES,
    assert_same,
    differences,
    flaky_tests,
    frame_on,
    names_of,
    plain_of,
    table_of,
    wrong_refusals,
)
from tests.metrics.random_frames import jobs_of

COMPARED_ELSEWHERE = {"explain", "flaky_board", "flaky_lifecycle", "time_ledger", "with_seconds"}
"""Functions of other rows than jobs and builds, or of both, or with a result for each row."""


def test_no_summary_is_forgotten() -> None:
    """A summary is a public function whose first argument is a frame of any engine."""
    first = {
        name: next(iter(inspect.signature(getattr(metrics, name)).parameters.values())) for name in metrics.__all__
    }
    of_any_engine = {name for name, parameter in first.items() if parameter.annotation == "Frame"}
    assert of_any_engine - COMPARED_ELSEWHERE == {*FUNCTIONS}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_engines_give_the_same_as_pandas(function: str) -> None:
    names = names_of(function)
    cases = [(name, "polars, lazy", "many") for name in names]
    cases += [(name, "duckdb in New York", "many") for name in names if name not in LIKE_OTHERS]
    cases += [(names[0], "arrow, in another order", "many")]
    assert differences(cases) == {}


@pytest.mark.long
@pytest.mark.parametrize("kind", SMALL)
def test_engines_give_the_same_for_few_rows(kind: str) -> None:
    plain = [name for function in FUNCTIONS for name in plain_of(function)]
    of_kind = [name for name in plain if table_of(name) == "jobs" or kind != "only waiters"]
    ways = ["polars, lazy", "duckdb", *(["columns without a type"] if kind == "all null" else [])]
    assert differences((name, way, kind) for name in of_kind for way in ways) == {}


@pytest.mark.long
def test_the_streaming_engine_of_polars_gives_the_same() -> None:
    with pl.Config(engine_affinity="streaming"):
        assert differences((name, "polars, lazy", "many") for name in SUMMARIES) == {}


@pytest.mark.long
def test_options_give_the_same_too() -> None:
    cases = [(name, "duckdb", "many") for name in SUMMARIES if name in LIKE_OTHERS]
    cases += [(name, "arrow, in another order", "many") for function in FUNCTIONS for name in names_of(function)[1:]]
    assert differences(cases) == {}


@pytest.mark.parametrize("engine", ENGINES)
def test_of_flaky_tests(engine: str) -> None:
    before, after = flaky_tests()
    convert = ENGINES[engine]
    assert_same(metrics.flaky_board(convert(after), convert(before)), metrics.flaky_board(after, before))


def test_times_are_keys_in_utc_in_a_session_of_another_zone() -> None:
    by_time = metrics.percentiles(frame_on("duckdb in New York", "jobs", "few"), by="build_created_at")
    assert by_time["build_created_at"].dtype == "datetime64[us, UTC]"
    assert_same(by_time, metrics.percentiles(frame_on("pandas", "jobs", "few"), by="build_created_at"))


@pytest.mark.parametrize("engine", ENGINES)
def test_timestamps_replace_missing_columns_of_seconds(engine: str) -> None:
    jobs = jobs_of("many")
    assert_same(metrics.percentiles(ENGINES[engine](jobs), by="queue"), metrics.percentiles(jobs, by="queue"))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_custom_column(engine: str) -> None:
    jobs = jobs_of("many").assign(twice_s=2 * jobs_of("many").pipe(metrics.run_time).dt.total_seconds())
    for by in (None, "queue"):
        result = metrics.percentiles(ENGINES[engine](jobs), of="twice_s", by=by)
        assert_same(result, metrics.percentiles(jobs, of="twice_s", by=by))
        assert result["n_censored"].isna().all()


@pytest.mark.parametrize("engine", ENGINES)
def test_an_error_names_the_missing_column(engine: str) -> None:
    jobs = ENGINES[engine](jobs_of("few").drop(columns="runnable_at"))
    calls = {
        r"no column 'runnable_at'; it comes with ws\.jobs\(\)": (metrics.queue_time, None),
        "no column 'step'": (metrics.run_time, metrics.step),
        "no column 'nonsense'": (metrics.run_time, "nonsense"),
    }
    cases = [
        (words, lambda of=of, by=by: metrics.percentiles(jobs, of, by), words) for words, (of, by) in calls.items()
    ]
    assert wrong_refusals(cases) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_keys_that_have_no_order_are_refused(engine: str) -> None:
    jobs = metrics.with_seconds(jobs_of("few"))
    odd = {"List": [["a"]] * len(jobs), "Struct": [{"a": 1}] * len(jobs)}
    frame = ENGINES[engine](jobs.assign(**odd))
    cases = [
        (by, lambda by=by: metrics.percentiles(frame, of=metrics.run_time, by=by), f"'{name}' cannot .* holds {name}")
        for name in odd
        for by in (name, ["queue", name])
    ]
    assert wrong_refusals(cases) == []


def test_another_type_than_a_frame_is_refused() -> None:
    with pytest.raises(BadInput, match="A list"):
        metrics.success_rate([1, 2])
