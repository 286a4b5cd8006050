"""All text that tracebacks with local variables show of an error: those of IPython and rich, and every variable."""

from __future__ import annotations

import io
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import ClassVar

from IPython.core.ultratb import VerboseTB
from rich.console import Console
from rich.traceback import Traceback

HERE = Path(__file__).parent
_ALL = 1_000_000


class _PlainTraceback(Traceback):
    """A traceback without colors, for which rich would parse whole files."""

    LEXERS: ClassVar = {".py": "text"}


def shown_of(error: BaseException) -> str:
    """Return all text shown of an error, its causes and contexts, without the frames of the test itself."""
    for seen in chain(error):
        seen.__traceback__ = _below_tests(seen.__traceback__)
    return "\n".join([*(_variables(seen) for seen in chain(error)), verbose(error), rich(error)])


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, its causes and its contexts, also those that Python would not print."""
    seen: list[BaseException] = []
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is not None and one not in seen:
            seen.append(one)
            left += [one.__cause__, one.__context__]
    yield from seen


def verbose(error: BaseException) -> str:
    """Return the traceback that `%xmode Verbose` prints."""
    return str(VerboseTB("nocolor", include_vars=True).text(type(error), error, error.__traceback__))


def rich(error: BaseException) -> str:
    """Return the traceback that rich prints with variables."""
    printed = _PlainTraceback.from_exception(
        type(error), error, error.__traceback__, show_locals=True, locals_max_length=_ALL, locals_max_string=_ALL
    )
    out = io.StringIO()
    Console(file=out, width=10_000).print(printed)
    return out.getvalue()


def _below_tests(at: TracebackType | None) -> TracebackType | None:
    while at is not None and HERE in Path(at.tb_frame.f_code.co_filename).parents:
        at = at.tb_next
    return at


def _variables(error: BaseException) -> str:
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    held = [repr(frame.f_locals) for frame in frames if HERE not in Path(frame.f_code.co_filename).parents]
    return "\n".join([*held, *traceback.format_exception(error), repr(vars(error))])
