"""Flag single builds and jobs by their states: a null state matches no outcome. Does not group or summarize."""

from __future__ import annotations

import pandas as pd

from buildframe.metrics.columns import Flags
from buildframe.metrics.durations import is_blocked


def is_any_of(frame: pd.DataFrame, name: str, *texts: str) -> Flags:
    """Return which values of a column are one of these texts."""
    flags = equals(frame, name, texts[0])
    for text in texts[1:]:
        flags = flags | equals(frame, name, text)
    return flags


def equals(frame: pd.DataFrame, name: str, text: str) -> Flags:
    """Return which values of a column are this text; a null is not."""
    return (frame[name] == text).to_numpy(bool, na_value=False)


def is_set(frame: pd.DataFrame, name: str) -> Flags:
    """Return which flags are set; a null is not."""
    return frame[name].to_numpy(bool, na_value=False)


def has_failed_hard(jobs: pd.DataFrame) -> Flags:
    """Return which jobs failed or timed out, unless the failure is soft."""
    failed = equals(jobs, "state", "failed") & ~is_set(jobs, "soft_failed")
    return failed | equals(jobs, "state", "timed_out")


def is_held(jobs: pd.DataFrame) -> Flags:
    """Return which block steps wait to be unblocked; jobs behind one are in this state, too."""
    return equals(jobs, "type", "manual") & equals(jobs, "state", "blocked")


def flag_outcomes(frame: pd.DataFrame) -> tuple[Flags, Flags]:
    """Return which builds or jobs failed, and which passed or failed. Jobs have the column `type`."""
    has_passed = equals(frame, "state", "passed")
    if "type" in frame:
        is_script = equals(frame, "type", "script")
        has_failed = has_failed_hard(frame)
        return is_script & has_failed, is_script & (has_failed | has_passed)
    settled = ~is_blocked(frame).to_numpy()
    has_failed = equals(frame, "state", "failed")
    return settled & has_failed, settled & (has_failed | has_passed)
