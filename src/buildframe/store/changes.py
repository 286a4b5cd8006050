"""How what was fetched changes what is stored: pure functions of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from buildframe.spec import Moment

_BESIDE = frozenset({"fetched_at", "valid_from", "valid_to"})


def latest_of(
    walks: Sequence[tuple[pd.DataFrame, pd.DataFrame]],
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Of several walks each build once, as it was fetched last, with the jobs that came with it."""
    builds = pd.concat([builds.assign(walk=i) for i, (builds, _) in enumerate(walks)], ignore_index=True)
    jobs = pd.concat([jobs.assign(walk=i) for i, (_, jobs) in enumerate(walks)], ignore_index=True)
    last = builds.sort_values("fetched_at", kind="stable").drop_duplicates("id", keep="last")
    chosen = jobs["build_id"].map(last.set_index("id")["walk"]) == jobs["walk"]
    return builds.loc[last.index.sort_values()].drop(columns="walk"), jobs[chosen].drop(columns="walk")


def later(new: pa.Table, stored: pa.Table) -> pa.Table:
    """The builds of `new` that are not stored, or that were not fetched earlier than what is.

    The service tells its time in whole seconds: of two of one second the one that comes to be stored last is taken.
    """
    at: dict[Any, Any] = dict(zip(stored["id"].to_pylist(), stored["fetched_at"].to_pylist(), strict=True))
    rows: Any = zip(new["id"].to_pylist(), new["fetched_at"].to_pylist(), strict=True)
    return new.filter(pa.array([id not in at or at[id] <= fetched for id, fetched in rows], pa.bool_()))


def changed(stored: pa.Table, listed: pa.Table, whose: Mapping[str, str], at: Moment) -> pa.Table:
    """What is stored of a list that is kept as it changes, after it was read at `at`; the same where nothing changed.

    Rows that are new or other than before are valid from then on; those that they replace, and those no longer
    listed, are valid until then.
    """
    rows = stored.to_pylist()
    is_own = [row["valid_to"] is None and all(row[name] == value for name, value in whose.items()) for row in rows]
    before = {row["id"]: row for row, own in zip(rows, is_own, strict=True) if own}
    now = {row["id"]: row for row in listed.to_pylist()}
    same = {id for id, row in now.items() if id in before and _content(row) == _content(before[id])}
    if len(same) == len(before) == len(now):
        return stored
    ended = pa.array([own and row["id"] not in same for row, own in zip(rows, is_own, strict=True)], pa.bool_())
    closed = pc.if_else(ended, pa.scalar(at, stored["valid_to"].type), stored["valid_to"])
    old = stored.set_column(stored.column_names.index("valid_to"), "valid_to", closed)
    fresh = listed.filter(pa.array([id not in same for id in listed["id"].to_pylist()], pa.bool_()))
    return pa.concat_tables([old, fresh.select(old.column_names)])


def _content(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _BESIDE}
