"""Each second of a build lies in one segment of its critical chain, whatever is damaged."""

from __future__ import annotations

import tracemalloc
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buildframe import metrics
from buildframe.metrics import input_frames, retries
from tests.metrics.any_frame import LIBRARIES, connect_duckdb, in_spark
from tests.metrics.each_case import for_each
from tests.metrics.random_frames import builds_of, jobs_of
from tests.metrics.true_dependencies import STAMPS, agreement_of_single_builds, month, with_errors
from tests.refusals import refusal, wrong_messages

START = pd.Timestamp("2026-03-01", tz="UTC")
UTC = "datetime64[us, UTC]"
TEXTS = ["id", "build_id", "pipeline", "type", "state", "step", "retried_in_job_id", "retry_type", "queue"]
COLUMNS = {
    "build_id": "str", "pipeline": "str", "build_number": "Int64", "branch": "str", "build_created_at": UTC,
    "position": "Int64", "kind": "str", "job_id": "str", "step": "str", "queue": "str", "started_at": UTC,
    "finished_at": UTC, "duration_s": "float64",
}  # fmt: skip
Job = dict[str, Any]


def job(
    step: str, runnable: float | None = None, started: float | None = None, finished: float | None = None, **other: Any
) -> Job:
    """A job of build b that passed, created with its build; times are seconds after START."""
    stamps = {"created_at": 0, "runnable_at": runnable, "started_at": started, "finished_at": finished}
    usual = {"id": step, "build_id": "b", "type": "script", "state": "passed", "queue": "default", "step": step}
    return usual | stamps | {"unblocked_at": None} | other


def block(step: str, unblocked: float | None, **other: Any) -> Job:
    state = "blocked" if unblocked is None else "unblocked"
    return job(step, created_at=None, type="manual", state=state, unblocked_at=unblocked, queue=None) | other


def build(finished: float | None, id: str = "b", **other: Any) -> dict[str, Any]:
    usual = {"id": id, "pipeline": "web", "number": 1, "branch": "main", "state": "passed", "blocked": False}
    return usual | {"created_at": 0, "finished_at": finished} | other


def at(seconds: pd.Series) -> pd.Series:
    return (START + pd.to_timedelta((seconds.astype("Float64") * 1e6).round().astype("Int64"), unit="us")).astype(UTC)


def frames(builds: list[dict[str, Any]], jobs: list[Job]) -> tuple[pd.DataFrame, pd.DataFrame]:
    usual = {"pipeline": "web", "soft_failed": False, "retried_in_job_id": None, "retry_type": None}
    of_jobs = pd.DataFrame([usual | one for one in jobs], columns=[*usual, *job("a")])
    of_builds = pd.DataFrame(builds, columns=list(build(0)))
    of_jobs = of_jobs.assign(**{name: at(of_jobs[name]) for name in STAMPS})
    of_jobs = of_jobs.astype({**dict.fromkeys(TEXTS, "str"), "soft_failed": "boolean"})
    of_builds = of_builds.assign(**{name: at(of_builds[name]) for name in ("created_at", "finished_at")})
    return of_builds.astype({"number": "Int64", "blocked": "boolean"}), of_jobs


def segments(
    finished: float, *jobs: Job, more: list[dict[str, Any]] | None = None
) -> list[tuple[str, str | None, float]]:
    """Kind, job and seconds of the segments of build b."""
    ledger = metrics.time_ledger(*frames([build(finished), *(more or [])], list(jobs)))
    own = ledger[ledger["build_id"] == "b"]
    assert own["duration_s"].sum() == pytest.approx(finished, abs=1e-6)
    jobs_of_rows = [None if pd.isna(id) else id for id in own["job_id"]]
    return list(zip(own["kind"], jobs_of_rows, own["duration_s"].round(6), strict=True))


def wall(builds: pd.DataFrame) -> pd.Series:
    return builds.set_index("id")["finished_at"] - builds.set_index("id")["created_at"]


