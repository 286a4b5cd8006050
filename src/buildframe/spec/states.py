"""Name the sets of states of builds and jobs that several modules use."""

from __future__ import annotations

from buildframe.spec.builds import BuildState

RUNNING_STATES: tuple[BuildState, ...] = ("running", "failing")
CANCELABLE_STATES: tuple[BuildState, ...] = ("scheduled", *RUNNING_STATES)
OPEN_STATES: tuple[BuildState, ...] = (*CANCELABLE_STATES, "canceling")
"""States that a build leaves without an action of a user."""

FINISHED_STATES: tuple[BuildState, ...] = ("passed", "failed", "canceled")
ENDED_STATES: tuple[BuildState, ...] = (*FINISHED_STATES, "skipped", "not_run")
"""States in which a build stays, unless somebody retries one of its jobs."""

AGENT_STATES = frozenset({"assigned", "accepted", "running", "canceling", "timing_out"})
"""States of jobs that an agent holds."""
