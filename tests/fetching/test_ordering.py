"""Batches of a listing arrive in any order and are put in order."""

from __future__ import annotations

import itertools
import random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from buildframe.fetching.ordering import Batch, newest_first
from tests.in_memory_service import at

Made = tuple[int, int]
"""When a build was created, and how many jobs it has."""


def batch(builds: list[Made], ids: itertools.count[int], number: int = 1, *, jobs: bool = True) -> Batch:
    """Return a batch whose builds are numbered by the next ids."""
    own = [next(ids) for _ in builds]
    of = [id for id, (_, count) in zip(own, builds, strict=True) for _ in range(count)]
    nth = [n for _, count in builds for n in range(count)]
    heads, inside = numbers(id=own, us=[us for us, _ in builds]), numbers(build=of, nth=nth)
    counts = [count for _, count in builds] if jobs else []
    return Batch(heads, [at(us) for us, _ in builds], inside if jobs else None, counts, number)


def numbers(**columns: list[int]) -> pa.Table:
    return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})


def column(batches: list[Batch], table: str, name: str) -> list[int]:
    return [value for each in batches for value in getattr(each, table)[name].to_pylist()]


@st.composite
def arrived(draw: st.DrawFn) -> list[Batch]:
    """Pages of one list, each newest first or a little out of order, some overlapping, in any order of arrival."""
    ids = itertools.count(1)
    jobs = draw(st.booleans())
    pages = draw(st.lists(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3)), max_size=5), max_size=6))
    if draw(st.booleans()):
        pages = [sorted(page, reverse=True) for page in pages]
    batches = [batch(page, ids, number, jobs=jobs) for number, page in enumerate(pages, 1)]
    return draw(st.permutations(batches))


@given(arrived())
def test_builds_are_newest_first_and_jobs_follow_their_builds(batches: list[Batch]) -> None:
    ordered = list(newest_first(list(batches)))
    created = column(ordered, "builds", "us")
    assert sorted(column(ordered, "builds", "id")) == sorted(column(batches, "builds", "id"))
    assert created == sorted(created, reverse=True)
    assert [stamp.us - at(0).us for each in ordered for stamp in each.created] == created
    if batches and batches[0].jobs is not None:
        counts = dict(
            zip(column(batches, "builds", "id"), itertools.chain(*(p.job_counts for p in batches)), strict=True)
        )
        ids = column(ordered, "builds", "id")
        assert column(ordered, "jobs", "build") == [id for id in ids for _ in range(counts[id])]
        assert column(ordered, "jobs", "nth") == [n for id in ids for n in range(counts[id])]
        assert list(itertools.chain(*(each.job_counts for each in ordered))) == [counts[id] for id in ids]


@given(st.lists(st.sampled_from([3, 3, 3, 2]), max_size=20), st.integers(1, 4), st.randoms())
def test_builds_of_one_timestamp_keep_the_order_of_the_service(
    stamps: list[int], size: int, chance: random.Random
) -> None:
    """Pages of one list arrive in any order; all builds of a page may have the same timestamp."""
    ids = itertools.count(1)
    listed = sorted(stamps, reverse=True)
    pages = [[(us, 1) for us in listed[place : place + size]] for place in range(0, len(listed), size)]
    batches = [batch(page, ids, number) for number, page in enumerate(pages, 1)]
    chance.shuffle(batches)
    assert column(list(newest_first(batches)), "builds", "id") == list(range(1, len(listed) + 1))


def test_a_batch_that_is_in_order_is_not_copied() -> None:
    for jobs in (True, False):
        ids = itertools.count(1)
        batches = [batch([(5, 1), (4, 0)], ids, jobs=jobs), batch([(9, 2), (7, 1)], ids, jobs=jobs)]
        newer, older = newest_first(batches)
        assert newer is batches[1]
        assert older is batches[0]


def test_no_batches_and_empty_batches_yield_nothing() -> None:
    assert list(newest_first([])) == []
    assert list(newest_first([batch([], itertools.count())])) == []
