"""Keep secrets out of tracebacks that print variables. Knows nothing of what a secret is for."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Never, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound=BaseException)


class Secret:
    """A text that is printed nowhere by accident: `repr` hides it, and it cannot be pickled."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lower()}>"

    def __reduce__(self) -> Never:
        raise TypeError(f"a {type(self).__name__.lower()} is not pickled: pass it anew to the process that needs it")

    def reveal(self) -> str:
        """Return the text; only as an argument, never as a variable."""
        return self._value


def environment(name: str) -> str:
    """Return a variable of the environment, or "".

    Verbose tracebacks print each expression of a statement, `os.environ` with all it holds too: so no statement of
    ours that can fail may contain it.
    """
    return os.environ.get(name, "")


def confined(call: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that handles a secret: the traceback of its errors has no frame that holds one.

    The frames below are dropped, and so are the error's cause and context, which have frames too.
    """

    @wraps(call)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        failure: BaseException
        try:
            return call(*args, **kwargs)
        except BaseException as why:  # Ctrl-C too
            failure = without_frames(why)
        del args, kwargs
        raise failure

    guarded.__dict__["is_confined"] = True
    return guarded


def is_confined(call: Callable[..., object]) -> bool:
    """Whether a function is decorated with `confined`; then what wraps it must be, too: its frame has the arguments."""
    return "is_confined" in vars(call)


def without_frames(error: E) -> E:
    """Return the error without its frames so far, its cause and its context. Raise it outside of the `except`."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
