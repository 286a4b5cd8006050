"""Describe a listing in the `attrs` of its frames: source, time, completeness, requests. Does not know pagination."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from buildframe.errors import BuildframeError, DeadlineExceeded
from buildframe.fetching.time_ranges import TimeRange
from buildframe.http.budget import RequestBudget
from buildframe.spec.odd_values import describe


@dataclass(frozen=True)
class ListingMetadata:
    """The metadata of a listing.

    `why` is None if it is complete, else `remaining` are the ranges to list again.

    `odd` names values that do not fit their columns.
    """

    source: str
    budget: RequestBudget
    note: str | None = None
    why: str | None = None
    remaining: Sequence[TimeRange] = ()
    odd: Sequence[Mapping[str, Any]] = ()

    def attach(self, frame: pd.DataFrame, table: str) -> pd.DataFrame:
        """Return the frame with the metadata in its `attrs`, as plain values that Parquet can store."""
        frame.attrs.update(
            table=table,
            source=self.source,
            as_of=self.budget.time.at.text() if self.budget.time.at else None,
            complete=self.why is None,
            why=self.why,
            left=[{name: end.text() for name, end in part.filters().items()} for part in self.remaining],
            note=self.note,
            odd=[dict(entry) for entry in self.odd],
            requests=self.budget.requests,
            retries=self.budget.retries,
            waits=self.budget.waits,
            waited_s=round(self.budget.waited_s, 3),
        )
        if self.budget.time.is_simulated:
            frame.attrs["simulated"] = True
        return frame


def warn_of_odd(entries: Sequence[Mapping[str, Any]], where: str = "See attrs['odd'] of the frame.") -> None:
    """Warn once about values that do not fit their columns, if there are any."""
    if entries:
        warnings.warn(f"{describe(entries)} {where}", stacklevel=6)


def reason_for_partial(error: BuildframeError | KeyboardInterrupt, partial: bool, requests: int, progress: str) -> str:
    """Return why a listing that ended with an error is incomplete.

    If the result may not be partial, this raises the error again, with a note on the progress.
    """
    is_failure = isinstance(error, BuildframeError) and not isinstance(error, DeadlineExceeded)
    if not partial or (is_failure and not requests):
        if requests or isinstance(error, KeyboardInterrupt):
            error.add_note(progress)
        raise error
    return str(error).splitlines()[0] if isinstance(error, BuildframeError) else "it was interrupted"
