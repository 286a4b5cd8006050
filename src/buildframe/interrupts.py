"""What Ctrl-C leaves unknown: an action that was sent, and whose method has not returned. Sends nothing itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class _Mine(threading.local):
    """Of one thread: whether a public method is under way, and what its interrupt would leave unknown."""

    is_inside = False
    note: str | None = None  # of the action that is asked for now
    unknown: str | None = None  # the note, once a part of the action was sent


_MINE = _Mine()


def asks(note: str | None) -> None:
    """Note that this thread is about to send an action, and what to say if it is interrupted; None: only a question."""
    _MINE.note = note


def sends() -> None:
    """Note that this thread is about to send a part of what it asks; an action may be done from now on."""
    if _MINE.note is not None:
        _MINE.unknown = _MINE.note


def takes_back() -> None:
    """Note that the action of this thread was not done: it will be sent again."""
    if _MINE.note is not None:
        _MINE.unknown = None


def noted(call: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public method: an interrupt says what is unknown of an action, until the outermost method returns.

    Nothing is called after `call` has returned, so an interrupt cannot come between.
    """

    @wraps(call)
    def outermost(*args: P.args, **kwargs: P.kwargs) -> R:
        if _MINE.is_inside:
            return call(*args, **kwargs)
        try:
            _MINE.is_inside, _MINE.note, _MINE.unknown = True, None, None
            return call(*args, **kwargs)
        except (KeyboardInterrupt, SystemExit) as stop:
            if _MINE.unknown is not None:
                stop.add_note(_MINE.unknown)
            raise
        finally:
            _MINE.is_inside = False

    return outermost
