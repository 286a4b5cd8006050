"""Say how far off the predictions of a replay are. Knows its table of errors, but no figures."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from buildframe.formatting import format_count, format_duration, format_percent

_UNKNOWN = "error of the replay unknown: it needs two days"


def describe_error_of_queue(errors: Mapping[str, Sequence[Any]], queue: str) -> str:
    """Return the p95 of a queue as recorded and as a blind replay predicts it, for a note; p50 if there is no p95."""
    table = pd.DataFrame(errors)
    for p in ("p95", "p50"):
        for row in table[(table["of"] == "queue") & (table["name"] == queue)].to_dict("records"):
            recorded, predicted = row[f"recorded_{p}_s"], row[f"predicted_{p}_s"]
            if recorded == recorded:
                today = f"{p} with today's agents {format_duration(recorded)}"
                return f"{today}, a blind replay says {format_duration(predicted)}"
    return _UNKNOWN


def describe_error_of_builds(errors: Mapping[str, Sequence[Any]], pipelines: Collection[Any]) -> str:
    """Return how far off a blind replay is at most at the wall times of these pipelines, for a note."""
    table = pd.DataFrame(errors)
    builds = table[(table["of"] == "pipeline") & table["name"].isin(pipelines)]
    parts = []
    for p in ("p50", "p95"):
        off = (builds[f"predicted_{p}_s"] / builds[f"recorded_{p}_s"] - 1).abs().replace(np.inf, np.nan).dropna()
        parts += [f"{format_percent(off.max())} at {p}"] if len(off) else []
    which = f" of {format_count(builds['name'].nunique(), 'pipeline')}"
    return f"blind replay off by at most {' and '.join(parts)} of wall times{which}" if parts else _UNKNOWN