def assert_sums(builds: pd.DataFrame, ledger: pd.DataFrame) -> None:
    """Durations add up exactly, each segment starts where the one before ended, and counts are complete."""
    assert dict(ledger.drop(columns=["organization", "queue_id"], errors="ignore").dtypes.astype(str)) == COLUMNS
    spent = (ledger["finished_at"] - ledger["started_at"]).groupby(ledger["build_id"]).sum()
    pd.testing.assert_series_equal(spent, wall(builds.dropna(subset="id")).reindex(spent.index), check_names=False)
    seconds = ledger.groupby("build_id")["duration_s"].sum()
    assert ((seconds * 1e6).round() == spent / pd.Timedelta(1, "us")).all()
    same_build = ledger["build_id"].eq(ledger["build_id"].shift())
    assert (ledger["started_at"] == ledger["finished_at"].shift())[same_build].all()
    assert (ledger["position"] == ledger.groupby("build_id").cumcount()).all()
    assert ((ledger["duration_s"] != 0) | ~ledger.duplicated("build_id", keep=False)).all()
    counts = dict(ledger.attrs)
    assert len(counts.pop("open")["pipeline"]) == counts["n_running"] + counts["n_blocked"]
    assert counts.pop("n_negative") == (ledger["duration_s"] < 0).sum()
    assert counts["n_builds"] == ledger["build_id"].nunique()
    assert sum(counts.values()) == len(builds)


def test_a_small_pipeline():
    """Upload, which adds lint and test; test waits for lint; deploy waits for a person, and then for an agent."""
    assert segments(
        100,
        job("upload", 1, 3, 12),
        job("lint", 10, 11, 20, created_at=10),
        job("test", 20.5, 25, 40, created_at=10),
        block("approve", 70),
        job("deploy", 70, 80, 99, created_at=10),
    ) == [
        ("setup", "upload", 1), ("queue", "upload", 2), ("run", "upload", 7), ("queue", "lint", 1), ("run", "lint", 9),
        ("dependency", "test", 0.5), ("queue", "test", 4.5), ("run", "test", 15), ("blocked", "approve", 30),
        ("queue", "deploy", 10), ("run", "deploy", 19), ("unknown", None, 1),
    ]  # fmt: skip


SHAPES = ("source", "type", "both", "fetched", "only the new attempt", "before")


@for_each({shape: shape for shape in SHAPES})
def test_twenty_manual_retries_of_66_minutes_each_take_1320_minutes(shape: str):
    """Each fails after 10 minutes, and somebody repeats it 66 minutes later; 5 are repeated by the service."""
    listed, builds = [], []
    for i, kind in enumerate(["manual"] * 20 + ["automatic"] * 5):
        first = job(
            "unit", 0, 0, 600, id=f"{i} first", build_id=f"b{i}", state="failed", retried_in_job_id=f"{i} again"
        )
        again = job("unit", 4560, 4560, 4620, id=f"{i} again", build_id=f"b{i}", created_at=4560)
        source = f'{{"job_id":"{i} first","retry_type":"{kind}"}}'
        again["retry_source"] = source if shape in ("source", "both", "only the new attempt", "before") else None
        again["retry_type"] = kind if shape == "before" else None
        first["retry_type"] = kind if shape in ("type", "both") else None
        again |= {"retry_of_job_id": f"{i} first", "retry_of_type": kind} if shape == "fetched" else {}
        first |= {"retried_in_job_id": None} if shape == "only the new attempt" else {}
        listed += [first, again]
        builds.append(build(4620, id=f"b{i}"))
    of_builds, of_jobs = frames(builds, listed)
    more = {name: pd.Series([one.get(name) for one in listed], dtype="str") for name in retries.COLUMNS}
    spent = metrics.time_ledger(of_builds, of_jobs.assign(**more)).groupby("kind")["duration_s"].sum() / 60
    assert spent.to_dict() == {"manual_retry": 1320, "retry": 250, "run": 25, "unknown": 330}


