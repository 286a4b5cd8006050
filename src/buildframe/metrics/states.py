"""Refuse states in the spelling of other systems, which a rate would silently leave out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from buildframe.errors import BadInput
from buildframe.spec.builds import BuildState

_JOB_STATES = (
    "pending", "waiting", "waiting_failed", "blocked", "blocked_failed", "unblocked", "unblocked_failed", "limiting",
    "limited", "scheduled", "reserved", "assigned", "accepted", "running", "passed", "failed", "canceling", "canceled",
    "expired", "timing_out", "timed_out", "skipped", "broken",
)  # fmt: skip
_WEBHOOK_STATES = ("started", "finished")
KNOWN = frozenset({*get_args(BuildState), *_JOB_STATES, *_WEBHOOK_STATES})
"""States of builds and jobs that the service has."""

_SPELLINGS = {
    **dict.fromkeys(["pass", "success", "successful", "succeeded", "ok", "green"], "passed"),
    **dict.fromkeys(["fail", "failure", "error", "errored", "red"], "failed"),
    **dict.fromkeys(["cancel", "cancelled"], "canceled"),
    **dict.fromkeys(["cancelling"], "canceling"),
    **dict.fromkeys(["timeout"], "timed_out"),
}
_SPELLINGS |= {state.replace("_", ""): state for state in KNOWN}


def check_spellings(states: Iterable[str], name: str) -> None:
    """Raise BadInput if one of these states is a known state in another spelling."""
    for state in sorted({*states} - KNOWN):
        if meant := _SPELLINGS.get("".join(filter(str.isalnum, state.lower()))):
            raise BadInput(
                f"The column {name!r} contains {state!r}, which is not a state of the service. If it means {meant!r}, "
                f"convert it, in pandas by frame[{name!r}].replace({{{state!r}: {meant!r}}}). "
                f"Known states: {list_states(KNOWN)}."
            )


def list_states(states: Iterable[str]) -> str:
    """Return the first 40 states as text."""
    return ", ".join(map(repr, sorted(states)[:40]))
