"""Estimate the service time during a sync, and compare it with the local clock. Does not know requests or tables."""

from __future__ import annotations

import datetime as dt
import time
import warnings

import pandas as pd

from buildframe.formatting import format_duration
from buildframe.http.response import ServiceTime
from buildframe.spec import Moment
from buildframe.store.sync_state import NEVER, Coverage, SyncState

OVERLAP = dt.timedelta(minutes=5)  # with the previous sync, because clocks of the service differ and its lists lag
CLOCK_TOLERANCE = dt.timedelta(hours=1)  # between the service clock and the local clock, from one sync to the next
_RESOLUTION = dt.timedelta(seconds=1)  # of the `Date` header


class SyncClock:
    """Service time of one sync.

    The `Date` headers of responses can be wrong in both directions. `now` is the best estimate, and `confirmed` a time
    that the service had certainly reached. The time of a sandbox is exact.
    """

    def __init__(self, start_state: SyncState, earliest: Moment | None) -> None:
        self.local_time = local_clock()
        self._start_state, self._earliest = start_state, earliest or NEVER
        self._began = time.monotonic()
        self._time = ServiceTime()
        self._newest_record = NEVER
        self.latest = NEVER  # like `now`, but by the latest `Date`: earlier ones may be those of a cache
        self.is_simulated = False

    def read(self, date: Moment, began: dt.timedelta) -> None:
        """Read the time of the first response of a list, whose requests began at this time of the sync."""
        self._time.see(date)
        self.latest = max(self.latest, Moment.of((date - began).replace(microsecond=0)))

    def read_listing(self, builds: pd.DataFrame, began: dt.timedelta) -> None:
        """Read the times of builds that were fetched just now."""
        self.read(Moment.parse(builds.attrs["as_of"]), began)
        self.is_simulated = self.is_simulated or builds.attrs.get("simulated", False)
        for newest in (builds["created_at"].max(), builds["finished_at"].max()):
            if not pd.isna(newest):
                self._newest_record = max(self._newest_record, Moment.of(newest.to_pydatetime() - self.elapsed))

    @property
    def now(self) -> Moment:
        """The service time of the first response, by all responses so far.

        Never before `earliest`, because dates far in the past would start a long history.
        """
        assert self._time.at is not None
        return self._time.at if self.is_simulated else max(self._time.at, self._earliest)

    @property
    def confirmed(self) -> Moment:
        """A time that the service had certainly reached at its first response, even if dates of responses are wrong.

        It had reached the times in its records. If both clocks agree on the time since the last sync, that time has
        passed.
        """
        if self.is_simulated:
            return self.now
        service, local = self._advances
        passed = min(service, local) if abs(service - local) <= OVERLAP else dt.timedelta(0)
        reached = max(self._newest_record, Moment.of(self._start_state.confirmed + passed))
        return min(self.now, reached.replace(microsecond=0))

    def coverage(self, since: Moment, until: Moment, previous: Coverage | None) -> Coverage:
        """Return the coverage of a commit of this sync."""
        until = max(since, min(until, self.now))
        if self.is_simulated:
            return Coverage(since, until, until)
        confirmed = NEVER if previous is None else previous.confirmed
        return Coverage(since, until, max(min(until, self.confirmed), confirmed))

    def limit_fetched_at(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Limit `fetched_at` to the current service time, because the `Date` of a response can be ahead."""
        if self.is_simulated:
            return frame
        latest, at = pd.Timestamp(self.now + self.elapsed + _RESOLUTION).floor("s"), frame["fetched_at"]
        return frame.assign(fetched_at=at.where(at <= latest, latest))

    def warn_if_clocks_differ(self) -> None:
        """Warn if the two clocks have advanced by different times since the last sync."""
        service, local = self._advances
        if not self.is_simulated and abs(service - local) > CLOCK_TOLERANCE:
            warnings.warn(
                f"Since the last sync the service clock has advanced by {format_duration(service.total_seconds())}, "
                f"and the local clock by {format_duration(local.total_seconds())}. No build is lost, because syncs "
                "read again from the last confirmed time. Check the local clock, and whether "
                "a proxy changes the Date header.",
                stacklevel=4,
            )

    @property
    def _advances(self) -> tuple[dt.timedelta, dt.timedelta]:
        """How far the service clock and the local clock have advanced since the last sync."""
        start = self._start_state
        if start.local_time is None or self._time.at is None:
            return dt.timedelta(0), dt.timedelta(0)
        return self._time.at - start.as_of, self.local_time - start.local_time

    @property
    def elapsed(self) -> dt.timedelta:
        """Time since the sync began."""
        return dt.timedelta(seconds=time.monotonic() - self._began)


def local_clock() -> Moment:
    """Return the time of the local clock."""
    return Moment.of(dt.datetime.now(dt.UTC))