@pytest.mark.long
def test_retries():
    repeated = job("unit", 0, 1, 10, state="failed", id="unit 1", retried_in_job_id="unit 2", retry_type="automatic")
    again = job("unit", 12, 15, 30, id="unit 2", created_at=12)
    later = [("dependency", "unit 2", 2), ("queue", "unit 2", 3), ("run", "unit 2", 15)]
    assert segments(30, again, repeated) == [("queue", "unit 1", 1), ("retry", "unit 1", 9), *later]
    manual = again | {"runnable_at": 7000, "started_at": 7001, "finished_at": 7010}
    assert segments(7010, manual, repeated | {"retry_type": "manual"})[2:] == [
        ("manual_retry", "unit 2", 6990), ("queue", "unit 2", 1), ("run", "unit 2", 9),
    ]  # fmt: skip
    # Of a repeat whose first attempt is not in the frame, only its own time is known.
    assert segments(7010, manual) == [("setup", "unit 2", 7000), ("queue", "unit 2", 1), ("run", "unit 2", 9)]
    expired = job("unit", 0, None, 10, state="expired", id="unit 1", retried_in_job_id="unit 2")
    assert segments(30, expired, again)[0] == ("queue", "unit 1", 10)


def test_a_trigger_step_has_no_queue():
    assert segments(60, job("test", 0, 1, 10), job("child", 10, None, 60, type="trigger", queue=None))[2:] == [
        ("trigger", "child", 50)
    ]


def test_a_job_that_ended_while_it_waited():
    for state in ("canceled", "expired"):
        ended = segments(50, job("test", 5, None, 50, state=state))
        assert ended == [("setup", "test", 5), ("queue", "test", 45)], state


def test_a_limit_of_concurrency():
    """Deploy of build b waits until that of build a has ended; without the other build its wait is unknown."""
    own = [job("test", 0, 0, 10), job("deploy", 61, 62, 70)]
    others = [
        one | {"id": f"a {one['id']}", "build_id": "a"} for one in (job("test", 0, 0, 10), job("deploy", 10, 11, 60))
    ]
    kinds = [kind for kind, _, _ in segments(70, *own, *others, more=[build(60, id="a")])]
    assert kinds == ["run", "concurrency", "queue", "run"]
    assert [kind for kind, _, _ in segments(70, *own)] == ["run", "unknown", "queue", "run"]
    others[1]["finished_at"] = 50
    assert segments(70, *own, *others)[1] == ("unknown", "deploy", 51)


@pytest.mark.long
def test_a_limit_of_concurrency_of_a_first_step():
    """Without steps before, a job waits for the limit from the creation of its build."""
    own, other = job("deploy", 60.9, 62, 70), job("deploy", 0, 1, 60, id="a deploy", build_id="a")
    more = [build(60, id="a")]
    assert segments(70, own, other, more=more)[0] == ("concurrency", "deploy", 60.9)
    assert segments(70, own)[0] == ("setup", "deploy", 60.9)
    assert segments(70, own, other | {"finished_at": 59.8}, more=more)[0] == ("setup", "deploy", 60.9)
    assert segments(70, own, other | {"finished_at": 61}, more=more)[0] == ("setup", "deploy", 60.9)
    soon = own | {"runnable_at": 4}
    assert segments(70, soon, other | {"finished_at": 3.5}, more=more)[0] == ("setup", "deploy", 4)


def test_the_last_job_is_cut_at_the_end_of_its_build():
    assert segments(20, job("test", 0, 5, 90)) == [("queue", "test", 5), ("run", "test", 15)]
    # Two end with the build: the one that ran, and of these the one that ran longer.
    assert segments(20, job("a", 0, None, 20, state="canceled"), job("b", 0, 9, 20), job("c", 0, 5, 25))[-1] == (
        "run",
        "c",
        15,
    )
    assert segments(20, job("a", 0, None, 20, state="canceled"), job("b", 0, 20, 20))[-1] == ("queue", "b", 20)


