"""Whether the pipelines for whose jobs others wait most, by `contention`, are those without which they would wait less.

The months of sandboxes are replayed without each pipeline in turn, with the agents of the whole record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

import buildframe as bf
from buildframe import metrics
from tests.benchmarks import reporting

SEEDS = range(5000, 5010)
LEAST_WAIT_H = 1.0
"""Queues whose jobs of other pipelines waited less in all for any pipeline are left out: there is nothing to rank."""


class Queue(NamedTuple):
    """Hours that jobs of other pipelines waited for each pipeline, and those that they wait less without it."""

    name: str
    split: pd.Series[float]
    saved: pd.Series[float]


def waits(jobs: pd.DataFrame) -> pd.Series[float]:
    """Hours of queue time by queue and pipeline."""
    hours = metrics.queue_time(jobs) / pd.Timedelta("1h")
    return hours.groupby([jobs["queue"], jobs["pipeline"]]).sum()


def queues_of(builds: pd.DataFrame, jobs: pd.DataFrame) -> Iterator[Queue]:
    pairs = metrics.contention(jobs)
    pairs = pairs[pairs["explained"] & (pairs["waiting"] != pairs["holding"])]
    split = pairs.groupby(["queue", "holding"])["wait_s"].sum() / 3600
    builds_now, jobs_now = metrics.replay(builds, jobs)
    now = waits(jobs_now)
    agents = {queue: fleet["agents"] for queue, fleet in builds_now.attrs["fleet"].items()}
    saved = {}
    for pipeline in builds["pipeline"].unique():
        builds_left, jobs_left = (frame[frame["pipeline"] != pipeline] for frame in (builds, jobs))
        known = {queue: count for queue, count in agents.items() if queue in set(jobs_left["queue"])}
        then = waits(metrics.replay(builds_left, jobs_left, agents=known)[1])
        less = now.drop(pipeline, level="pipeline").sub(then, fill_value=0).groupby("queue").sum()
        saved |= {(queue, pipeline): hours for queue, hours in less.items()}
    hours_saved = pd.Series(saved)
    for queue, own in split.groupby("queue"):
        if own.max() >= LEAST_WAIT_H:
            yield Queue(str(queue), own.droplevel("queue"), hours_saved[queue])


def main(quick: bool) -> None:
    found: list[Queue] = []
    for seed in SEEDS[:1] if quick else SEEDS:
        with bf.sandbox(seed=seed, **({"builds": 600, "days": 7} if quick else {})) as ci:
            found += queues_of(*ci.history(include_retried_jobs=True, progress=False))
    first = [queue.split.idxmax() == queue.saved.idxmax() for queue in found]
    places = [int(queue.saved.rank(ascending=False)[queue.split.idxmax()]) for queue in found]
    ranks = [
        queue.split.corr(queue.saved.reindex(queue.split.index), "spearman") for queue in found if len(queue.split) > 2
    ]
    print(f"{len(found)} queues with waits; the pipeline for which others wait most")
    print(
        f"  is the one without which they wait least in {sum(first)}, and one of the first two in "
        f"{sum(place <= 2 for place in places)}"
    )
    shares = [queue.saved[queue.split.idxmax()] / queue.split.max() for queue in found]
    reporting.show("hours saved / hours waited", {"first pipeline": shares})
    if ranks:
        reporting.show("rank correlation", {f"{len(ranks)} queues": [float(one) for one in ranks if not np.isnan(one)]})


if __name__ == "__main__":
    reporting.run(main)
