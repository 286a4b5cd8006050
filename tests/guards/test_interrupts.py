"""Ctrl-C in a process whose listing is under way: no thread remains, and the error describes what was read."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pandas as pd
import pytest

import buildframe as bf
from buildframe.workspace import PipelineWorkspace
from tests import preloaded
from tests.conftest import hang_up, says
from tests.listing import TOKEN, Listing, Responder, evenly, listing

BUILDS = evenly(1500, every=40, jobs=1)
LONGEST = 60  # seconds until a child that does not end is a failure; each should take some two

CHILD = textwrap.dedent("""
    import json, os, signal, sys, threading
    signal.signal(signal.SIGINT, signal.default_int_handler)  # of background shells' children it is ignored
    import buildframe as bf
    from buildframe.http.client import Client

    def interrupted_again(client, abort=Client.abort):
        abort(client)
        signal.raise_signal(signal.SIGINT)

    url, token, again, requested = sys.argv[1], sys.argv[2], sys.argv[3] == "again", json.loads(sys.argv[4])
    if again:
        Client.abort = interrupted_again
    reported = {"raised": None, "notes": [], "attrs": None, "numbers": []}
    try:
        frame = bf.connect("acme", base_url=url, token=token).builds(**requested)
        reported |= {"attrs": frame.attrs, "numbers": frame["number"].tolist()}
    except BaseException as error:
        reported |= {"raised": type(error).__name__, "notes": getattr(error, "__notes__", [])}
    readers = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    for thread in readers if again else []:
        thread.join()
    reported["threads"] = [] if again else [thread.name for thread in readers]
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    reported["sockets"] = [os.readlink(link) for link in links if os.path.islink(link)]
    reported["sockets"] = [link for link in reported["sockets"] if link.startswith("socket:")]
    print(json.dumps(reported), flush=True)
""")


class Stage:
    """Overrides all responses after the first `well`; `reached` is set after `readers` such requests."""

    def __init__(self, responder: Responder | None, readers: int, well: int = 2) -> None:
        self.reached = threading.Event()
        self.over = threading.Event()
        self._responder, self._readers, self._well = responder, readers, well

    def __call__(self, number: int, query: dict[str, str]) -> Responder | None:
        if number >= self._well + self._readers:
            self.reached.set()
        return (self._responder or self._hang) if number > self._well else None

    def _hang(self, handler: Any) -> None:
        self.over.wait(LONGEST)
        hang_up(handler)


def interrupted(stage: Stage, *, again: bool = False, **requested: Any) -> tuple[dict[str, Any], Listing]:
    """What a child has to report that was interrupted when the stage was reached."""
    with listing(BUILDS, stage) as service:
        arguments = [service.url, TOKEN, "again" if again else "once", json.dumps(requested)]
        try:
            result = output_of_interrupted(CHILD, arguments, stage.reached)
        finally:
            stage.over.set()
    return result, service


def output_of_interrupted(program: str, arguments: list[str], reached: threading.Event) -> Any:
    """What a program prints, as JSON, that is interrupted once the event is set."""

    def interrupt(process: int) -> None:
        assert reached.wait(LONGEST)
        time.sleep(0.3)  # it is waiting by now, or will be interrupted a little before
        os.kill(process, signal.SIGINT)

    return json.loads(preloaded.run(program, arguments, os.environ, LONGEST, interrupt).stdout)


FLAWS = {
    "hanging": None,
    "quota": says(b'{"message":"slow down"}', 429, RateLimit_Remaining="0", RateLimit_Reset="100"),
    "backoff": says(b"oops", 503, Retry_After="100"),
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("flaw", "workers", "again"),
    [
        ("hanging", 1, False),
        ("hanging", 4, False),
        ("quota", 4, False),
        ("backoff", 1, False),
        ("hanging", 4, True),
        ("backoff", 4, True),
    ],
)
def test_an_interrupt_ends_a_listing_and_says_how_far_it_came(flaw: str, workers: int, again: bool) -> None:
    result, _ = interrupted(Stage(FLAWS[flaw], workers if flaw == "hanging" else 1), workers=workers, again=again)
    assert result["raised"] == "KeyboardInterrupt"
    assert (result["threads"], result["sockets"]) == ([], [])
    if not again:
        [note] = result["notes"]
        assert note.startswith("The listing had read ")
        assert re.search(r" [12]\d\d rows in [12] responses, back to builds created at 2026-10-", note)


@pytest.mark.long
@pytest.mark.parametrize(("flaw", "workers"), [("hanging", 4), ("quota", 1), ("backoff", 4)])
def test_an_interrupted_partial_listing_hands_back_what_is_there(flaw: str, workers: int) -> None:
    stage = Stage(FLAWS[flaw], workers if flaw == "hanging" else 1)
    result, _ = interrupted(stage, workers=workers, partial=True)
    assert result["raised"] is None
    assert (result["threads"], result["sockets"]) == ([], [])
    assert (result["attrs"]["complete"], result["attrs"]["why"]) == (False, "it was interrupted")
    assert 100 <= len(result["numbers"]) <= 200
    with listing(BUILDS) as service:
        rest = [service.connected().builds(**window)["number"] for window in result["attrs"]["left"]]
    assert set(result["numbers"]).union(*rest) == set(range(1, 1501))


@pytest.mark.long
def test_a_second_interrupt_while_the_readers_are_waited_for_is_raised_whatever_was_requested() -> None:
    result, _ = interrupted(Stage(None, 4), workers=4, partial=True, again=True)
    assert result["raised"] == "KeyboardInterrupt"
    assert result["sockets"] == []


@pytest.mark.long
def test_an_interrupt_before_the_listing_has_begun() -> None:
    result, service = interrupted(Stage(None, 1, well=0), created_from="60d", partial=True)
    assert result["raised"] == "KeyboardInterrupt"
    assert (result["threads"], result["sockets"], len(service.requests)) == ([], [], 1)


def interrupting(number: int) -> Callable[[int, dict[str, str]], None]:
    """Interrupts the main thread when this request has come, before it is answered."""

    def override(this: int, query: dict[str, str]) -> None:
        if this == number:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
            time.sleep(0.05)  # the main thread handles it when it runs next

    return override


@pytest.fixture
def alarm() -> Any:
    """SIGALRM means Ctrl-C: SIGINT itself would end the tests, should it come too late."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize(
    ("workers", "number"),
    [
        (4, 4),
        *(
            pytest.param(workers, number, marks=pytest.mark.long)
            for workers, numbers in ((1, (2, 7)), (4, (2, 3, 5, 6, 8, 10, 12)), (8, (3, 7, 11)))
            for number in numbers
        ),
    ],
)
def test_whenever_it_is_interrupted_each_build_is_there_or_left_to_ask(workers: int, number: int) -> None:
    with listing(BUILDS, interrupting(number)) as service:
        ws = service.connected()
        builds, jobs = ws.history(partial=True, workers=workers)
        assert builds.attrs["why"] == jobs.attrs["why"] == "it was interrupted"
        until = time.monotonic() + 10
        while any(thread.name.startswith("reader-") for thread in threading.enumerate()):
            assert time.monotonic() < until
            time.sleep(0.001)  # they end; one that was being started at the interrupt cannot be joined yet
        service.override = lambda number, query: None
        rest = [ws.history(**window) for window in builds.attrs["left"]]
    numbers = pd.concat([builds["number"], *(each.builds["number"] for each in rest)])
    ids = pd.concat([jobs["id"], *(each.jobs["id"] for each in rest)])
    assert set(numbers) == set(range(1, 1501))
    assert set(ids) == {job["id"] for each in BUILDS for job in each["jobs"]}
    assert builds["number"].is_unique
    assert builds["created_at"].is_monotonic_decreasing


