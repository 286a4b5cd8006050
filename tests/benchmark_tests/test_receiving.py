"""The benchmark of the receiver uses genuine deliveries, each with rows that are new to the store."""

from __future__ import annotations

import pytest

import buildframe as bf
from buildframe import webhooks
from tests.benchmarks import receiving
from tests.benchmarks.year import JOBS

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, bf.Store]:
    folder = tmp_path_factory.mktemp("day") / "store"
    return str(folder), receiving.filled(folder, builds=30, parts=2)


def test_the_day_is_one_and_whole(store: tuple[str, bf.Store]) -> None:
    builds, jobs = store[1].builds(columns=["id", "day"]), store[1].jobs(columns=["id", "build_id", "day"])
    assert builds["id"].is_unique
    assert jobs["id"].is_unique
    assert len(jobs) == JOBS * len(builds) > 0
    assert set(jobs["build_id"]) == set(builds["id"])
    assert builds["day"].nunique() == jobs["day"].nunique() == 1


def test_each_delivery_is_genuine_and_new(store: tuple[str, bf.Store]) -> None:
    folder, before = store
    bodies = receiving.bodies(before, builds=10, of_each=4)
    for body in bodies:
        webhooks.verify(receiving.signed(body), body, receiving.SECRET)
    events = [webhooks.parse(body) for body in bodies]
    assert receiving.write(folder, events).seconds > 0
    assert len(receiving.minutes(folder, events, 4)) == 4
    assert before.version == bf.Store(folder).version, "each writes into a copy"


def test_the_receiver_takes_them(store: tuple[str, bf.Store]) -> None:
    bodies = receiving.bodies(store[1], builds=5, of_each=2)
    with receiving.copied(store[0]) as copy, receiving.receiver(copy) as url:
        watch, each = receiving.deliver(url, bodies, 2)
    assert watch.seconds > 0
    assert len(each) == len(bodies)
