"""Show the progress of a listing or another task in notebooks and terminals. Does not know lists."""

from __future__ import annotations

import functools
import os
import threading
import time
from typing import TYPE_CHECKING, NoReturn, Self

if TYPE_CHECKING:
    from tqdm import tqdm

_FORMAT = "{desc} {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}{postfix}]"


@functools.cache
def bar_type() -> type[tqdm[NoReturn]]:
    """Return the class of the bars. It is loaded with the first bar: it imports asyncio."""
    from tqdm.auto import tqdm

    class Bar(tqdm):  # type: ignore[type-arg]  # generic in stubs only
        monitor_interval = 0  # without tqdm's own thread, which would draw as well, and outlive the listing

    if hasattr(os, "register_at_fork"):  # another thread of the parent process may have held tqdm's lock
        os.register_at_fork(after_in_child=lambda: Bar.set_lock(threading.RLock()))
    return Bar


class ProgressBar:
    """Shows rows, share, rate and waits. By default only if interactive; `shown` turns it on or off.

    Only the thread that made the bar draws it. What other threads pass to `wait` shows at the next `tick`.
    """

    def __init__(self, name: str, shown: bool | None) -> None:
        self._name = name
        is_disabled = None if shown is None else not shown
        self._bar = bar_type()(desc=name, total=100.0, bar_format=_FORMAT, disable=is_disabled)
        self._owner = threading.get_ident()
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._waits_until, self._why = 0.0, ""
        self._status = self._drawn = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._bar.close()

    def show(self, rows: int, sources: int, share: float | None, unit: str = "responses") -> None:
        """Show what was read so far; `share` is the share of the whole, from 0 to 1, or None if unknown."""
        rate = rows / max(time.monotonic() - self._began, 0.001)
        self._status = f"{rows:,} {self._name} in {sources:,} {unit}, {rate:,.0f}/s"
        self.show_share(share or 0.0)
        self.tick()

    def show_share(self, share: float) -> None:
        """Show the share of the whole that is done, from 0 to 1; it never decreases."""
        self._bar.update(max(0.0, 100.0 * share - self._bar.n))

    def wait(self, seconds: float, why: str) -> None:
        """Show a wait of a thread. Of several waits, the longest shows."""
        with self._lock:
            until = time.monotonic() + seconds
            if until > self._waits_until:
                self._waits_until, self._why = until, why
        if threading.get_ident() == self._owner:
            self.tick()

    def tick(self) -> None:
        """Draw the bar if it has changed."""
        seconds = self._waits_until - time.monotonic()
        waiting = f"waiting {seconds:.0f} s: {self._why}" if seconds > 0 else ""
        text = ", ".join(filter(None, (waiting, self._status)))  # a narrow terminal cuts off its end
        if text != self._drawn:
            self._drawn = text
            self._bar.set_postfix_str(text)

    def end(self) -> None:
        """Fill the bar."""
        self._bar.update(100.0 - self._bar.n)