def test_an_allowed_failure_is_followed_by_the_job_that_it_released():
    failed = job("slow", 0, 0, 30, state="failed")
    assert segments(50, job("fast", 0, 0, 10), failed, job("report", 31, 31, 50)) == [
        ("run", "slow", 30),
        ("dependency", "report", 1), ("run", "report", 19),
    ]  # fmt: skip
    soft = failed | {"soft_failed": True}
    assert segments(50, job("fast", 0, 0, 10), soft, job("report", 31, 31, 50))[0] == ("run", "slow", 30)
    canceled = failed | {"state": "canceled"}
    assert segments(50, job("fast", 0, 0, 10), canceled, job("report", 31, 31, 50))[:2] == [
        ("run", "fast", 10), ("unknown", "report", 21),
    ]  # fmt: skip


def test_a_step_is_released_by_its_last_shard():
    shards = [job("unit", 0, 0, end, id=f"unit {end}") for end in (10, 30, 20)]
    assert segments(40, *shards, job("pack", 30, 30, 40)) == [("run", "unit 30", 30), ("run", "pack", 10)]
    shards[2] |= {"state": "broken", "finished_at": None, "runnable_at": None, "started_at": None}
    assert segments(40, *shards, job("pack", 30, 30, 40))[0] == ("run", "unit 30", 30)


def test_an_upload_while_others_run():
    """Upload 2 adds deploy while tests run, and deploy starts at once."""
    assert segments(
        60,
        job("upload", 0, 0, 5),
        job("test", 4, 4, 50, created_at=4),
        job("upload 2", 4, 20, 40, created_at=4),
        job("deploy", 30, 35, 60, created_at=30),
    ) == [
        ("run", "upload", 4),
        ("queue", "upload 2", 16),
        ("run", "upload 2", 10),
        ("queue", "deploy", 5),
        ("run", "deploy", 25),
    ]


def test_of_jobs_that_run_at_an_upload_it_is_the_one_that_always_does():
    """A test starts after upload 2 in build b; in others, which waited less for an agent, it has ended by then."""
    uploads = [job("upload 2", 0, 2, 40), job("deploy", 30, 30, 60, created_at=30)]
    others = [
        one | {"id": f"{one['id']} {i}", "build_id": f"a{i}"}
        for i in range(2)
        for one in [*uploads, job("test", 0, 1, 9)]
    ]
    assert segments(60, *uploads, job("test", 0, 20, 50), *others) == [
        ("queue", "upload 2", 2), ("run", "upload 2", 28), ("run", "deploy", 30),
    ]  # fmt: skip


@pytest.mark.long
def test_thousands_of_uploads_in_a_build_need_little_memory():
    """Each job is added while half of all others run: as pairs, they would need 50 MB."""
    n = 2000
    jobs = [job(f"s{i % 20}", i + 1, i + 2, i + n, id=f"j{i:04d}", created_at=i) for i in range(n)]
    of_builds, of_jobs = frames([build(2 * n)], jobs)
    tracemalloc.start()
    ledger = metrics.time_ledger(of_builds, of_jobs)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6
    assert ledger["duration_s"].sum() == 2 * n


@pytest.mark.long
def test_missing_timestamps_are_unknown():
    assert segments(20, job("test", None, 5, 20)) == [("unknown", "test", 5), ("run", "test", 15)]
    assert segments(20, job("test", 2, None, 20)) == [("setup", "test", 2), ("unknown", "test", 18)]
    ended_with_build = [("setup", "test", 2), ("queue", "test", 1), ("run", "test", 17)]
    assert segments(20, job("test", 2, 3, None)) == ended_with_build
    assert segments(20, job("a", 0, 0, 5), job("b", None, 5, 20)) == [("run", "a", 5), ("run", "b", 15)]
    assert segments(20) == [("unknown", None, 20)]


def test_builds_without_rows_are_counted():
    others = {
        "running": build(None, state="running"), "reopened": build(5, state="failing"), "held": build(5, blocked=True),
        "held in webhooks": build(5, state="blocked"), "skipped": build(5, state="skipped"),
        "not run": build(None, state="not_run"), "no end": build(None), "instant": build(0),
    }  # fmt: skip
    builds, jobs = frames([one | {"id": id} for id, one in others.items()], [])
    ledger = metrics.time_ledger(builds, jobs)
    assert ledger[["build_id", "kind", "duration_s"]].to_numpy().tolist() == [["instant", "unknown", 0]]
    counts = {"n_running": 2, "n_blocked": 2, "n_skipped": 1, "n_not_run": 1, "n_without_times": 1}
    opened = {"pipeline": ["web"] * 4, "build_created_at": [START.isoformat()] * 4}
    assert ledger.attrs == {"n_builds": 1, **counts, "n_negative": 0, "open": opened}


