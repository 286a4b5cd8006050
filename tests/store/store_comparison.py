"""Compare a store with the service: each version is whole, and the last one equals the service."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pandas as pd

from buildframe.errors import BadInput
from buildframe.store.store import Store
from buildframe.workspace import Workspace
from buildframe.workspace.build_queries import History

ASIDE = {"fetched_at", "pipeline", "triggered_from_build_pipeline_slug"}
"""Columns that are as last seen: slugs, and when that was; besides addresses and people."""

LINKS = {"triggered_build", "triggered_from", "triggered_from_build_id"}
"""What the service forgets of a build when the pipeline of another one is deleted; the store remembers."""


def versions(folder: Path, after: int) -> Iterator[int]:
    """The versions of a store beyond one, the newest first."""
    with suppress(BadInput):  # the first version was before
        version = Store(folder).version
        while version > after:
            yield version
            version = Store(folder, as_of=version - 1).version


def whole(store: Store) -> tuple[set[str], str]:
    """The ids of a version's builds and a digest of it; each build once, with the jobs that came with it."""
    builds = store.builds(columns=["id", "fetched_at", "state"])
    jobs = store.jobs(columns=["id", "build_id", "fetched_at", "state"])
    assert builds["id"].is_unique
    assert jobs["id"].is_unique
    of = jobs.merge(builds, left_on="build_id", right_on="id", how="left", suffixes=("", "_of_build"))
    assert (of["fetched_at"] == of["fetched_at_of_build"]).all()
    assert set(builds["id"]) == set(jobs["build_id"])
    parts = [pd.util.hash_pandas_object(frame.sort_values("id"), index=False) for frame in (builds, jobs)]
    return set(builds["id"]), hashlib.sha256(pd.concat(parts).to_numpy().tobytes()).hexdigest()


def same_as_served(served: History, kept: tuple[pd.DataFrame, pd.DataFrame], store: Store) -> None:
    """Every build and job that the service has is stored field by field, and none else of these builds."""
    builds = kept[0][kept[0]["id"].isin(served.builds["id"])]
    jobs = kept[1][kept[1]["build_id"].isin(served.builds["id"])]
    for name, theirs, ours in (("build", served.builds, builds), ("job", served.jobs, jobs)):
        differ = differences(theirs, ours)
        assert not differ, f"{name}s differ: {json.dumps(differ[:10], default=str, indent=1)}"
    gone = store.builds(columns=["id", "gone_at", "is_open"])
    there = gone["id"].isin(served.builds["id"])
    assert gone.loc[there, "gone_at"].isna().all()
    assert not gone.loc[~there, "is_open"].any()


def differences(theirs: pd.DataFrame, ours: pd.DataFrame) -> list[dict[str, object]]:
    """Where two frames differ: id, column and both values."""
    assert set(theirs["id"]) == set(ours["id"]), f"{len(theirs)} are served, {len(ours)} stored"
    assert len(theirs) == len(ours)
    names = [name for name in ours if name in theirs and name not in ASIDE and "url" not in name]
    left, right = (frame.set_index("id", drop=False).sort_index()[names] for frame in (theirs, ours))
    if left.equals(right):
        return []
    found = []
    for name in names:
        is_null = left[name].isna()
        differ = (left[name] != right[name]).fillna(False).astype(bool) & ~is_null
        if name not in LINKS:
            differ |= is_null != right[name].isna()
        for id in left.index[differ]:
            values = left.at[id, name], right.at[id, name]
            if name != "triggered_build" or _link(values[0]) != _link(values[1]):
                found.append({"id": id, "column": name, "served": values[0], "stored": values[1]})
    return found


def _link(text: str) -> tuple[object, object]:
    read = json.loads(text)
    return read["id"], read["number"]


def beyond(store: Store, served: pd.DataFrame) -> pd.DataFrame:
    """The builds that only the store has."""
    kept = store.builds(columns=["id", "gone_at"])
    return kept[~kept["id"].isin(served["id"])]


def same_lists(ci: Workspace, store: Store, suites: Sequence[str]) -> None:
    """The lists as they are now are as the service has them; flaky tests are those of the longest period."""
    for suite in suites:
        kept = store.flaky_tests(suite)
        assert not differences(ci.flaky_tests(suite, period="28days", progress=False), kept)
    assert not differences(ci.pipelines(progress=False), store.pipelines())
