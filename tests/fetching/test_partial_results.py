"""Incomplete listings: their errors, their partial frames, and requests for the remaining time ranges."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pandas as pd
import pytest
import tenacity

import buildframe as bf
from buildframe.fetching.decoder import PageDecoder
from buildframe.http import retry
from buildframe.http.protocol import Page
from buildframe.sandbox_server import Quota
from buildframe.spec import Moment
from tests import worlds
from tests.conftest import hang_up, says
from tests.listing import Listing, Responder, after, build, evenly, listing

BUILDS = evenly(1500, every=40, jobs=1)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits before retries."""
    monkeypatch.setattr(retry, "_backoff", tenacity.wait_fixed(0.01))


def after_request(most: int, response: Responder) -> Any:
    """Send this response to all requests after the first `most`."""
    return lambda number, query: response if number > most else None


def completed(frame: pd.DataFrame, service: Listing, listed: str = "builds") -> pd.DataFrame:
    """Return the frame completed by separate listings of its remaining time ranges."""
    service.override = lambda number, query: None
    ws = service.connected()
    rest = [getattr(ws, listed)(**window) for window in frame.attrs["left"]]
    assert all(each.attrs["complete"] for each in rest)
    whole: pd.DataFrame = pd.concat([frame, *rest]).drop_duplicates("id")
    return whole


def is_all(frame: pd.DataFrame) -> bool:
    return sorted(frame["number"]) == list(range(1, len(BUILDS) + 1))


# --- permanent failures of the service --------------------------------------------------------------------------------

FAILURES = {
    "gone": (hang_up, bf.Unreachable, "No response from"),
    "failing": (says(b"oops", 503, Retry_After="0"), bf.Unavailable, "503"),
    "refusing": (says(b'{"message":"no such token"}', 401), bf.Unauthorized, "401: no such token"),
    "garbled": (says(b'[{"id":'), bf.Malformed, "truncated"),
    "limiting": (says(b'{"message":"slow down","reset":0}', 429), bf.RateLimited, "429: slow down"),
}


@pytest.mark.parametrize("workers", [1, 4])
def test_the_error_describes_the_failure_and_the_progress(workers: int) -> None:
    for name, (failure, kind, said) in FAILURES.items():
        with listing(BUILDS, after_request(5, failure)) as service, pytest.raises(kind, match=said) as caught:
            service.connected().builds(workers=workers)
        [note] = [note for note in caught.value.__notes__ if "listing" in note]
        pattern = r"The listing had read (\d+) rows in (\d) responses, back to builds created at 2026-10-01T.*Z; none"
        rows, responses = map(int, re.match(pattern, note).groups())  # type: ignore[union-attr]
        # each of several workers may have read the short last page of a range
        least = 99 * (responses - 1) if workers == 1 else 100
        assert least <= rows <= 100 * responses, f"{name}: one response may have been a count"
        assert 5 - (workers - 1) <= responses <= 5, f"{name}: apart from requests in flight"
        assert not any(thread.name.startswith("reader-") for thread in threading.enumerate())


def test_an_error_of_the_first_response_has_no_note() -> None:
    with (
        listing(BUILDS, after_request(0, says(b"{}", 401))) as service,
        pytest.raises(bf.Unauthorized) as caught,
    ):
        service.connected().builds()
    assert not hasattr(caught.value, "__notes__")


@pytest.mark.parametrize(
    ("name", "workers", "created_from"),
    [
        ("gone", 1, None),
        ("refusing", 4, 600.0),
        ("failing", 4, None),
        ("garbled", 1, 600.0),
        ("limiting", 4, 600.0),
    ],
)
def test_a_partial_listing_returns_its_rows_and_the_remaining_time_ranges(
    name: str, workers: int, created_from: float | None
) -> None:
    failure, _, said = FAILURES[name]
    start: Any = None if created_from is None else after(created_from)
    with listing(BUILDS, after_request(6, failure)) as service:
        frame = service.connected().builds(workers=workers, partial=True, created_from=start)
        assert 590 - 100 * workers < len(frame) < 700, "apart from a count and requests in flight"
        assert frame["created_at"].is_monotonic_decreasing
        assert frame.attrs["complete"] is False
        assert said in frame.attrs["why"]
        assert "\n" not in frame.attrs["why"]
        whole = completed(frame, service)
    assert len(frame) + len(whole) > len(BUILDS)
    if start is None:
        assert is_all(whole)
    else:
        assert frame.attrs["left"][-1]["created_from"] == start.text()
        assert sorted(whole["number"]) == list(range(15, 1501))


def test_a_service_that_stops_ends_a_partial_listing() -> None:
    def go(number: int, query: dict[str, str]) -> Responder | None:
        if number == 4:
            threading.Thread(target=service.stop).start()
        return hang_up if number >= 4 else None

    with listing(BUILDS, go) as service:
        frame = service.connected().builds(partial=True)
        with pytest.raises(bf.Unreachable, match="refused"):
            service.connected().builds()
    assert 100 <= len(frame) <= 300
    assert "No response from" in frame.attrs["why"]


def test_partial_jobs_are_returned_with_their_builds() -> None:
    with listing(BUILDS, after_request(5, hang_up)) as service:
        builds, jobs = service.connected().history(partial=True)
        assert list(jobs["build_id"].drop_duplicates()) == [id for id in builds["id"] if int(id[1:]) % 3]
        assert builds.attrs["left"] == jobs.attrs["left"] != []
        assert jobs.attrs["complete"] is False
        whole = completed(jobs, service, "jobs")
    assert sorted(whole["id"]) == sorted(job["id"] for each in BUILDS for job in each["jobs"])


