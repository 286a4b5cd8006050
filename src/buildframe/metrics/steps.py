"""Assign jobs to steps across builds. Knows keys and names of jobs, not their outcomes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import column

_EMOJI = re.compile(r"(?<!\w):[\w+-]+:")  # not after a letter: "test:unit:fast" is a name

_SHARD = re.compile(
    r"""[\s\-–—,:|(\[]+                              # something sets it off, so "C#3" stays
        (?:(?:shard|part|group|node)\s*)?
        (?: \#?(?P<index>\d+)\s*(?:/|of)\s*(?P<total>\d+) | \#\d+ | (?<=shard)\s*\d+ | (?<=shard\s)\d+ )
        \s*[)\]]?\s*$""",
    re.VERBOSE | re.IGNORECASE,
)

OF_PARALLEL_JOBS = "parallel_group_total"
"""Optional column: of how many parallel jobs a job is one."""


@checked_names
def step(jobs: pd.DataFrame) -> pd.Series[str]:
    """
    Return the step of each job: its `step_key`, or else its `name` without emoji and shard suffix.

    ":rspec: RSpec 1/2" and "RSpec (2 of 2)" both belong to the step "RSpec".

    Parameters
    ----------
    jobs : pandas.DataFrame
        Jobs with the columns `step_key` and `name`. Uses `parallel_group_total` if the frame has it. Pass whole builds
        and select jobs afterwards, because a suffix shows to be a shard only beside the others.

    Returns
    -------
    pandas.Series
        str on the index of the frame; null if both columns are null.

    Raises
    ------
    BadInput
        If a column is missing.

    Notes
    -----
    A suffix n/m is a shard if n is at most m and either the frame has all m shards of the name, or
    `parallel_group_total` is m. "iOS 17/18" alone is a version. "RSpec #5" and "RSpec shard 5" belong to "RSpec", too.
    A name that consists of a suffix only stays as it is.

    Names repeat between pipelines: group by `["pipeline", metrics.step]` if a frame holds several.

    Examples
    --------
    >>> jobs.assign(step=metrics.step).groupby("pipeline")["step"].nunique()
    pipeline
    api         21
    billing      8
    data        14
    docs         4
    mobile      15
    platform    30
    release      4
    web         21
    Name: step, dtype: int64
    >>> metrics.percentiles(jobs, by=["pipeline", metrics.step], q=0.5)[["pipeline", "step", "n", "p50_s"]].tail(3)
        pipeline         step    n     p50_s
    111      web  unit-shared   38  106.5765
    112      web       upload   39    1.3660
    113      web       visual  115    1.3560
    """
    keys, names = column(jobs, "step_key").astype("str"), column(jobs, "name").astype("str")
    of_key, key = pd.factorize(keys)
    of_name, name = pd.factorize(names)
    places = np.where(of_key >= 0, of_key, np.where(of_name >= 0, len(key) + of_name, -1))
    texts = pd.array([*key, *_find_steps(name, _find_totals(jobs, of_name))], dtype="str")
    return pd.Series(texts.take(places, allow_fill=True), keys.index, name="step")


class _Name(NamedTuple):
    """Parts of a name: without emoji, also without a possible shard suffix, and the n and m of that suffix."""

    whole: str
    base: str
    number: int | None
    total: int | None


def _find_totals(jobs: pd.DataFrame, of_name: npt.NDArray[np.intp]) -> set[tuple[int, int]]:
    """Return pairs of a name's number and the total of parallel jobs that the service reports for it."""
    if OF_PARALLEL_JOBS not in jobs:
        return set()
    totals = column(jobs, OF_PARALLEL_JOBS)
    known = totals.notna().to_numpy() & (of_name >= 0)
    pairs = pd.DataFrame({"name": of_name[known], "total": totals[known].to_numpy(np.int64)}).drop_duplicates()
    return set(pairs.itertuples(index=False, name=None))


def _find_steps(names: Iterable[str], totals: set[tuple[int, int]]) -> list[str]:
    """Return the steps of distinct names; needs all names at once."""
    parts = [_split_name(name) for name in names]
    shards: dict[tuple[str, int | None], set[int | None]] = {}
    for part in parts:
        shards.setdefault((part.base, part.total), set()).add(part.number)
    whole = {(base, total) for (base, total), numbers in shards.items() if _is_complete(numbers, total)}
    return [
        part.base if (part.base, part.total) in whole or (i, part.total) in totals else part.whole
        for i, part in enumerate(parts)
    ]


def _is_complete(numbers: set[Any], total: int | None) -> bool:
    """Return whether all shards of a name are present, counted from 1 or from 0, or its suffix has no total."""
    if total is None:
        return True
    return len(numbers) >= total and (numbers.issuperset(range(1, total + 1)) or numbers.issuperset(range(total)))


def _split_name(name: str) -> _Name:
    plain = without_emoji(name)
    suffix = _SHARD.search(plain)
    base = plain[: suffix.start()].strip() if suffix else plain
    if suffix is None or not base:
        return _Name(plain if plain.strip() else name, plain, None, None)
    if suffix["index"] is None:
        return _Name(plain, base, None, None)
    index, total = int(suffix["index"]), int(suffix["total"])
    return _Name(plain, base, index, total) if index <= total else _Name(plain, plain, None, None)


def without_emoji(name: str) -> str:
    """Return the name on one line without its `:emoji:`, or unchanged if nothing else is left."""
    return " ".join(_EMOJI.sub(" ", name).split()) or name
