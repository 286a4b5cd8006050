"""What the peers in Polars and DuckDB do with the small tables that their queries return."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tests.benchmarks.handwritten import in_days
from tests.benchmarks.handwritten_intervals import rated


def summed(cells: pd.DataFrame, by: list[str], size: int, hits: str, trials: list[str]) -> tuple[pd.DataFrame, Any]:
    """The sums of groups in order, and their rates with intervals; `cells` are sums by group and `cell` of time."""
    place, counts = cells.groupby(by, dropna=False).ngroup(), [name for name in cells if name not in (*by, "cell")]
    keys = cells.groupby(by, dropna=False)[counts].sum().reset_index()
    flat = place.to_numpy(np.int64) * size + cells["cell"].to_numpy(np.int64)
    dense = {
        name: np.bincount(flat, cells[name], len(keys) * size).astype(np.int64).reshape(-1, size)
        for name in {hits, *trials}
    }
    return keys, rated(dense, hits, trials, keys[hits].to_numpy(), keys[trials].sum(axis=1).to_numpy())


def settled(cells: pd.DataFrame, by: list[str], size: int) -> pd.DataFrame:
    keys, rates = summed(cells, by, size, "passed", ["passed", "failed"])
    return keys.assign(n=keys["passed"] + keys["failed"], **rates)


def rated_kinds(counts: pd.DataFrame, rates: dict[str, Any]) -> pd.DataFrame:
    counts = counts.assign(of_unknown_kind=counts["retried"] - counts["automatic"] - counts["manual"], **rates)
    return counts.assign(**{f"{kind}_rate": counts[kind] / counts["executions"] for kind in ("automatic", "manual")})


def each_day(fetched_at: int, days: pd.DataFrame) -> pd.DataFrame:
    """Rows by `day`, also of those in which there was nothing."""
    result = days.set_index("day")
    first, last = result.index[[0, -1]]
    result = result.reindex(range(first, last + 1))
    empty = {"rate", "low", "high", "n_effective"}
    counts = {name: result[name].fillna(0) for name in result if name[0] != "p" or name == "passed"}
    whole = result.assign(**{name: one for name, one in counts.items() if name not in empty})
    return in_days(fetched_at, first, len(result), dict(whole.reset_index(drop=True).items()))
