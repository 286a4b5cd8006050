"""The progress bar: when it is shown, what it shows, and which thread draws it."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import termios
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, suppress
from functools import partial
from typing import Any, Self

import pytest

import buildframe as bf
from buildframe.fetching.progress import ProgressBar
from buildframe.workspace import Workspace
from tests.conftest import hang_up, says
from tests.listing import Responder, evenly, listing

BUILDS = evenly(1500, every=40)


class Terminal:
    """Replaces standard error by a pseudo-terminal in a block; afterwards `drawings` contains its output."""

    def __init__(self) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
        self._file = os.fdopen(theirs, "w")
        self._drawn = bytearray()
        self._reader = threading.Thread(target=self._read)
        self.drawings: list[str] = []

    def __enter__(self) -> Self:
        self._reader.start()
        self._redirection = redirect_stderr(self._file)
        self._redirection.__enter__()
        return self

    def __exit__(self, *failure: Any) -> None:
        self._redirection.__exit__(*failure)
        self._file.close()
        self._reader.join()
        os.close(self._ours)
        self.drawings = [each.strip() for each in re.split(r"[\r\n]+", self._drawn.decode()) if each.strip()]

    def _read(self) -> None:
        with suppress(OSError):  # the other end was closed
            while some := os.read(self._ours, 4096):
                self._drawn += some

    @property
    def text(self) -> str:
        return "\n".join(self.drawings)


@pytest.mark.parametrize("workers", [1, 4])
def test_a_terminal_shows_rows_responses_and_rate_until_the_end(workers: int) -> None:
    with Terminal() as terminal, listing(BUILDS) as service:
        service.connected().builds(workers=workers)
    *_, last = terminal.drawings
    assert re.match(rf"builds 100%\|.*\| \[.*, 1,500 builds in {len(service.requests)} responses, [\d,]+/s\]$", last)
    shares = [int(share) for share in re.findall(r"builds +(\d+)%", terminal.text)]
    assert shares == sorted(shares)


@pytest.mark.long
def test_the_history_of_a_sandbox_shows_a_bar() -> None:
    with Terminal() as terminal, bf.sandbox(builds=20, days=1):
        pass
    assert "100%" in terminal.drawings[-1]
    with Terminal() as terminal, bf.sandbox(builds=20, days=1, progress=False):
        pass
    assert not terminal.drawings


def test_lists_that_are_not_ordered_by_time_show_a_bar(ci: Workspace) -> None:
    with Terminal() as terminal:
        found = ci.pipelines()
    assert re.match(rf"pipelines 100%\|.*{len(found)} pipelines in 1 responses, ", terminal.drawings[-1])


def test_the_bar_of_an_incomplete_listing_does_not_reach_100() -> None:
    with Terminal() as terminal, listing(BUILDS) as service:
        assert not service.connected().builds(workers=4, max_requests=3).attrs["complete"]
    assert "100%" not in terminal.text
    assert re.search(rf"\d\d\d builds in {service.pages} responses", terminal.text)


def test_progress_false_shows_no_bar_and_without_a_terminal_only_progress_true(
    ci: Workspace, capfd: pytest.CaptureFixture[str]
) -> None:
    for listed in (partial(ci.builds, created_from="2d"), partial(ci.jobs, created_from="2d"), ci.pipelines):
        with Terminal() as terminal:
            listed(progress=False)
        assert terminal.drawings == []
        listed()
        assert capfd.readouterr() == ("", "")
        listed(progress=True)
        out, err = capfd.readouterr()
        assert out == ""
        assert "100%" in err


WAITS = {
    "the rate limit is used up": says(b"{}", 429, RateLimit_Remaining="0", RateLimit_Reset="2"),
    "the service returned 503": says(b"{}", 503, Retry_After="2"),
    "no readable response": hang_up,
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("why", "created_from", "workers"),
    [
        ("the rate limit is used up", None, 4),
        ("the rate limit is used up", "60d", 1),
        ("the service returned 503", None, 1),
        ("no readable response", "60d", 4),
    ],
)
def test_the_bar_shows_how_long_and_why_a_request_waits(
    workers: int, created_from: Any, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader waits, or before the listing, for the time of the service, the caller."""
    monkeypatch.setattr("buildframe.http.retry._backoff", lambda state: 2.0)
    which = 1 if created_from else 3

    def override(number: int, query: dict[str, str]) -> Responder | None:
        return WAITS[why] if number == which else None

    with Terminal() as terminal, listing(BUILDS, override) as service:
        frame = service.connected().builds(workers=workers, created_from=created_from)
    assert frame.attrs["complete"]
    assert re.search(rf"waiting [12] s: {why}[],]", terminal.text)
    assert ("waiting 1 s" in terminal.text) is (created_from is None), (
        "the remaining time is updated while a worker waits"
    )
    assert "waiting" not in terminal.drawings[-1]


def test_the_longest_of_several_waits_is_shown() -> None:
    with Terminal() as terminal, ProgressBar("builds", None) as bar, ThreadPoolExecutor(1) as reader:
        bar.show(5, 1, 0.5)
        reader.submit(bar.wait, 50.0, "the limit").result()
        reader.submit(bar.wait, 5.0, "a failure").result()
        bar.tick()
    assert "5 builds in 1 responses, " in terminal.drawings[-1]
    assert "waiting 50 s: the limit" in terminal.drawings[-1]


class RecordingTerminal(io.StringIO):
    """A terminal that records which threads draw on it."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn_by: set[int] = set()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.drawn_by.add(threading.get_ident())
        return super().write(text)


@pytest.mark.long
def test_only_the_calling_thread_draws() -> None:
    terminal = RecordingTerminal()
    fails = says(b"{}", 503, Retry_After="1")

    def list_builds() -> int:
        ws.builds(workers=8)
        return threading.get_ident()

    with (
        listing(BUILDS, lambda number, query: fails if number == 4 else None) as service,
        service.connected() as ws,
        ThreadPoolExecutor(1) as pool,
        redirect_stderr(terminal),
    ):
        caller = pool.submit(list_builds).result()
    assert terminal.drawn_by == {caller}
    assert "waiting" in terminal.getvalue()
    assert not [thread for thread in threading.enumerate() if "tqdm" in thread.name]


def test_a_failure_leaves_no_bar_open() -> None:
    from buildframe.fetching.progress import bar_type

    refuses = says(b"{}", 401)
    with Terminal(), listing(BUILDS, lambda number, query: refuses) as service, pytest.raises(bf.Unauthorized):
        service.connected().builds()
    assert not [bar for bar in bar_type()._instances if not bar.disable]  # type: ignore[attr-defined]
