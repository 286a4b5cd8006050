"""The progress bar of one walk: in notebooks and terminals, silent elsewhere and on request."""

from __future__ import annotations

import os
import threading
import time
from typing import Self

from tqdm.auto import tqdm

_FORMAT = "{desc} {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}{postfix}]"


class _Drawn(tqdm):  # type: ignore[type-arg]  # generic in stubs only
    monitor_interval = 0  # no thread of tqdm's own, which would draw as well, and outlive the walk


if hasattr(os, "register_at_fork"):  # another thread of the parent may have held tqdm's lock
    os.register_at_fork(after_in_child=lambda: _Drawn.set_lock(threading.RLock()))


class Bar:
    """Shows rows, share and rate, and why a walk waits; silent where nobody can see it, unless `shown` is True.

    Only the thread that made it draws; what others tell by `wait` shows at its next `tick`.
    """

    def __init__(self, what: str, shown: bool | None) -> None:
        self._what = what
        self._bar = _Drawn(desc=what, total=100.0, bar_format=_FORMAT, disable=None if shown is None else not shown)
        self._owner = threading.get_ident()
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._waits_until, self._why = 0.0, ""
        self._so_far = self._drawn = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._bar.close()

    def show(self, rows: int, answers: int, share: float | None) -> None:
        """What was read so far; `share` is that of the whole, from 0 to 1, where it is known."""
        rate = rows / max(time.monotonic() - self._began, 0.001)
        self._so_far = f"{rows:,} {self._what} in {answers:,} answers, {rate:,.0f}/s"
        self._bar.update(max(0.0, 100.0 * (share or 0.0) - self._bar.n))
        self.tick()

    def wait(self, seconds: float, why: str) -> None:
        """Told by whoever waits, so many seconds. Of several the one who waits longest shows."""
        with self._lock:
            until = time.monotonic() + seconds
            if until > self._waits_until:
                self._waits_until, self._why = until, why
        if threading.get_ident() == self._owner:
            self.tick()

    def tick(self) -> None:
        """Draw what has changed."""
        seconds = self._waits_until - time.monotonic()
        waiting = f"waiting {seconds:.0f} s: {self._why}" if seconds > 0 else ""
        text = ", ".join(filter(None, (waiting, self._so_far)))  # a narrow terminal cuts off its end
        if text != self._drawn:
            self._drawn = text
            self._bar.set_postfix_str(text)

    def end(self) -> None:
        """All was read."""
        self._bar.update(100.0 - self._bar.n)
