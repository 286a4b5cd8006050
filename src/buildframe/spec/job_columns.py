"""Compute the columns that follow from all jobs of a build: the step and the retry of each job.

Knows the rules; does not know pages, frames or stores. Numbers of builds and Arrow arrays go in,
Arrow arrays come out.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd
    import pyarrow as pa

    Columns = Mapping[str, pa.Array[Any]]
    BuildNumbers = npt.NDArray[np.int64]

RETRY_SOURCES = ("id", "retry_source", "retried_in_job_id", "retry_type")
STEP_SOURCES = (
    "step_key", "name", "group_key", "command", "step_id", "parallel_group_index",
    "parallel_group_total", "matrix", *RETRY_SOURCES,
)  # fmt: skip
SOURCES = {"step": STEP_SOURCES, "retry_of_job_id": RETRY_SOURCES, "retry_of_type": RETRY_SOURCES}
"""Columns that each computed column follows from."""

VERSION = 1
"""Version of these rules. Stores compute the columns again in rows of an older version."""

_LONGEST_COMMAND = 60

_EMOJI_OR_SHARD = re.compile(
    r"""(?<!\w):[\w+-]+:  # an emoji, whose colon does not introduce a shard
        | (?:^|[\s\-–—,:|(\[]+)
        (?:
            (?:(?:shard|part|group|node)\s*)?\#?(?P<index>\d{1,9})\s*(?:/|of)\s*(?P<total>\d{1,9})\s*[)\]]?(?!\S)
            | (?:\#|(?:shard|part|group|node)\s*\#?)(?P<number>\d{1,9})\s*[)\]]?$
        )""",
    re.VERBOSE | re.IGNORECASE,
)


def compute(columns: Columns, build: BuildNumbers, names: Collection[str]) -> dict[str, Any]:
    """Return those of `SOURCES` that are in `names`. `build` numbers the build of each job.

    The rows of a build are all its jobs, in the order in which the service sends them.
    """
    if not names:
        return {}
    computed = _retries(columns)
    if "step" in names:
        computed["step"] = _steps(columns, build, computed["retry_of_job_id"])
    return {name: computed[name] for name in names}


def compute_in_frame(jobs: pd.DataFrame, names: Collection[str]) -> dict[str, pd.Series[Any]]:
    """Return the same of a frame. A missing source counts as null.

    A frame without `build_id`, or with neither `step_id` nor `retried_in_job_id`, does not say
    which jobs are the same step of a build. The step of a job is then its label.
    """
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    from buildframe.spec.arrow_types import pandas_types

    sources = {source for name in names for source in SOURCES[name]}
    columns = {
        source: _arrow_array(jobs[source], _type_of(source))
        if source in jobs
        else pa.nulls(len(jobs), _type_of(source))
        for source in sources
    }
    if "build_id" in jobs and ("step_id" in jobs or "retried_in_job_id" in jobs):
        build = pd.factorize(jobs["build_id"])[0].astype(np.int64)
        is_unknown = build < 0
        build[is_unknown] = len(jobs) + np.flatnonzero(is_unknown)  # each is a build of its own
    else:
        build = np.arange(len(jobs), dtype=np.int64)
    text = pandas_types()[pa.large_string()]
    computed = compute(columns, build, names)
    return {name: pd.Series(values.to_pylist(), jobs.index, dtype=text, name=name) for name, values in computed.items()}


def _arrow_array(values: pd.Series[Any], kind: pa.DataType) -> pa.Array[Any]:
    """Return a column as an Arrow array; of categories, their texts."""
    import pyarrow as pa

    is_category = str(values.dtype) == "category"
    plain: Any = (values.astype("str") if is_category else values).array
    array: Any = pa.array(plain, from_pandas=True)
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    cast: pa.Array[Any] = array.cast(kind, safe=False)
    return cast


def _type_of(source: str) -> Any:
    import pyarrow as pa

    return pa.int64() if source.startswith("parallel_group_") else pa.large_string()


# --- steps


def _steps(columns: Columns, build: BuildNumbers, retry_of: pa.Array[Any]) -> pa.Array[Any]:
    """Return the step of each job: its label, made distinct if steps of its build share it."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    labels = _merge_shards(_labels(columns), build, columns["step_id"])
    encoded = labels.dictionary_encode()
    labeled = np.flatnonzero(labels.is_valid().to_numpy(zero_copy_only=False))
    codes = encoded.indices.fill_null(0).to_numpy().astype(np.int64)[labeled]
    label_of_build = build[labeled] * max(1, len(encoded.dictionary)) + codes
    _, number, count = np.unique(label_of_build, return_inverse=True, return_counts=True)
    is_repeated = count[number] > 1
    rows = labeled[is_repeated]
    number = number[is_repeated]
    if not len(rows):
        return labels

    step_ids = columns["step_id"].take(rows)
    if step_ids.null_count:
        inferred = _infer_step_ids(columns, rows.tolist(), number.tolist(), retry_of)
        step_ids = pc.coalesce(step_ids, inferred)
    encoded_ids = step_ids.dictionary_encode()
    size = max(1, len(encoded_ids.dictionary))
    steps = np.unique(number * size + encoded_ids.indices.to_numpy())  # the distinct steps of each label of a build
    numbers, n_steps = np.unique(steps // size, return_counts=True)
    is_shared = np.isin(number, numbers[n_steps > 1])
    if not is_shared.any():
        return labels
    return _separate(labels, build, columns["command"], rows[is_shared], step_ids.filter(pa.array(is_shared)))


def _labels(columns: Columns) -> pa.Array[Any]:
    """Return the label of each job, computed once for each combination of the values it uses."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    key, name, command = (_without_blanks(columns[source]) for source in ("step_key", "name", "command"))
    is_keyed = key.is_valid()
    sources = {  # without what a label does not use, so that there are few combinations
        "step_key": key,
        "name": pc.if_else(is_keyed, None, name),
        "group_key": pc.if_else(is_keyed, None, columns["group_key"]),
        "command": pc.if_else(pc.or_(is_keyed, name.is_valid()), None, command),
        "index": pc.if_else(is_keyed, None, columns["parallel_group_index"]),
        "total": pc.if_else(is_keyed, None, columns["parallel_group_total"]),
        "matrix": pc.if_else(is_keyed, None, columns["matrix"]),
    }
    codes = np.zeros(len(key), np.int64)
    for values in sources.values():
        if values.null_count < len(values):
            encoded = values.dictionary_encode(null_encoding="encode")
            pairs = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
            codes = pa.array(pairs).dictionary_encode().indices.to_numpy().astype(np.int64)
    first_row = np.zeros(codes.max(initial=-1) + 1, np.int64)
    first_row[codes[::-1]] = np.arange(len(codes))[::-1]
    distinct = (values.take(first_row).to_pylist() for values in sources.values())
    labels = pa.array(itertools.starmap(step_label, zip(*distinct, strict=True)), pa.large_string())
    return labels.take(codes)


def _merge_shards(labels: pa.Array[Any], build: BuildNumbers, step_ids: pa.Array[Any]) -> pa.Array[Any]:
    """Return the labels, without the shard's number if jobs of one `step.id` of a build are all its shards."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    encoded = labels.dictionary_encode()
    is_numbered = pc.match_substring_regex(encoded.dictionary, r"\d\s*(/|of)\s*\d", ignore_case=True)
    is_candidate = pc.and_(is_numbered.take(encoded.indices), step_ids.is_valid()).fill_null(False)
    rows = np.flatnonzero(is_candidate.to_numpy(zero_copy_only=False))
    rows_of: dict[tuple[int, str | None], list[int]] = {}  # by build and step
    for row, of_build, step in zip(rows.tolist(), build[rows].tolist(), step_ids.take(rows).to_pylist(), strict=True):
        rows_of.setdefault((of_build, step), []).append(row)
    texts: list[Any] = labels.to_pylist() if rows_of else []
    for rows_of_step in rows_of.values():
        labels_of_step = {texts[row] for row in rows_of_step}
        total = len(labels_of_step)
        shards = [_split_shard(label, None, total) for label in labels_of_step]
        names = {name for name, _ in shards}
        numbers = {number for _, number in shards}
        if total > 1 and len(names) == 1 and len(numbers) == total:
            for row in rows_of_step:
                texts[row] = shards[0][0]
    return pa.array(texts, pa.large_string()) if rows_of else labels


def _without_blanks(texts: pa.Array[Any]) -> pa.Array[Any]:
    """Return the texts, null in place of empty and blank ones."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_blank = pc.equal(pc.utf8_trim_whitespace(texts), pa.scalar("", texts.type))
    filled: pa.Array[Any] = pc.if_else(is_blank, None, texts)
    return filled


def _infer_step_ids(
    columns: Columns, rows: Sequence[int], number: Sequence[int], retry_of: pa.Array[Any]
) -> pa.Array[Any]:
    """Return what stands for `step.id` if it is missing. `number` numbers the labels of builds.

    Jobs of one key are one step, since keys are unique in a build. Otherwise parallel and matrix
    jobs of one label are one step, and so are the attempts of a job.
    """
    import pyarrow as pa

    repeats = _mapping(columns["id"], retry_of)
    names = ("id", "step_key", "parallel_group_total", "parallel_group_index", "matrix")
    jobs, keys, *variants = (columns[name].take(rows).to_pylist() for name in names)
    inferred = []
    firsts_of: dict[Any, list[Any]] = {}  # first attempts of a variant of a label: several belong to several steps
    for of_label, job, key, variant in zip(number, jobs, keys, zip(*variants, strict=True), strict=True):
        if key and key.strip():
            inferred.append(f"key {key}")
            continue
        first = _first_attempt(job, repeats)
        if variant == (None, None, None):
            inferred.append(f"job {first}")
            continue
        firsts = firsts_of.setdefault((of_label, variant), [])
        if first not in firsts:
            firsts.append(first)
        total, *_ = variant
        inferred.append(f"parallel or matrix step of {total}, number {firsts.index(first)}")
    return pa.array(inferred, pa.large_string())


def _mapping(keys: pa.Array[Any], values: pa.Array[Any]) -> dict[Any, Any]:
    """Return a dictionary of keys to values, without nulls."""
    import pyarrow.compute as pc

    is_valid = pc.and_(keys.is_valid(), values.is_valid())
    return dict(zip(keys.filter(is_valid).to_pylist(), values.filter(is_valid).to_pylist(), strict=True))


def _first_attempt(job: Any, repeats: Mapping[Any, Any]) -> Any:
    seen = {job}
    before = repeats.get(job)
    while before is not None and before not in seen:
        seen.add(before)
        job = before
        before = repeats.get(job)
    return job


def _separate(
    labels: pa.Array[Any], build: BuildNumbers, command: pa.Array[Any], rows: npt.NDArray[np.int64], ids: pa.Array[Any]
) -> pa.Array[Any]:
    """Return the labels, with distinct names in those rows whose step shares its label."""
    import pyarrow as pa

    texts = labels.to_pylist()
    labels_of: dict[int, set[str | None]] = {}
    for text, of_build in zip(texts, build.tolist(), strict=True):
        labels_of.setdefault(of_build, set()).add(text)
    command_of = dict(zip(rows.tolist(), command.take(rows).to_pylist(), strict=True))
    rows_of: dict[tuple[int, str | None], dict[str | None, list[int]]] = {}  # by build, label and step
    for row, step in zip(rows.tolist(), ids.to_pylist(), strict=True):
        rows_of.setdefault((int(build[row]), texts[row]), {}).setdefault(step, []).append(row)
    for (of_build, label), steps in rows_of.items():
        commands = []
        for rows_of_step in steps.values():
            commands.append({command_of[row] or "" for row in rows_of_step})
        names = _distinct_names(str(label), commands, labels_of[of_build])
        for name, rows_of_step in zip(names, steps.values(), strict=True):
            for row in rows_of_step:
                texts[row] = name
    return pa.array(texts, pa.large_string())


def _distinct_names(label: str, commands: Sequence[Collection[str]], taken: Collection[str | None]) -> list[str]:
    """Return names of the steps of one label: with distinct commands, else with their order.

    A matrix step may have several commands; the first of the alphabet stands for it, whatever the
    order of its jobs. `taken` are the labels of the build, from which the names differ, too.
    """
    texts = [_shorten(min(filter(None, of_step), default="")) for of_step in commands]
    names = [f"{label} ({text})" for text in texts]
    if all(texts) and len(set(names)) == len(names) and not set(names) & {*taken}:
        return names
    numbered = (f"{label} #{number}" for number in itertools.count(1))
    return list(itertools.islice((name for name in numbered if name not in taken), len(commands)))


def _shorten(command: str) -> str:
    text = " ".join(command.split())
    return text if len(text) <= _LONGEST_COMMAND else f"{text[: _LONGEST_COMMAND - 1]}…"


@functools.lru_cache(maxsize=65_536)
def step_label(
    step_key: str | None,
    name: str | None,
    group_key: str | None,
    command: str | None,
    index: int | None = None,
    total: int | None = None,
    matrix: str | None = None,
) -> str | None:
    """Return the step of a job from its own values, null if it has none.

    This is its key, else its name with emoji and with its group, else its command. The name of a
    parallel job is without the number of the shard, and that of a matrix job has `{{matrix.os}}` in
    place of the value.
    """
    if step_key:
        return step_key
    if name and name.strip():
        label = " ".join(name.split())
        label, _ = _split_shard(label, index, total)
        label = _without_values(label, matrix)
        return f"{label} ({group_key})" if group_key else label
    return _shorten(_without_values(command or "", matrix)) or None


def _split_shard(name: str, index: int | None, total: int | None) -> tuple[str, int | None]:
    """Return the name of a parallel job without its own shard, such as "2/5" or "#2", and its number."""
    if total is None:
        return name, None
    for match in _EMOJI_OR_SHARD.finditer(name):
        if match["index"] is None and match["number"] is None:  # an emoji
            continue
        number = int(match["index"] or match["number"])
        is_own_index = index is None or number in (index, index + 1)
        is_own_total = match["total"] is None or int(match["total"]) == total
        if is_own_index and is_own_total:
            rest = f"{name[: match.start()].strip()} {name[match.end() :].strip()}"
            return rest.strip() or name, number
    return name, None


def _without_values(text: str, matrix: str | None) -> str:
    """Return a text of a matrix job with placeholders, as configured, in place of its values."""
    if not matrix or not text:
        return text
    try:
        values = msgspec.json.decode(matrix)
    except msgspec.DecodeError:
        return text
    if not isinstance(values, Mapping):
        return text
    placeholders = {
        str(value): "{{matrix}}" if dimension in ("", "matrix") else f"{{{{matrix.{dimension}}}}}"
        for dimension, value in values.items()
        if isinstance(value, str | int | float) and str(value).strip()
    }
    if not placeholders:
        return text
    longest_first = sorted(placeholders, key=len, reverse=True)
    value_as_word = rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)"
    return re.sub(value_as_word, lambda match: placeholders[match[0]], text)


# --- retries


def _retries(columns: Columns) -> dict[str, Any]:
    """Return which attempt each job repeats, and the kind of retry that made it.

    A new attempt says both in its `retry_source`. The `retry_type` of a job is the kind of retry
    that replaced that job. So it counts for the attempt that its `retried_in_job_id` names, never
    for the job itself.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pa.large_string()
    job = columns["id"]
    source = columns["retry_source"]
    retried_in = columns["retried_in_job_id"]
    replaced = _mapping(retried_in, job)
    kind_of_replaced = _mapping(retried_in, columns["retry_type"])
    is_retry = pc.or_(source.is_valid(), pc.is_in(job, pa.array(list(replaced), job.type)))
    attempts: list[str | None] = [None] * len(job)
    kinds: list[str | None] = [None] * len(job)
    for row in np.flatnonzero(is_retry.to_numpy(zero_copy_only=False)).tolist():
        job_id = job[row].as_py()
        predecessor = replaced.get(job_id), kind_of_replaced.get(job_id)
        attempts[row], kinds[row] = _retry_of(source[row].as_py(), predecessor)
    return {"retry_of_job_id": pa.array(attempts, text), "retry_of_type": pa.array(kinds, text)}


def _retry_of(source: str | None, replaced: tuple[str | None, str | None]) -> tuple[str | None, str | None]:
    """Return the attempt that a job repeats and the kind of retry.

    Its `retry_source` has them, else that attempt.
    """
    try:
        decoded = msgspec.json.decode(source) if source else None
    except msgspec.DecodeError:
        decoded = None
    if not isinstance(decoded, Mapping):
        return replaced
    job = decoded.get("job_id")
    kind = decoded.get("retry_type")
    is_known = isinstance(job, str) and job
    has_kind = isinstance(kind, str) and kind
    return job if is_known else replaced[0], kind if has_kind else replaced[1]
