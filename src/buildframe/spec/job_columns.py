"""Compute the columns of jobs that follow from a job and the other jobs of its build: its step and its retry.

Knows the rules; does not know pages, frames or stores. Numbers of builds and Arrow arrays go in, Arrow arrays come out.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd
    import pyarrow as pa

    Columns = Mapping[str, pa.Array[Any]]
    BuildNumbers = npt.NDArray[np.int64]

STEP_SOURCES = (
    "id", "step_key", "name", "group_key", "command", "step_id", "parallel_group_index",
    "parallel_group_total", "matrix", "retried_in_job_id",
)  # fmt: skip
RETRY_SOURCES = ("id", "retry_source", "retried_in_job_id", "retry_type")
SOURCES = {"step": STEP_SOURCES, "retry_of_job_id": RETRY_SOURCES, "retry_of_type": RETRY_SOURCES}
"""Columns that each computed column follows from."""

VERSION = 1
"""Version of these rules. Stores compute the columns again in rows of an older version."""

_LONGEST_COMMAND = 60

_SHARD = re.compile(
    r"""[\s\-–—,:|(\[]+
        (?:(?:shard|part|group|node)\s*)?
        \#?(?P<index>\d+)(?:\s*(?:/|of)\s*(?P<total>\d+))?
        \s*[)\]]?\s*$""",
    re.VERBOSE | re.IGNORECASE,
)


def compute(columns: Columns, build: BuildNumbers, names: Collection[str]) -> dict[str, Any]:
    """Return those of `SOURCES` that are in `names`. `build` numbers the build of each job.

    The rows of a build are all its jobs, in the order in which the service sends them.
    """
    computed: dict[str, Any] = {}
    if "step" in names:
        computed["step"] = _steps(columns, build)
    if "retry_of_job_id" in names or "retry_of_type" in names:
        computed |= _retries(columns)
    return {name: values for name, values in computed.items() if name in names}


def compute_in_frame(jobs: pd.DataFrame, names: Collection[str]) -> dict[str, pd.Series[Any]]:
    """Return the same of a frame. A missing source counts as null; without `build_id` each job is a build."""
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    from buildframe.spec.arrow_types import pandas_types

    sources = {source for name in names for source in SOURCES[name]}
    columns = {
        source: pa.array(_plain(jobs[source]), from_pandas=True) if source in jobs else pa.nulls(len(jobs))
        for source in sources
    }
    columns = {name: values.cast(_type_of(name), safe=False) for name, values in columns.items()}
    if "build_id" in jobs:
        build = pd.factorize(jobs["build_id"])[0].astype(np.int64)
        build[build < 0] = -np.arange(1, 1 + (build < 0).sum())
        build -= min(0, build.min(initial=0))
    else:
        build = np.arange(len(jobs), dtype=np.int64)
    text = pandas_types()[pa.large_string()]
    computed = compute(columns, build, names)
    return {name: pd.Series(values.to_pylist(), jobs.index, dtype=text, name=name) for name, values in computed.items()}


def _plain(values: pd.Series[Any]) -> Any:
    """Return the values of a column; of categories, their texts."""
    return values.astype("str") if str(values.dtype) == "category" else values.array


def _type_of(source: str) -> Any:
    import pyarrow as pa

    return pa.int64() if source.startswith("parallel_group_") else pa.large_string()


# --- steps


def _steps(columns: Columns, build: BuildNumbers) -> pa.Array[Any]:
    """Return the step of each job: its label, and what tells it from other steps of the build of the same label."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    has_label = pc.or_(columns["step_key"].is_valid(), columns["name"].is_valid())
    command = pc.if_else(has_label, None, columns["command"])
    sources = (columns["step_key"], columns["name"], columns["group_key"], command)
    shards = (columns["parallel_group_index"], columns["parallel_group_total"])
    values = zip(*(source.to_pylist() for source in (*sources, *shards)), strict=True)
    labels = pa.array((step_label(*row) for row in values), pa.large_string())

    encoded = labels.dictionary_encode()
    labeled = np.flatnonzero(labels.is_valid().to_numpy(zero_copy_only=False))
    codes = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)[labeled]
    identities = _step_identities(columns).dictionary_encode()
    identity = identities.indices.to_numpy(zero_copy_only=False).astype(np.int64)[labeled]
    in_build = build[labeled] * max(1, len(encoded.dictionary)) + codes  # a label of a build
    # The distinct pairs of a label and a step of each build; a label that occurs twice is shared by steps.
    size = max(1, len(identities.dictionary))
    pairs = np.unique(in_build * size + identity)
    distinct, counts = np.unique(pairs // size, return_counts=True)
    shared = distinct[counts > 1]
    if not len(shared):
        return labels
    texts = labels.to_pylist()
    rows_of: dict[int, list[int]] = {}
    for row, number in zip(labeled.tolist(), in_build.tolist(), strict=True):
        rows_of.setdefault(number, []).append(row)
    keys = identities.to_pylist()
    for number in shared.tolist():
        rows = rows_of[number]
        suffixes = _suffixes({row: keys[row] for row in rows}, columns["command"])
        for row in rows:
            texts[row] = f"{texts[row]} {suffixes[keys[row]]}"
    return pa.array(texts, pa.large_string())


def _step_identities(columns: Columns) -> pa.Array[Any]:
    """Return what separates the steps of a build: `step.id`.

    Without it, parallel and matrix jobs of one label are one step, and so are the attempts of a job.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    ids = columns["step_id"]
    if not ids.null_count:
        return ids
    attempts = zip(columns["id"].to_pylist(), columns["retried_in_job_id"].to_pylist(), strict=True)
    replaced = {after: before for before, after in attempts if after is not None}
    firsts = []
    is_group = pc.or_(columns["parallel_group_total"].is_valid(), columns["matrix"].is_valid())
    for job, grouped in zip(columns["id"].to_pylist(), is_group.to_pylist(), strict=True):
        firsts.append("group" if grouped else f"job {_first_attempt(job, replaced)}")
    return pc.coalesce(ids, pa.array(firsts, pa.large_string()))


def _first_attempt(job: Any, replaced: Mapping[Any, Any]) -> Any:
    seen = {job}
    while (before := replaced.get(job)) is not None and before not in seen:
        seen.add(before)
        job = before
    return job


def _suffixes(identities: Mapping[int, str], commands: pa.Array[Any]) -> dict[str, str]:
    """Return what tells the steps of one label apart: their commands if each has another one, else their order."""
    command_of = {identity: commands[row].as_py() for row, identity in identities.items()}
    short = {identity: _shorten(command) for identity, command in command_of.items()}
    if all(short.values()) and len(set(short.values())) == len(short):
        return {identity: f"({text})" for identity, text in short.items()}
    return {identity: f"#{number}" for number, identity in enumerate(short, 1)}


def _shorten(command: str | None) -> str:
    text = " ".join((command or "").split())
    return text if len(text) <= _LONGEST_COMMAND else f"{text[: _LONGEST_COMMAND - 1]}…"


@functools.lru_cache(maxsize=65_536)
def step_label(
    step_key: str | None,
    name: str | None,
    group_key: str | None,
    command: str | None,
    index: int | None = None,
    total: int | None = None,
) -> str | None:
    """Return the step of a job from its own values, null if it has none.

    This is its key, else its name with emoji and with its group, else its command. The name of a parallel job is
    without the number of the shard.
    """
    if step_key:
        return step_key
    if name and name.strip():
        plain = " ".join(name.split())
        label = plain if total is None else _without_shard(plain, index, total)
        return f"{label} ({group_key})" if group_key else label
    return _shorten(command) or None


def _without_shard(name: str, index: int | None, total: int) -> str:
    """Return the name of a parallel job without a suffix such as "2/5", "(2 of 5)" or "#2"."""
    suffix = _SHARD.search(name)
    if suffix is None or not name[: suffix.start()].strip():
        return name
    number = int(suffix["index"])
    is_total = suffix["total"] is not None and int(suffix["total"]) == total
    is_index = suffix["total"] is None and index is not None and number in (index, index + 1)
    return name[: suffix.start()].strip() if is_total or is_index else name


# --- retries


def _retries(columns: Columns) -> dict[str, Any]:
    """Return which attempt each job repeats, and the kind of retry that made it.

    A new attempt says both in its `retry_source`. The `retry_type` of a job is the kind of retry that replaced that
    job. So it counts for the attempt that its `retried_in_job_id` names, never for the job itself.
    """
    import pyarrow as pa

    text = pa.large_string()
    retried_in = columns["retried_in_job_id"]
    if retried_in.null_count == len(retried_in) == columns["retry_source"].null_count:
        return dict.fromkeys(("retry_of_job_id", "retry_of_type"), pa.nulls(len(retried_in), text))
    ids = columns["id"].to_pylist()
    performed = columns["retry_type"].to_pylist()
    successors = zip(retried_in.to_pylist(), ids, performed, strict=True)
    replaced = {after: (before, kind) for after, before, kind in successors if after is not None}
    found = [
        _retry_of(source, replaced.get(job, (None, None)))
        for job, source in zip(ids, columns["retry_source"].to_pylist(), strict=True)
    ]
    return {
        "retry_of_job_id": pa.array((attempt for attempt, _ in found), text),
        "retry_of_type": pa.array((kind for _, kind in found), text),
    }


def _retry_of(source: str | None, replaced: tuple[str | None, str | None]) -> tuple[str | None, str | None]:
    """Return the attempt that a job repeats and the kind of retry: from its `retry_source`, else from that attempt."""
    try:
        said = msgspec.json.decode(source) if source else None
    except msgspec.DecodeError:
        said = None
    if not isinstance(said, Mapping):
        return replaced
    job, kind = (
        value if isinstance(value, str) and value else None for value in map(said.get, ("job_id", "retry_type"))
    )
    return job or replaced[0], kind or replaced[1]
