"""Refuse states of other systems, which a rate would silently leave out, and periods in the wrong order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from buildframe.errors import BadInput
from buildframe.metrics.columns import NAT
from buildframe.metrics.input_frames import Frame, column_names, distinct_values, time_limits
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


def check_states(frame: Frame, *names: str) -> None:
    """Raise BadInput if a column of states holds states that would silently not count.

    These are other spellings of known states ("Passed", "success"), and all states if none is known. A new state of the
    service beside known ones is accepted: it is neither passed nor failed.
    """
    for name in names:
        states = {state for state in distinct_values(frame, name) if isinstance(state, str)}
        check_spellings(states, name)
        if states and not KNOWN & states:
            raise BadInput(
                f"The column {name!r} contains no known state, only {_list_states(states)}, so nothing would be "
                f"counted. Convert them to known states: {_list_states(KNOWN)}."
            )


def check_spellings(states: Iterable[str], name: str) -> None:
    """Raise BadInput if one of these states is a known state in another spelling."""
    for state in sorted({*states} - KNOWN):
        if meant := _SPELLINGS.get("".join(filter(str.isalnum, state.lower()))):
            raise BadInput(
                f"The column {name!r} contains {state!r}, which is not a state of the service. If it means {meant!r}, "
                f"convert it, in pandas by frame[{name!r}].replace({{{state!r}: {meant!r}}}). "
                f"Known states: {_list_states(KNOWN)}."
            )


def _list_states(states: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(states)[:40]))


_ORDERING_TIMES = ("build_created_at", "created_at", "runnable_at", "started_at", "finished_at")


def check_order(before: Frame, after: Frame, at: str, *, allow_reversed: bool) -> None:
    """Raise BadInput unless `before` is earlier than `after`, by `at` or another timestamp.

    Two periods of jobs that are split by the creation of their builds overlap a little by the end
    of the jobs. So the first timestamp that separates them decides. Frames without any value in
    `at` are accepted. Another timestamp without a value, such as `finished_at` of builds that all
    run, says nothing.
    """
    if allow_reversed:
        return
    for name in dict.fromkeys([at, *_ORDERING_TIMES]):
        if not all(name in column_names(frame) for frame in (before, after)):
            continue
        (first_before, last_before), (first_after, last_after) = (
            time_limits(frame, [name])[0] for frame in (before, after)
        )
        is_unknown = NAT in (first_before, first_after)
        if is_unknown and name == at:
            return
        if is_unknown:
            continue
        if last_before <= first_after and first_before < last_after:  # one and the same time has no order
            return
        if last_after <= first_before and first_after < last_before:
            raise BadInput(
                f"The rows of `before` are later than those of `after`, by {name!r}. The order is (before, after): "
                "swap the frames. To compare in this direction, pass allow_reversed=True."
            )
    raise BadInput(
        f"The times of `before` and `after` overlap, by {at!r} and by the other timestamps that both have, so neither "
        "is the earlier period. Split the frame at one time. To compare groups of the same time, pass "
        "allow_reversed=True."
    )