def test_skew_is_kept_and_counted():
    builds, jobs = frames([build(20)], [job("test", -2, 4, 3), job("pack", 3, 2, 20)])
    ledger = metrics.time_ledger(builds, jobs)
    assert ledger["duration_s"].tolist() == [-2, 6, -1, -1, 18]
    assert ledger.attrs["n_negative"] == 3
    assert_sums(builds, ledger)


def test_jobs_that_seem_to_wait_for_each_other_end_the_chain():
    chain = [job("a", 50, 0, 10), job("b", 10, 30, 50)]
    assert sum(seconds for _, _, seconds in segments(60, *chain)) == 60


stamp = st.integers(-3_000_000, 90_000_000) | st.sampled_from([0, 10_000_000, 20_000_000]) | st.none()
TYPES = st.sampled_from(["script", "script", "script", "trigger", "manual", "waiter", None])
STATES = st.sampled_from(["passed", "passed", "failed", "timed_out", "canceled", "expired", "broken", "skipped", None])
drawn_jobs = st.lists(
    st.tuples(
        st.sampled_from("abc"), st.sampled_from(["unit", "lint", "deploy", None]), TYPES,
        STATES,
        st.tuples(*[stamp] * 5), st.integers(-1, 8), st.sampled_from(["manual", "automatic", None]), st.booleans(),
    ),
    max_size=14,
)  # fmt: skip
drawn_builds = st.lists(st.tuples(st.sampled_from("abcd"), stamp, stamp), unique_by=lambda one: one[0], max_size=4)


def drawn_frames(builds: list[Any], jobs: list[Any]) -> tuple[pd.DataFrame, pd.DataFrame]:
    seconds = [(None if one is None else one / 1e6 for one in of[4]) for of in jobs]
    rows = [
        dict(zip(STAMPS, stamps, strict=True))
        | {"id": f"j{i}", "build_id": of[0], "step": of[1], "type": of[2], "state": of[3], "queue": "default"}
        | {"retried_in_job_id": f"j{of[5]}" if of[5] >= 0 else None, "retry_type": of[6], "soft_failed": of[7]}
        for i, (of, stamps) in enumerate(zip(jobs, seconds, strict=True))
    ]
    times = [(id, *(None if one is None else one / 1e6 for one in own)) for id, *own in builds]
    return frames([build(finished, id=id, created_at=created) for id, created, finished in times], rows)


@pytest.mark.long
@settings(max_examples=50)
@given(drawn_builds, drawn_jobs, st.randoms(use_true_random=False))
def test_seconds_always_add_up_in_any_order_of_rows(builds: list[Any], jobs: list[Any], random: Any):
    of_builds, of_jobs = drawn_frames(builds, jobs)
    before = of_jobs.copy(deep=True)
    ledger = metrics.time_ledger(of_builds, of_jobs)
    assert_sums(of_builds, ledger)
    pd.testing.assert_frame_equal(of_jobs, before)
    places = list(range(len(of_jobs)))
    random.shuffle(places)
    pd.testing.assert_frame_equal(metrics.time_ledger(of_builds.iloc[::-1], of_jobs.iloc[places]), ledger)


DAMAGES: dict[str, Any] = {
    "none": lambda jobs, random: jobs,
    "missing stamps": lambda jobs, random: jobs.assign(
        **{name: jobs[name].where(random.random(len(jobs)) > 0.05) for name in STAMPS}
    ),
    "skew": lambda jobs, random: jobs.assign(
        **{name: jobs[name] + pd.to_timedelta(random.normal(0, 9e6, len(jobs)).round(), unit="us") for name in STAMPS}
    ),
    "missing jobs": lambda jobs, random: jobs[random.random(len(jobs)) > 0.2],
    "no retried attempts": lambda jobs, random: jobs[~jobs["retried"].fillna(False)],
    "swapped stamps": lambda jobs, random: jobs.assign(started_at=jobs["finished_at"], finished_at=jobs["started_at"]),
}


