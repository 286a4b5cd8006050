"""Add a note to KeyboardInterrupt if an action was sent whose outcome is unknown. Does not know HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class _ThreadState(threading.local):
    """State of one thread: whether a public method runs, and the note for an interrupt."""

    is_inside = False
    note: str | None = None  # note of the current action
    unknown: str | None = None  # the note, after a part of the action was sent


_STATE = _ThreadState()


def begin_request(note: str | None) -> None:
    """Record the note for the request that this thread will send next; None if it changes nothing on the service."""
    _STATE.note = note


def mark_sent() -> None:
    """Record that bytes of the request are sent, so that the service may perform the action from now on."""
    if _STATE.note is not None:
        _STATE.unknown = _STATE.note


def mark_not_performed() -> None:
    """Record that the service did not perform the action, so that it can be sent again."""
    if _STATE.note is not None:
        _STATE.unknown = None


def annotate_interrupts(call: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public method so that an interrupt carries the note of an action whose outcome is unknown.

    Only the outermost method adds the note. Nothing runs after `call` returns, so no interrupt can occur in between.
    """

    @wraps(call)
    def outermost(*args: P.args, **kwargs: P.kwargs) -> R:
        if _STATE.is_inside:
            return call(*args, **kwargs)
        try:
            _STATE.is_inside, _STATE.note, _STATE.unknown = True, None, None
            return call(*args, **kwargs)
        except (KeyboardInterrupt, SystemExit) as stop:
            if _STATE.unknown is not None:
                stop.add_note(_STATE.unknown)
            raise
        finally:
            _STATE.is_inside = False

    return outermost
