"""Which step a job belongs to, across builds."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from buildframe.metrics.columns import column

_EMOJI = re.compile(r"(?<!\w):[\w+-]+:")  # not after a letter: "test:unit:fast" is a name

_SHARD = re.compile(
    r"""[\s\-–—,:|(\[]+                              # something sets it off, so "C#3" stays
        (?:(?:shard|part|group|node)\s*)?
        (?: \#?(?P<index>\d+)\s*(?:/|of)\s*(?P<total>\d+) | \#\d+ | (?<=shard)\s*\d+ | (?<=shard\s)\d+ )
        \s*[)\]]?\s*$""",
    re.VERBOSE | re.IGNORECASE,
)


def step(jobs: pd.DataFrame) -> pd.Series[str]:
    """The step of each job: its `step_key`, else its `name` without emoji and shard suffix.

    So ":rspec: RSpec 3/10", "RSpec (4 of 10)" and "RSpec #5" are all "RSpec". A name of nothing else
    stays as it is. Needs `step_key` and `name`; gives `str` on the frame's index, null where both are.
    Names repeat between pipelines: group by `["pipeline", metrics.step]` where a frame holds several.
    """
    keys, names = column(jobs, "step_key").astype("str"), column(jobs, "name").astype("str")
    of_key, key = pd.factorize(keys)
    of_name, name = pd.factorize(names)
    places = np.where(of_key >= 0, of_key, np.where(of_name >= 0, len(key) + of_name, -1))
    texts = pd.array([*key, *map(_plain, name)], dtype="str")
    return pd.Series(texts.take(places, allow_fill=True), keys.index, name="step")


def _plain(name: str) -> str:
    return _SHARD.sub(_unless_no_share, without_emoji(name)).strip() or name


def without_emoji(name: str) -> str:
    """The name without its `:emoji:`, on one line; as it is where there is nothing else."""
    return " ".join(_EMOJI.sub(" ", name).split()) or name


def _unless_no_share(suffix: re.Match[str]) -> str:
    """Nothing for "3/10"; the text itself for "22/04", which is no share of anything."""
    index, total = suffix["index"], suffix["total"]
    return suffix[0] if index and int(index) > int(total) else ""
