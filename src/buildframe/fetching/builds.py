"""Lists of builds to frames: one walk, by several readers at once, and the tables that it brings."""

from __future__ import annotations

import datetime as dt
import math
import threading
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from buildframe import spec
from buildframe.errors import BadInput, BuildframeError, Incomplete, Malformed
from buildframe.fetching.decoder import Decoding, Wanted
from buildframe.fetching.options import Terms
from buildframe.fetching.ordering import Part, newest_first
from buildframe.fetching.progress import Bar
from buildframe.fetching.records import Asking, Source, Told, bounds, reason, without_token
from buildframe.fetching.time_pagination import Ask, BuildWalk, Kept
from buildframe.fetching.time_ranges import Window, merged
from buildframe.fetching.workers import Crew
from buildframe.http import protocol
from buildframe.http.budget import RequestBudget
from buildframe.http.cancellation import Canceled
from buildframe.http.protocol import Page, Request
from buildframe.http.response import Response
from buildframe.spec import Build, Moment

_CHANGING = {"state", "finished_from", "meta_data"}
_CHANGED = "filtered by {}, which changes: builds that changed during the walk may or may not be here"


def builds(
    source: Source, filters: Mapping[str, Any], wanted: Wanted, jobs: Wanted | None, terms: Terms
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One walk over a list of builds: their frame, and the frame of their jobs (empty without `jobs`)."""
    _refuse_early(source, filters)
    decoding = Decoding(Build, wanted, jobs)
    if decoding.leaves_out_pipeline:
        filters = {"exclude_pipeline": True, **filters}
    with without_token(source.client), Bar("builds", terms.progress) as bar, source.client.borrowed_copy() as client:
        source = Source(client, source.endpoint, source.arguments)
        walk = _Walk(source, filters, decoding, terms, bar)
        parts = walk.parts()
    walk.warn_of_doubts()
    try:
        heads, tables = _in_order(parts)
        return walk.told.on(decoding.frame(heads), "builds"), walk.told.on(decoding.job_frame(tables), "jobs")
    except KeyboardInterrupt as stop:
        stop.add_note(walk.how_far)
        raise


def one_build(source: Source, request: Request) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The frame of a single build, and that of its jobs."""
    decoding, budget = Decoding(Build, Wanted("builds"), Wanted("jobs")), RequestBudget()

    def read(response: Response) -> Page:
        protocol.check(request, response)
        page = decoding.read(request, response._replace(body=b"[" + response.body + b"]"))
        found = sum(row.id is not None for row in page.rows)
        if len(page.rows) != 1 or not found:  # an empty body, or `{}`
            raise Malformed(f"Requested one build, and the response has {found}.\nAsked: {request.where}")
        return page

    with without_token(source.client):
        page = source.client.fetch(request, read, budget)
    tables = decoding.tables(page)
    assert tables.jobs is not None
    told = Told(source.client.base_url + request.target, budget)
    return told.on(decoding.frame([tables.rows]), "builds"), told.on(decoding.job_frame([tables.jobs]), "jobs")


class _Walk:
    """One walk, from its filters to what is to be said of it."""

    def __init__(self, source: Source, filters: Mapping[str, Any], decoding: Decoding, terms: Terms, bar: Bar) -> None:
        self._decoding, self._terms, self._bar, self._source = decoding, terms, bar, source
        self._one_at_a_time = threading.Lock()
        self._budget = RequestBudget(max_requests=terms.max_requests, seconds=terms.seconds, on_wait=bar.wait)
        self._asking = Asking(source, self._read, self._budget)
        self._timed = source.timed(filters)
        self._filters = dict(filters) | _settled(self._timed, self._asking)
        self._counted_from = self._budget.time.at
        self._others = {name: value for name, value in self._filters.items() if name not in _BOUNDS}
        self._changing = sorted(_CHANGING & {name for name, value in filters.items() if value is not None})
        self._walk = BuildWalk(
            _window(self._filters), overlap=terms.overlap, readers=self._readers, steady=not self._changing
        )
        self._why: str | None = None
        self._handed_over = 0

    def parts(self) -> list[Part]:
        """All that the walk brings; of one that was halted, or is to be partial, what was there by then."""
        with self._crew() as crew:  # an interrupt while it is left is raised: readers may not have ended
            try:
                for _ in crew:
                    self._bar.show(self._walk.rows, self._walk.answers, self._walk.share)
                    self._hand_over(crew.results)
                self._bar.end()
            except Canceled as halted:
                self._why = str(halted)
            except (BuildframeError, KeyboardInterrupt) as error:
                self._why = self._reason(error)
        return crew.results

    def _hand_over(self, parts: list[Part]) -> None:
        """Tell who oversees it of the rows that came since."""
        over = self._budget.scope
        if over is not None and over.on_rows is not None:
            new = parts[self._handed_over :]
            self._handed_over += len(new)
            over.on_rows(self.told.on(self._decoding.frame([part.builds for part in new]), "builds"), self._walk.share)

    @property
    def told(self) -> Told:
        """What is to be said of it."""
        reasons = [self._why] if self._why and self._walk.left else []
        reasons += [f"{window}: {doubt}" for window, doubt in self._doubts]
        return Told(
            self._asking.source.url(self._filters),
            self._budget,
            note=self._note,
            why=self._source.client.redact("; ".join(reasons)) or None,
            left=merged([*self._walk.left, *(window for window, _ in self._doubts)]),
        )

    def warn_of_doubts(self) -> None:
        """Tell of an incomplete result where nothing that was asked for explains it."""
        for window, doubt in self._doubts:
            message = f"Incomplete: {window}: {doubt}. See attrs['why'] and attrs['left'] of the frame."
            warnings.warn(self._source.client.redact(message), stacklevel=4)

    @property
    def _doubts(self) -> list[tuple[Window, str]]:
        """Time ranges that may lack builds, each with the reason."""
        counted, now = self._counted_from, self._budget.time.at
        ages = {name: value for name, value in self._timed.items() if spec.is_relative(value)}
        if not ages or counted is None or now is None or counted - now <= _STEP:
            return self._walk.doubts
        then = self._filters | {name: spec.when(value, name, now) for name, value in ages.items()}
        meant = Window(then.get("created_from"), then.get("created_to"))
        return [*self._walk.doubts, (meant, _WRONG_TIME.format(" and ".join(ages), counted.text(), now.text()))]

    @property
    def how_far(self) -> str:
        """A sentence on how far it came."""
        return self._walk.how_far()

    @property
    def _note(self) -> str | None:
        """What holds of it although it is complete."""
        notes = [_CHANGED.format(" and ".join(self._changing))] if self._changing else []
        notes += [_UNCOUNTED] if self._walk.is_uncounted and not self._walk.left else []
        return "; ".join(notes) or None

    def _reason(self, error: BuildframeError | KeyboardInterrupt) -> str:
        """Why the walk ended, for one that may be partial; any other raises the error again."""
        why = reason(error, self._terms.partial, self._walk.answers)
        if why is not None:
            return why
        if self._walk.answers or isinstance(error, KeyboardInterrupt):
            error.add_note(self._walk.how_far())
        raise error

    def _crew(self) -> Crew[Part]:
        return Crew(
            self._walk,
            self._ask,
            self._part,
            self._budget,
            workers=self._terms.workers,
            cut=self._asking.source.client.abort,
            tick=self._bar.tick,
        )

    # --- called by the crew's threads

    def _readers(self, pages: float | None) -> int:
        """How many requests at once make sense: one, where not the service's speed is the limit but what is allowed."""
        most, left = self._terms.workers, self._budget.requests_left
        wanted = None if pages is None else math.ceil(pages) + most  # each window may end with a page of few builds
        if left is not None and (wanted is None or wanted > left):
            return 1
        return self._asking.source.client.rate_limiter.useful_workers(wanted, most)

    def _ask(self, ask: Ask) -> Page:
        if ask.only_count:
            return self._asking.page(
                {**self._others, **bounds(ask.window), "exclude_jobs": True}, number=ask.number, per_page=1
            )
        return self._asking.page(self._others | bounds(ask.window), number=ask.number)

    def _read(self, request: Request, response: Response) -> Page:
        with self._one_at_a_time:
            if self._budget.is_canceled:
                raise Canceled("it was canceled")
            return self._decoding.read(request, response)

    def _part(self, page: Page, kept: Kept, number: int) -> Part:
        with self._one_at_a_time:
            builds, jobs = self._decoding.tables(replace(page, rows=kept.rows))
        counts = [] if jobs is None else [len(row.jobs or ()) for row in kept.rows]
        return Part(builds, kept.stamps, jobs, counts, number)


_UNCOUNTED = "the service did not tell how many builds there are, so disorder that no page showed may have hidden some"
_BOUNDS = {"created_from", "created_to"}
_STEP = dt.timedelta(minutes=1)
"""By how much the service's time may go back: its servers' clocks may differ."""
_WRONG_TIME = "{} was counted back from {}, which the service gave as its time, but later responses say {}; ask again"


def _in_order(parts: list[Part]) -> tuple[list[Any], list[Any]]:
    """The tables of builds and of jobs, newest first; `parts` is emptied."""
    ordered = list(newest_first(parts))
    parts.clear()
    return [part.builds for part in ordered], [part.jobs for part in ordered if part.jobs is not None]


def _refuse_early(source: Source, filters: Mapping[str, Any]) -> None:
    ages = {name for name, value in source.timed(filters).items() if spec.is_relative(value)}
    source.page({name: value for name, value in filters.items() if name not in ages})


def _settled(timed: Mapping[str, Any], asking: Asking) -> dict[str, Moment]:
    """Moments for all times; ages count back from the service's time, which one small answer tells."""
    try:
        now = asking.now() if any(spec.is_relative(value) for value in timed.values()) else None
    except Canceled as halted:
        raise Incomplete(f"Nothing was read yet, not even the service's time: {halted}.") from None
    return {name: spec.when(value, name, now) for name, value in timed.items()}


def _window(filters: Mapping[str, Any]) -> Window:
    window = Window(filters.get("created_from"), filters.get("created_to"))
    if window.is_empty:
        raise BadInput(f"No time lies between: {window}. Exchange created_from and created_to?")
    return window
