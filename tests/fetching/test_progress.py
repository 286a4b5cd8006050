"""The progress bar: where somebody can see it, what it says, and who draws it."""

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
from typing import Any, Self

import pytest

import buildframe as bf
from buildframe.fetching.progress import ProgressBar
from buildframe.workspace import Workspace
from tests.conftest import hang_up, says
from tests.listing import Answer, evenly, listing

pytestmark = pytest.mark.slow

BUILDS = evenly(1500, every=40)


class Terminal:
    """A pseudo-terminal in place of standard error, for a block; after it `drawings` is what was drawn on it."""

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
def test_a_terminal_shows_rows_answers_and_rate_up_to_the_end(workers: int) -> None:
    with Terminal() as terminal, listing(BUILDS) as service:
        service.connected().builds(workers=workers)
    *_, last = terminal.drawings
    assert re.match(rf"builds 100%\|.*\| \[.*, 1,500 builds in {len(service.requests)} responses, [\d,]+/s\]$", last)
    shares = [int(share) for share in re.findall(r"builds +(\d+)%", terminal.text)]
    assert shares == sorted(shares)


def test_lists_without_an_order_in_time_show_theirs(ci: Workspace) -> None:
    with Terminal() as terminal:
        found = ci.pipelines()
    assert re.match(rf"pipelines 100%\|.*{len(found)} pipelines in 1 responses, ", terminal.drawings[-1])


@pytest.mark.parametrize("workers", [1, 4])
def test_what_ends_early_does_not_end_at_100(workers: int) -> None:
    with Terminal() as terminal, listing(BUILDS) as service:
        assert not service.connected().builds(workers=workers, max_requests=3).attrs["complete"]
    assert "100%" not in terminal.text
    assert re.search(rf"\d\d\d builds in {service.pages} responses", terminal.text)


@pytest.mark.parametrize("listed", ["builds", "jobs", "history", "pipelines"])
def test_who_wants_no_bar_sees_none(ci: Workspace, listed: str) -> None:
    with Terminal() as terminal:
        getattr(ci, listed)(progress=False)
    assert terminal.drawings == []


@pytest.mark.parametrize("listed", ["builds", "jobs", "history", "pipelines"])
def test_where_nobody_can_see_it_there_is_none_unless_wanted(
    ci: Workspace, listed: str, capfd: pytest.CaptureFixture[str]
) -> None:
    getattr(ci, listed)()
    assert capfd.readouterr() == ("", "")
    getattr(ci, listed)(progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "100%" in err


WAITS = {
    "the rate limit is used up": says(b"{}", 429, RateLimit_Remaining="0", RateLimit_Reset="2"),
    "the service returned 503": says(b"{}", 503, Retry_After="2"),
    "no readable response": hang_up,
}


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("created_from", [None, "60d"], ids=["a reader", "the caller"])
@pytest.mark.parametrize("why", WAITS)
def test_it_says_how_long_is_waited_and_why(
    workers: int, created_from: Any, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("buildframe.http.retry._BACKOFF", lambda state: 2.0)
    which = 1 if created_from else 3

    def meddle(number: int, query: dict[str, str]) -> Answer | None:
        return WAITS[why] if number == which else None

    with Terminal() as terminal, listing(BUILDS, meddle) as service:
        frame = service.connected().builds(workers=workers, created_from=created_from)
    assert frame.attrs["complete"]
    assert re.search(rf"waiting [12] s: {why}[],]", terminal.text)
    assert ("waiting 1 s" in terminal.text) is (created_from is None), "who reads at the same time counts down"
    assert "waiting" not in terminal.drawings[-1]


def test_of_several_who_wait_the_longest_shows() -> None:
    with Terminal() as terminal, ProgressBar("builds", None) as bar, ThreadPoolExecutor(1) as reader:
        bar.show(5, 1, 0.5)
        reader.submit(bar.wait, 50.0, "the limit").result()
        reader.submit(bar.wait, 5.0, "a failure").result()
        bar.tick()
    assert "5 builds in 1 responses, " in terminal.drawings[-1]
    assert "waiting 50 s: the limit" in terminal.drawings[-1]


class Watched(io.StringIO):
    """A terminal that notes which threads draw on it."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn_by: set[int] = set()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.drawn_by.add(threading.get_ident())
        return super().write(text)


def test_only_the_thread_that_asks_draws() -> None:
    watched = Watched()
    fails = says(b"{}", 503, Retry_After="1")

    def ask() -> int:
        ws.builds(workers=8)
        return threading.get_ident()

    with (
        listing(BUILDS, lambda number, query: fails if number == 4 else None) as service,
        service.connected() as ws,
        ThreadPoolExecutor(1) as pool,
        redirect_stderr(watched),
    ):
        asker = pool.submit(ask).result()
    assert watched.drawn_by == {asker}
    assert "waiting" in watched.getvalue()
    assert not [thread for thread in threading.enumerate() if "tqdm" in thread.name]


def test_a_failure_leaves_no_bar_open() -> None:
    from buildframe.fetching.progress import _Tqdm

    refuses = says(b"{}", 401)
    with Terminal(), listing(BUILDS, lambda number, query: refuses) as service, pytest.raises(bf.Unauthorized):
        service.connected().builds()
    assert not [bar for bar in _Tqdm._instances if not bar.disable]  # type: ignore[attr-defined]
