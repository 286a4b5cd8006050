"""Refuse infinite durations, and states in the spelling of other systems, which a rate would silently leave out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

import narwhals as nw
import pandas as pd

from buildframe.errors import BadInput
from buildframe.metrics.engines import engine_of
from buildframe.metrics.engines.expressions import is_any_of
from buildframe.metrics.engines.rows import Frame, GroupedRows
from buildframe.spec.builds import BuildState

_JOB_STATES = (
    "pending", "waiting", "waiting_failed", "blocked", "blocked_failed", "unblocked", "unblocked_failed", "limiting",
    "limited", "scheduled", "reserved", "assigned", "accepted", "running", "passed", "failed", "canceling", "canceled",
    "expired", "timing_out", "timed_out", "skipped", "broken",
)  # fmt: skip
INFINITE = "The durations hold infinite values. Leave out these rows, or use NaN for unknown durations."

_WEBHOOK_STATES = ("started", "finished")
KNOWN = frozenset({*get_args(BuildState), *_JOB_STATES, *_WEBHOOK_STATES})
"""States of builds and jobs that the service has."""

_USUAL = ("passed", "failed")
"""Most rows have one of these states, so that only the others are grouped."""

_SPELLINGS = {
    **dict.fromkeys(["pass", "success", "successful", "succeeded", "ok", "green"], "passed"),
    **dict.fromkeys(["fail", "failure", "error", "errored", "red"], "failed"),
    **dict.fromkeys(["cancel", "cancelled"], "canceled"),
    **dict.fromkeys(["cancelling"], "canceling"),
    **dict.fromkeys(["timeout"], "timed_out"),
}
_SPELLINGS |= {state.replace("_", ""): state for state in KNOWN}


def check_states(frame: Frame, *names: str) -> Frame:
    """Raise BadInput if a column of states, on any engine, holds states that would silently not count.

    Returns the frame with its states encoded, if its engine compares them faster then.

    These are other spellings of known states ("Passed", "success"), and all states if none is known. A new state of the
    service beside known ones is accepted: it is neither passed nor failed.
    """
    frame, texts = engine_of(frame).encode_texts(frame, names, _USUAL)
    for name, values in texts.items():
        states = [state for state in values if isinstance(state, str)]
        check_spellings(states, name)
        if states and not KNOWN & set(states) and not _has_usual(frame, name):
            raise BadInput(
                f"The column {name!r} contains no known state, only {_list_states(states)}, so nothing would be "
                f"counted. Convert them to known states: {_list_states(KNOWN)}."
            )
    return frame


def _has_usual(frame: Frame, name: str) -> bool:
    engine = engine_of(frame)
    rows = engine.select_columns(frame, [name]).filter(is_any_of(name, *_USUAL))
    return not engine.collect(rows.head(1)).empty


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
        if not all(name in engine_of(frame).column_names(frame) for frame in (before, after)):
            continue
        first_before, last_before = _time_range(before, name)
        first_after, last_after = _time_range(after, name)
        is_unknown = pd.isna(first_before) or pd.isna(first_after)
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


def _time_range(frame: Frame, name: str) -> tuple[pd.Timestamp, pd.Timestamp]:
    engine = engine_of(frame)
    (limits,) = engine.time_ranges(engine.select_columns(frame, [name]), [name])
    return limits


def check_finite(rows: GroupedRows) -> None:
    """Raise BadInput if the column `value` holds an infinite duration."""
    longest = rows.engine.collect(rows.frame.select(nw.col("value").abs().max()))["value"].max()
    if longest == float("inf"):
        raise BadInput(INFINITE)


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