@pytest.mark.usefixtures("alarm")
def test_after_an_interrupt_the_workspace_can_be_used_on() -> None:
    with listing(BUILDS, interrupting(3)) as service:
        ws = service.connected()
        with pytest.raises(KeyboardInterrupt):
            ws.builds()
        frame = ws.builds()
    assert len(frame) == 1500


# --- actions ----------------------------------------------------------------------------------------------------------

ACTING = textwrap.dedent("""
    import json, signal, sys
    signal.signal(signal.SIGINT, signal.default_int_handler)
    import buildframe as bf

    url, action = sys.argv[1], sys.argv[2]
    web = bf.connect("acme", base_url=url, token="bkua_0123456789secret").pipeline("web")
    calls = {
        "create_build": lambda: web.create_build(commit="HEAD", branch="main"),
        "cancel": lambda: web.cancel(7),
        "rebuild": lambda: web.rebuild(7),
        "delete": lambda: web.delete(),
        "get": lambda: web.get(),
    }
    try:
        calls[action]()
    except KeyboardInterrupt as stop:
        print(json.dumps(getattr(stop, "__notes__", [])), flush=True)
""")


LOOK = {
    "create_build": "Look for it among the newest builds: .builds(branch='main', created_from='1h').",
    "cancel": "Look at the state of .build(7). Canceling again is safe.",
    "rebuild": "Look for builds of the last hour whose rebuilt_from is 7: .builds(created_from='1h').",
    "delete": "Check whether pipelines() of the workspace still contains it.",
    "get": None,
}
BEGUN = b"HTTP/1.1 201 Created\r\nContent-Length: 900\r\n\r\n{"


