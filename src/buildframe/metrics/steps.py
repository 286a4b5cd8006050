"""Which step a job belongs to, across builds."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from buildframe.arguments import checked_names
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
"""The column that shows of how many parallel jobs one is; a frame need not have it."""


@checked_names
def step(jobs: pd.DataFrame) -> pd.Series[str]:
    """The step of each job: its `step_key`, else its `name` without emoji and shard suffix.

    So ":rspec: RSpec 1/2" and "RSpec (2 of 2)" are both "RSpec". A suffix n/m is a shard if n is at most m and the
    frame has all m shards of the name, or if the service says that the job is one of m parallel ones
    (`parallel_group_total`): "iOS 17/18" alone is a version. So compute steps on whole builds, before you choose among
    their jobs. "RSpec #5" and "RSpec shard 5" are "RSpec", too. A name of nothing else stays as it is.
    Needs `step_key` and `name`; gives `str` on the frame's index, null if both are null.
    Names repeat between pipelines: group by `["pipeline", metrics.step]` if a frame holds several.
    """
    keys, names = column(jobs, "step_key").astype("str"), column(jobs, "name").astype("str")
    of_key, key = pd.factorize(keys)
    of_name, name = pd.factorize(names)
    places = np.where(of_key >= 0, of_key, np.where(of_name >= 0, len(key) + of_name, -1))
    texts = pd.array([*key, *_without_shards(name, _totals(jobs, of_name))], dtype="str")
    return pd.Series(texts.take(places, allow_fill=True), keys.index, name="step")


class _Name(NamedTuple):
    """A name in parts: without emoji, the same without what may be a shard suffix, and the n and m of that."""

    whole: str
    base: str
    number: int | None
    total: int | None


def _totals(jobs: pd.DataFrame, of_name: npt.NDArray[np.intp]) -> set[tuple[int, int]]:
    """Return which names (as numbers) the service says to be one of how many parallel jobs."""
    if OF_PARALLEL_JOBS not in jobs:
        return set()
    totals = column(jobs, OF_PARALLEL_JOBS)
    known = totals.notna().to_numpy() & (of_name >= 0)
    pairs = pd.DataFrame({"name": of_name[known], "total": totals[known].to_numpy(np.int64)}).drop_duplicates()
    return set(pairs.itertuples(index=False, name=None))


def _without_shards(names: Iterable[str], totals: set[tuple[int, int]]) -> list[str]:
    """Return the names as steps; `names` are all that there are, each once."""
    parts = [_in_parts(name) for name in names]
    shards: dict[tuple[str, int | None], set[int | None]] = {}
    for part in parts:
        shards.setdefault((part.base, part.total), set()).add(part.number)
    whole = {(base, total) for (base, total), found in shards.items() if _are_all(found, total)}
    return [
        part.base if (part.base, part.total) in whole or (i, part.total) in totals else part.whole
        for i, part in enumerate(parts)
    ]


def _are_all(found: set[Any], total: int | None) -> bool:
    """Whether all shards of a name were found, counted from 1 or from 0, or its suffix has no total."""
    if total is None:
        return True
    return len(found) >= total and (found.issuperset(range(1, total + 1)) or found.issuperset(range(total)))


def _in_parts(name: str) -> _Name:
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
    """The name without its `:emoji:`, on one line; as it is where there is nothing else."""
    return " ".join(_EMOJI.sub(" ", name).split()) or name
