"""Keep secrets out of tracebacks that print variables. Does not know what the secrets are for."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Never, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound=BaseException)


class Secret:
    """A string that `repr` hides and that cannot be pickled or copied deeply."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lower()}>"

    def __reduce__(self) -> Never:
        raise TypeError(f"a {type(self).__name__.lower()} cannot be pickled; pass it to the other process again")

    def __deepcopy__(self, _: object) -> Never:
        raise TypeError(f"a {type(self).__name__.lower()} cannot be copied; pass it again")

    def reveal(self) -> str:
        """Return the string. Use the result only as an argument; do not assign it to a variable."""
        return self._value


def environment(name: str) -> str:
    """Return an environment variable, or "".

    Verbose tracebacks print every expression of a failing statement. Code that can fail must therefore not contain
    `os.environ`, which may hold secrets.
    """
    return os.environ.get(name, "")


def confined(call: Callable[P, R], errors: type[BaseException] = BaseException) -> Callable[P, R]:
    """Decorate a function that handles a secret, so that tracebacks of its errors contain no frame with the secret.

    Removes the frames below the function, and the cause and context of the error, which have frames, too. Other errors
    than `errors` keep them.
    """

    @wraps(call)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        failure: BaseException
        try:
            return call(*args, **kwargs)
        except errors as why:  # by default also KeyboardInterrupt
            failure = without_frames(why)
        del args, kwargs
        raise failure

    guarded.__dict__["is_confined"] = True
    return guarded


def is_confined(call: Callable[..., object]) -> bool:
    """Whether a function is decorated with `confined`. Its wrappers must be, too: their frames hold arguments."""
    return "is_confined" in vars(call)


def without_frames(error: E) -> E:
    """Remove the traceback, cause and context of an error. Raise the result outside the `except` block."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