@pytest.mark.long
@pytest.mark.parametrize("damage", DAMAGES)
def test_seconds_add_up_in_a_damaged_month(damage: str):
    builds, jobs = month(1)
    random = np.random.default_rng(5)
    damaged = DAMAGES[damage](jobs, random)
    ledger = metrics.time_ledger(builds, damaged)
    assert_sums(builds, ledger)
    assert {"blocked", "queue", "run"} <= set(ledger["kind"])
    assert ("retry" in set(ledger["kind"])) == (damage != "no retried attempts")
    shuffled = damaged.iloc[random.permutation(len(damaged))]
    pd.testing.assert_frame_equal(metrics.time_ledger(builds.sample(frac=1, random_state=3), shuffled), ledger)


@pytest.mark.long
def test_the_chain_of_a_build_alone_is_nearly_that_of_its_pipeline():
    builds, jobs = month(1)
    for of_jobs, least in ((jobs, 0.995), (with_errors(jobs), 0.98)):
        of_builds, of_seconds = agreement_of_single_builds(builds, of_jobs)
        assert of_seconds >= least
        assert of_builds >= least - 0.1


def as_stored(frame: pd.DataFrame) -> pd.DataFrame:
    return metrics.with_seconds(frame)


def of_library(library: str, *frames: pd.DataFrame) -> tuple[Any, ...]:
    """Return frames of a library; those of DuckDB have one connection."""
    if library != "duckdb":
        return tuple((LIBRARIES | {"spark": in_spark})[library](frame) for frame in frames)
    connection = connect_duckdb()
    for i, frame in enumerate(frames):
        connection.register(f"frame {i}", frame)
    return tuple(connection.table(f"frame {i}") for i in range(len(frames)))


KINDS = ("many", "few", "none", "all null")


@pytest.mark.long
@pytest.mark.parametrize(
    ("library", "kind"),
    [
        *((library, kind) for library in ("polars, lazy", "duckdb") for kind in KINDS),
        ("spark", "many"),
        ("spark", "all null"),
    ],
)
def test_frames_of_other_libraries_give_the_same(library: str, kind: str):
    builds, jobs = builds_of(kind), jobs_of(kind)
    expected = metrics.time_ledger(as_stored(builds), as_stored(jobs))
    assert_sums(builds, expected)
    found = metrics.time_ledger(*of_library(library, as_stored(builds), as_stored(jobs)))
    pd.testing.assert_frame_equal(found, expected)
    assert found.attrs == expected.attrs