@pytest.mark.long
@pytest.mark.parametrize(
    ("action", "head"),
    [
        ("create_build", b""),
        ("create_build", BEGUN),
        ("cancel", b""),
        ("rebuild", BEGUN),
        ("delete", b""),
        ("get", b""),
    ],
    ids=lambda value: value if isinstance(value, str) else "begun" if value else "silent",
)
def test_an_interrupted_action_says_that_its_outcome_is_unknown(scripted: Any, action: str, head: bytes) -> None:
    reached, over = threading.Event(), threading.Event()

    def hang(handler: Any) -> None:
        handler.wfile.write(head)
        reached.set()
        over.wait(LONGEST)
        handler.close_connection = True

    notes = output_of_interrupted(ACTING, [scripted(hang).url, action], reached)
    over.set()
    look = LOOK[action]
    if look is None:
        assert notes == []
    else:
        [note] = notes
        assert note.startswith("The request was sent, but it is unknown whether the service performed it.\nRequest: ")
        assert note.endswith(f"\n{look}")


@pytest.mark.long
def test_an_action_that_is_interrupted_while_it_waits_for_a_limit_was_not_done(scripted: Any) -> None:
    reached = threading.Event()

    def refuse(handler: Any) -> None:
        says(b'{"message":"slow down"}', 429, RateLimit_Remaining="0", RateLimit_Reset="100")(handler)
        reached.set()

    server = scripted(refuse)
    assert output_of_interrupted(ACTING, [server.url, "create_build"], reached) == []
    assert len(server.requests) == 1


@pytest.mark.long
def test_an_interrupt_while_a_build_is_read_to_see_whether_it_was_canceled(scripted: Any) -> None:
    reached, over = threading.Event(), threading.Event()

    def hang(handler: Any) -> None:
        reached.set()
        over.wait(LONGEST)
        hang_up(handler)

    server = scripted(says(b"bad gateway", 502), hang)
    [note] = output_of_interrupted(ACTING, [server.url, "cancel"], reached)
    over.set()
    assert server.methods == ["PUT", "GET"]
    assert note.startswith("The request was sent, but it is unknown whether the service performed it.\nRequest: PUT ")
    assert note.endswith(f"\n{LOOK['cancel']}")


# --- at one point of the code -----------------------------------------------------------------------------------------


@contextmanager
def interrupted_at(event: str, file: str, name: str, number: int = 1) -> Iterator[None]:
    """Interrupts this thread where, for the n-th time, a file has this event with a function of this name."""
    count = itertools.count(1)

    def look(frame: FrameType, this: str, function: Any) -> None:
        called = frame.f_code.co_name if this in {"call", "return"} else function.__name__
        if (this, called) == (event, name) and frame.f_code.co_filename.endswith(file) and next(count) == number:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(None)


def web_of(server: Any) -> PipelineWorkspace:
    return bf.connect("acme", base_url=server.url, token=TOKEN).pipeline("web")


RECORD = b'{"id":"0198a1b2-0000-7000-8000-000000000001","number":7}'
CREATED, READ = says(RECORD, 201), says(RECORD)


def test_until_an_action_has_returned_an_interrupt_says_that_its_outcome_is_unknown(scripted: Any) -> None:
    for point in [
        ("return", "/retry.py", "_fetch_once"),
        ("return", "/retry.py", "fetch"),
        ("c_return", "/budget.py", "reset"),
        ("return", "/budget.py", "value_within"),
        ("return", "/records.py", "record"),
        ("return", "/pipeline.py", "create_build"),
    ]:
        server = scripted(CREATED)
        web = web_of(server)
        number = 2 if point[2] == "value_within" else 1  # a generator: the first time it yields
        with pytest.raises(KeyboardInterrupt) as stop, interrupted_at(*point, number):
            web.create_build(commit="HEAD", branch="main")
        assert len(server.requests) == 1, point
        [note] = stop.value.__notes__
        assert note.endswith(str(LOOK["create_build"])), point


def test_an_interrupt_before_anything_was_sent_and_one_of_the_next_question_have_no_note(scripted: Any) -> None:
    web = web_of(scripted(CREATED, READ))
    with pytest.raises(KeyboardInterrupt) as early, interrupted_at("call", "/sockets.py", "write"):
        web.create_build(commit="HEAD", branch="main")
    web.create_build(commit="HEAD", branch="main")
    with pytest.raises(KeyboardInterrupt) as late, interrupted_at("return", "/retry.py", "fetch"):
        web.build(7)
    assert not hasattr(early.value, "__notes__")
    assert not hasattr(late.value, "__notes__")


@pytest.mark.parametrize("is_warm", [False, True], ids=["first", "later"])
def test_a_lock_that_an_interrupt_left_held_holds_up_no_later_request(scripted: Any, is_warm: bool) -> None:
    for number in (1, 2, 3):
        web = web_of(scripted(READ))
        if is_warm:
            web.build(7)
        with pytest.raises(KeyboardInterrupt), interrupted_at("c_return", "/_synchronization.py", "acquire", number):
            web.build(7)
        numbers: list[int | None] = []
        later = threading.Thread(target=lambda web=web, into=numbers: into.append(web.build(7).number), daemon=True)
        later.start()
        later.join(10)
        assert numbers == [7]
