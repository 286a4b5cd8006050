"""Distinguish queues: two clusters may each have a queue of one key.

Knows columns of jobs, not their times.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import pandas as pd

from buildframe.errors import BadInput
from buildframe.metrics.columns import TEXT, typed_column
from buildframe.metrics.grouping import By

BY_QUEUE: tuple[str, str] = ("queue", "queue_id")
"""Default keys of functions of queues: the key of a queue, and what separates queues of one key."""

_SEPARATOR = " · "
_NO_CLUSTER = "no cluster"
_SHORT = 8
"""Characters of an id that are shown."""


def queue_keys(by: By, columns: Collection[str]) -> By:
    """Return the keys. For an older frame, the default ones are only `queue`."""
    return "queue" if by == BY_QUEUE and "queue_id" not in columns else by


def queue_identities(jobs: pd.DataFrame) -> pd.Series[str]:
    """Return what separates the queues of jobs: the id, or the key if there is no id."""
    return typed_column(jobs, "queue_id").fillna(typed_column(jobs, "queue"))


def name_queues(jobs: pd.DataFrame) -> pd.Series[str]:
    """
    Return a distinct name of each job's queue for display: its key, unless two queues have the key.

    These have the first characters of their cluster's id after the key, or "no cluster":
    "default · 0186a3f2". A queue whose key is unknown is named by the first characters of its id.
    """
    keys = typed_column(jobs, "queue")
    if "queue_id" not in jobs or jobs["queue_id"].isna().all():
        return keys
    identities = queue_identities(jobs)
    clusters = typed_column(jobs, "cluster_id") if "cluster_id" in jobs else typed_column(jobs, "queue_id")
    queues = pd.DataFrame({"key": keys, "cluster": clusters, "identity": identities})
    queues = queues.dropna(subset="identity").drop_duplicates("identity")
    names = dict(zip(queues["identity"], _name_distinctly(queues), strict=True))
    return identities.map(names).astype(TEXT).rename("queue")


def _name_distinctly(queues: pd.DataFrame) -> list[str]:
    """Return a distinct name of each queue, by its `key`, `cluster` and `identity`."""
    is_shared = queues["key"].duplicated(keep=False).tolist()
    clusters = queues["cluster"].fillna(queues["identity"]).tolist()
    identities = queues["identity"].tolist()
    keys = [None if pd.isna(key) else str(key) for key in queues["key"].tolist()]
    names = []
    for key, cluster, identity, shared in zip(keys, clusters, identities, is_shared, strict=True):
        if key is None:
            names.append(shorten_id(identity))
        elif shared:
            suffix = _NO_CLUSTER if identity == key else shorten_id(cluster)
            names.append(f"{key}{_SEPARATOR}{suffix}")
        else:
            names.append(key)
    is_alike = pd.Series(names, dtype=TEXT).duplicated(keep=False).tolist()
    for position, (key, identity, alike) in enumerate(zip(keys, identities, is_alike, strict=True)):
        if alike and identity != key:  # the first characters of two clusters are the same
            names[position] = f"{key or ''}{_SEPARATOR if key else ''}{identity}"
    return names


def shorten_id(id: str) -> str:
    """Return the first characters of the id of a queue or cluster, for display."""
    return id[:_SHORT]


def with_queue_names(jobs: pd.DataFrame) -> pd.DataFrame:
    """Return jobs whose `queue` is the name for display, which separates clusters."""
    if "queue_id" not in jobs or jobs["queue_id"].isna().all():
        return jobs
    return jobs.assign(queue=name_queues(jobs))


def is_queue(jobs: pd.DataFrame, queue: str) -> pd.Series[bool]:
    """Return which jobs are of the queue with this name or id.

    A key that several queues have is no name.
    """
    is_chosen = name_queues(jobs).eq(queue).fillna(value=False).astype(bool)
    if "queue_id" in jobs:
        is_chosen |= typed_column(jobs, "queue_id").eq(queue).fillna(value=False).astype(bool)
    return is_chosen


class KnownQueue(NamedTuple):
    """A queue of a record: its name for display, its key and id if known, and its organization."""

    name: str
    key: str | None
    id: str | None
    organization: str


def list_queues(jobs: pd.DataFrame) -> list[KnownQueue]:
    """Return the queue of each row of a frame with `organization` and `queue`."""
    ids = typed_column(jobs, "queue_id") if "queue_id" in jobs else pd.Series(None, jobs.index, dtype=TEXT)
    names = name_queues(jobs).fillna("")
    queues = pd.DataFrame(
        {"name": names, "key": typed_column(jobs, "queue"), "id": ids, "organization": jobs["organization"]}
    ).astype(object)
    return [KnownQueue(*row) for row in queues.where(queues.notna(), None).itertuples(index=False)]


def find_queues(queue: Any, known: Sequence[KnownQueue], option: str) -> list[int]:
    """Return the positions of queues with this name, id or key: one at most of each organization.

    Raise BadInput if a key is that of several queues of one organization.
    """
    if queue is None:  # which is also the missing key or id of a queue
        return []
    by_key = [position for position, entry in enumerate(known) if queue == entry.key]
    exact = [position for position, entry in enumerate(known) if queue in (entry.id, entry.name)]
    found = [position for position in exact if position not in by_key] or by_key
    organizations = {known[position].organization for position in found}
    if len(organizations) < len(found):
        choices = ", ".join(repr(known[position].id or known[position].name) for position in found)
        raise BadInput(
            f"{option}: {len(found)} queues have the key {queue!r}, in several clusters. "
            f"Pass the queue_id or name of one of them: {choices}."
        )
    return found