@pytest.mark.long
def test_pipelines_are_divided_one_after_the_other(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(input_frames, "_BATCH_ROWS", 7)
    builds, jobs = as_stored(builds_of("many")), as_stored(jobs_of("many"))
    slugs = pd.Series([f"pipeline {i % 40:02d}" for i in range(len(builds))], dtype="str")
    slug_of = dict(zip(builds["id"], slugs, strict=True))
    builds, jobs = builds.assign(pipeline=slugs), jobs.assign(pipeline=jobs["build_id"].map(slug_of).astype("str"))
    for metric in (metrics.time_ledger, lambda _, jobs: metrics.step_graph(jobs)):
        found = metric(*of_library("duckdb", builds, jobs))
        pd.testing.assert_frame_equal(found, metric(builds, jobs))


@pytest.mark.long
@pytest.mark.parametrize("rows", [500_000, 1])
def test_jobs_of_another_pipeline_than_their_build_are_not_on_its_chain(monkeypatch: pytest.MonkeyPatch, rows: int):
    monkeypatch.setattr(input_frames, "_BATCH_ROWS", rows)
    builds, jobs = frames([build(20), build(9, id="c", pipeline="api")], [job("a", 0, 0, 10), job("z", 11, 11, 20)])
    jobs = jobs.assign(pipeline=pd.Series(["api", "web"], dtype="str"))
    for made in (builds, jobs), of_library("duckdb", builds, jobs):  # DuckDB gives the rows in batches
        ledger = metrics.time_ledger(*made)
        assert ledger["kind"].tolist() == ["unknown", "setup", "run"]
        assert ledger["job_id"].tolist()[1:] == ["z", "z"]


def test_builds_without_ids_have_no_jobs():
    builds, jobs = frames([build(20), build(9, id="c"), build(5, id="d")], [job("a", 0, 0, 20)])
    ledger = metrics.time_ledger(builds.assign(id=pd.Series(["b", None, None], dtype="str")), jobs)
    found = zip(ledger["kind"], ledger["duration_s"], strict=True)
    assert sorted(found) == [("run", 20), ("unknown", 5), ("unknown", 9)]
    assert ledger.attrs["n_builds"] == 3


def test_builds_and_jobs_may_be_frames_of_different_libraries():
    builds, jobs = frames([build(20)], [job("a", 0, 0, 20)])
    expected = metrics.time_ledger(builds, jobs)
    for other in (pl.from_pandas(jobs), duckdb.from_df(jobs), LIBRARIES["duckdb"](jobs)):
        pd.testing.assert_frame_equal(metrics.time_ledger(builds, other), expected)
        pd.testing.assert_frame_equal(metrics.time_ledger(LIBRARIES["duckdb"](builds), other), expected)


def test_pipelines_of_two_organizations_are_apart():
    builds, jobs = frames([build(20), build(20, id="c")], [job("a", 0, 0, 20), job("z", 0, 0, 20, build_id="c")])
    builds, jobs = (one.assign(organization=pd.Series(["globex", "acme"], dtype="str")) for one in (builds, jobs))
    ledger = metrics.time_ledger(builds, jobs)
    assert list(ledger) == ["build_id", "organization", *list(COLUMNS)[1:]]
    assert ledger[["organization", "step"]].to_numpy().tolist() == [["acme", "z"], ["globex", "a"]]
    assert list(metrics.time_ledger(builds.drop(columns="organization"), jobs)) == list(COLUMNS)


def test_ids_of_builds_that_have_not_ended_are_unique():
    for states in (("running", "running"), ("running", "passed"), ("passed", "skipped")):
        builds, jobs = frames([build(20, state=state) for state in states], [job("a", 0, 0, 20)])
        assert "The id 'b' occurs in several rows" in refusal(metrics.time_ledger, builds, jobs)


def test_wrong_input_is_named():
    builds, jobs = frames([build(20)], [job("a", 0, 0, 20)])
    naive = jobs.assign(runnable_at=jobs["runnable_at"].dt.tz_localize(None))
    assert wrong_messages([
        ("no column 'retry_of_type'", lambda: metrics.time_ledger(builds, jobs.drop(columns="retry_type"))),
        ("no column 'step_key'", lambda: metrics.time_ledger(builds, jobs.drop(columns="step"))),
        ("no column 'branch'", lambda: metrics.time_ledger(builds.drop(columns="branch"), jobs)),
        ("The id 'a' occurs in several rows", lambda: metrics.time_ledger(builds, pd.concat([jobs, jobs]))),
        ("The id 'b' occurs in several rows", lambda: metrics.time_ledger(pd.concat([builds, builds]), jobs)),
        ("no time zone", lambda: metrics.time_ledger(builds, naive)),
        ("'Passed', which is not a state", lambda: metrics.time_ledger(builds.assign(state="Passed"), jobs)),
    ]) == {}  # fmt: skip


def test_block_steps_without_a_name_have_their_label_as_step():
    builds, jobs = frames([build(60)], [job("test", 0, 0, 10), block("x", 30), block("y", 40), job("ship", 40, 40, 60)])
    jobs = jobs.assign(
        step=jobs["step"].where(jobs["type"] == "script"), label=jobs["step"].where(jobs["type"] == "manual")
    )
    ledger = metrics.time_ledger(builds, jobs)
    assert ledger["step"].tolist() == ["test", "x", "y", "ship"]