def test_a_partial_listing_with_one_failing_time_range_can_be_completed() -> None:
    """Requests from the time of the oldest build get a wrong response."""
    for refusal in (says(b'{"message":"no"}', 422), says(b"[5]"), says(b'[{"number":1}]')):

        def override(number: int, query: dict[str, str], refusal: Responder = refusal) -> Responder | None:
            return refusal if number > 1 and query.get("created_from") == after(0).text() else None

        with listing(BUILDS, override) as service:
            frame = service.connected().builds(partial=True, created_from=after(0))
            assert 100 <= len(frame) < 1500
            assert not frame.attrs["complete"]
            assert is_all(completed(frame, service))


@pytest.mark.filterwarnings("ignore:Incomplete")
def test_a_page_that_cannot_be_converted_is_a_remaining_time_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is raised when rows become a table, after the pagination has counted the page as read."""
    convert = PageDecoder.tables

    def tables(decoder: PageDecoder, page: Page) -> Any:
        if any(row.number == 750 for row in page.rows) and service.builds is not BUILDS:
            raise bf.Malformed("no table of yesterday")
        return convert(decoder, page)

    monkeypatch.setattr(PageDecoder, "tables", tables)
    with listing(BUILDS) as service:
        with pytest.raises(bf.Malformed, match="yesterday"):
            service.connected().builds()
        frame = service.connected().builds(partial=True, workers=1)
        assert 750 not in set(frame["number"])
        assert not frame.attrs["complete"]
        assert "yesterday" in frame.attrs["why"]
        service.builds = BUILDS
        assert is_all(completed(frame, service))


# --- limits set by the user -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "most"), [(1, 3), (4, 1), (4, 8)])
def test_a_listing_that_used_up_its_requests_can_be_completed(workers: int, most: int) -> None:
    with listing(BUILDS) as service:
        frame = service.connected().builds(workers=workers, max_requests=most)
        assert frame.attrs["why"] == f"max_requests={most} is used up"
        assert frame.attrs["requests"] == most == len(service.requests)
        assert 99 * service.pages <= len(frame) <= 100 * service.pages
        assert is_all(completed(frame, service))


@pytest.fixture
def hanging() -> Iterator[Any]:
    """Delay the responses after the second until the test is over."""
    over, gave_up = threading.Event(), list[int]()

    def hang(handler: BaseHTTPRequestHandler) -> None:
        if not over.wait(20):
            gave_up.append(1)
        hang_up(handler)

    yield lambda number, query: hang if number > 2 else None
    over.set()
    assert gave_up == [], "the client waited for the response"


@pytest.mark.parametrize("workers", [1, 4])
def test_a_deadline_ends_requests_that_hang(hanging: Any, workers: int) -> None:
    with listing(BUILDS, hanging) as service:
        frame = service.connected().builds(workers=workers, deadline="1s", partial=True)
        assert frame.attrs["why"] == "deadline=1s has passed"
        assert 100 <= len(frame) <= 200
        assert is_all(completed(frame, service))


def test_a_deadline_ends_the_request_for_the_time_of_the_service(hanging: Any) -> None:
    with (
        listing(BUILDS, lambda number, query: hanging(3, query)) as service,
        pytest.raises(bf.DeadlineExceeded, match="deadline=1s"),
    ):
        service.connected().builds(created_from="60d", deadline="1s", partial=True)


def test_a_listing_ends_if_the_quota_resets_after_the_deadline() -> None:
    used_up = says(b'{"message":"slow down"}', 429, RateLimit_Remaining="0", RateLimit_Reset="100")
    with listing(BUILDS, after_request(4, used_up)) as service:
        frame = service.connected().builds(workers=4, deadline="90s", partial=True)
        assert frame.attrs["why"].startswith("deadline=90s would pass while waiting 100 s: the rate limit is used up")
    with listing(BUILDS) as later:  # at another URL, which has its own rate limit
        assert is_all(completed(frame, later))


def test_a_deadline_ends_listings_that_wait_for_a_quota() -> None:
    with worlds.sandbox(builds=120, days=2, quota=Quota(user=1, window=100.0)) as ws:
        frames = [ws.builds(state=state, deadline="2s", partial=True) for state in ("passed", "failed", "canceled")]
    assert not all(frame.attrs["complete"] for frame in frames)
    whys = [frame.attrs["why"] for frame in frames if not frame.attrs["complete"]]
    assert all("deadline=2s would pass while waiting" in why for why in whys)
    assert [frame.attrs["left"] for frame in frames if frame.attrs["requests"] == 0] == [[{}]] * len(whys)


def test_a_timestamp_whose_deep_pages_are_refused_is_incomplete_without_an_error() -> None:
    tied = [build(number, 60) for number in range(450, 0, -1)]
    for status in (403, 422):

        def refuse_deep(number: int, query: dict[str, str], status: int = status) -> Responder | None:
            return says(b'{"message": "too deep"}', status) if int(query.get("page", "1")) > 2 else None

        with listing([build(900, 900), *tied], refuse_deep) as service, pytest.warns(UserWarning, match="too deep"):
            frame = service.connected().builds(progress=False)
        assert len(frame) == 1 + 200
        assert not frame.attrs["complete"]
        assert "page numbers (too deep)" in frame.attrs["why"]
        [window] = frame.attrs["left"]
        assert Moment.parse(window["created_from"]) <= after(60) < Moment.parse(window["created_to"])
