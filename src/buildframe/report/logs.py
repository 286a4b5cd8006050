"""What a run says as it goes on: a line each on stderr, plain or JSON."""

from __future__ import annotations

import json
import logging
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from buildframe.terminal import harmless

Form = Literal["plain", "json"]

LOG = logging.getLogger("buildframe")


@contextmanager
def to_stderr(form: Form) -> Iterator[None]:
    """Write log lines and warnings to stderr; of other packages only what is at least a warning."""
    root, level = logging.getLogger(), LOG.level
    handler = logging.StreamHandler()
    handler.setFormatter(_Plain() if form == "plain" else _Json())
    root.addHandler(handler)
    LOG.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warned
            yield
    finally:
        LOG.setLevel(level)
        root.removeHandler(handler)


def say(event: str, level: int = logging.INFO, *, trace: bool = False, **fields: Any) -> None:
    """A line; `fields` are for programs, in JSON lines only. With `trace` the traceback of what is being handled."""
    LOG.log(level, "%s", event, exc_info=trace, extra={"fields": fields})


def _warned(message: Warning | str, *_: Any, **__: Any) -> None:
    say(str(message), logging.WARNING)


def _time(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))


class _Plain(logging.Formatter):
    """`2026-10-26T08:00:01Z INFO synced: ...`; before it the traceback, where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        trace = f"{harmless(self.formatException(record.exc_info))}\n" if record.exc_info else ""
        return f"{trace}{_time(record)} {record.levelname} {_in_a_line(record.getMessage())}"


class _Json(logging.Formatter):
    """An object with `time`, `level`, `event`, and what else a line has."""

    def format(self, record: logging.LogRecord) -> str:
        told = {"time": _time(record), "level": record.levelname, "event": record.getMessage()}
        told |= getattr(record, "fields", {})
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps(told)


def _in_a_line(text: str) -> str:
    """A text without what would end the line or steer a terminal: a service's messages are anybody's."""
    joined = " ".join(line.strip() for line in text.splitlines())
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in joined)
