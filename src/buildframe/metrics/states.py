"""Refuse states in a spelling of other systems, which a rate would silently leave out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

import pandas as pd

from buildframe.errors import BadInput
from buildframe.metrics.columns import typed
from buildframe.metrics.engines import Frame, as_pandas, chosen, is_pandas
from buildframe.spec.builds import BuildState

_OF_JOBS = (
    "pending", "waiting", "waiting_failed", "blocked", "blocked_failed", "unblocked", "unblocked_failed", "limiting",
    "limited", "scheduled", "reserved", "assigned", "accepted", "running", "passed", "failed", "canceling", "canceled",
    "expired", "timing_out", "timed_out", "skipped", "broken",
)  # fmt: skip
_OF_WEBHOOKS = ("started", "finished")
KNOWN = frozenset({*get_args(BuildState), *_OF_JOBS, *_OF_WEBHOOKS})
"""The states of builds and jobs that the service has today."""

_MEANT = {
    **dict.fromkeys(["pass", "success", "successful", "succeeded", "ok", "green"], "passed"),
    **dict.fromkeys(["fail", "failure", "error", "errored", "red"], "failed"),
    **dict.fromkeys(["cancel", "cancelled"], "canceled"),
    **dict.fromkeys(["cancelling"], "canceling"),
    **dict.fromkeys(["timeout"], "timed_out"),
}
_MEANT |= {state.replace("_", ""): state for state in KNOWN}


def check_states(frame: Frame, *names: str) -> None:
    """Raise BadInput if a column of states, on any engine, holds states that would silently not be counted.

    These are other spellings of known states ("Passed", "success"), and, if no state of the column is known, all. A
    new state of the service beside known ones is accepted: it is neither passed nor failed.
    """
    for name in names:
        found = _states(frame, name)
        check_spellings(found, name)
        if found and not KNOWN & set(found):
            raise BadInput(
                f"The column {name!r} holds no state that is known, but {_listed(found)}, so that nothing would be "
                f"counted. Convert them; known are {_listed(KNOWN)}."
            )


def check_spellings(states: Iterable[str], name: str) -> None:
    """Raise BadInput if one of these, each once, is a known state in another spelling."""
    for state in sorted({*states} - KNOWN):
        if meant := _MEANT.get("".join(filter(str.isalnum, state.lower()))):
            raise BadInput(
                f"The column {name!r} holds {state!r}, which is no state of the service. If it means {meant!r}, "
                f"convert it, in pandas by frame[{name!r}].replace({{{state!r}: {meant!r}}}). "
                f"Known are {_listed(KNOWN)}."
            )


def _states(frame: Frame, name: str) -> list[str]:
    """The states of a column, each once."""
    if is_pandas(frame):
        return [str(state) for state in pd.unique(typed(frame, name).dropna())]
    return as_pandas(chosen(frame, [name]).unique())[name].dropna().astype("str").tolist()


def _listed(states: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(states)[:40]))
