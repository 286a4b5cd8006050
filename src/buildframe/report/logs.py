"""Format log lines of a report on stderr, plain or as JSON. Does not know reports."""

from __future__ import annotations

import json
import logging
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from buildframe.terminal import escape_control_characters

LogFormat = Literal["plain", "json"]

LOG = logging.getLogger("buildframe")


@contextmanager
def log_to_stderr(log_format: LogFormat) -> Iterator[None]:
    """Write log records and warnings to stderr. Records of other packages need at least the level WARNING."""
    root, level = logging.getLogger(), LOG.level
    handler = logging.StreamHandler()
    handler.setFormatter(_LineFormatter(log_format))
    root.addHandler(handler)
    LOG.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: log_event(str(message), logging.WARNING)
            yield
    finally:
        LOG.setLevel(level)
        root.removeHandler(handler)


def log_event(event: str, level: int = logging.INFO, *, trace: bool = False, **fields: Any) -> None:
    """Log an event. `fields` appear in JSON lines only. With `trace`, add the traceback of the current exception."""
    LOG.log(level, "%s", event, exc_info=trace, extra={"fields": fields})


class _LineFormatter(logging.Formatter):
    """Format a record as `2026-10-26T08:00:01Z INFO synced: ...` after its traceback, or as a JSON object."""

    def __init__(self, log_format: LogFormat) -> None:
        super().__init__()
        self._log_format = log_format

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        if self._log_format == "plain":
            lines = f"{escape_control_characters(trace)}\n" if trace else ""
            return f"{lines}{at} {record.levelname} {_one_line(record.getMessage())}"
        fields = getattr(record, "fields", {}) | ({"traceback": trace} if trace else {})
        return json.dumps({"time": at, "level": record.levelname, "event": record.getMessage(), **fields})


def _one_line(text: str) -> str:
    """Return the text on one line with control characters escaped. Messages of a service are untrusted."""
    joined = " ".join(line.strip() for line in text.splitlines())
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in joined)
