"""The widget that `plots.explore` returns: sends points to the page, and receives the period that a user selects."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import anywidget
import pandas as pd
import traitlets

from buildframe.errors import BadInput
from buildframe.metrics.columns import TIMESTAMP, microseconds, timestamps
from buildframe.plots.explorer_points import compute_points
from buildframe.spec.times import When, when
from buildframe.terminal import show


class BuildExplorer(anywidget.AnyWidget):
    """
    Builds as points; see `plots.explore`.

    `selected` is the DataFrame of the builds in the period that is selected, and changes with it. The state that is
    sent to the page is compressed, so that a saved notebook stays small and contains no text that could end a script.
    """

    _esm = Path(__file__).parent / "explorer.js"
    _css = Path(__file__).parent / "explorer.css"

    selected = traitlets.Instance(pd.DataFrame)
    summary = traitlets.Unicode().tag(sync=True)
    _points = traitlets.Bytes().tag(sync=True)
    _period: Any = traitlets.List(traitlets.Int()).tag(sync=True)
    """First microsecond since 1970 in the period and first one after it, or nothing."""

    def __init__(self, builds: pd.DataFrame) -> None:
        points = compute_points(builds)
        self._builds = builds.copy(deep=False)
        self._created = microseconds(timestamps(builds, "created_at"))
        content = json.dumps(points.content, separators=(",", ":")).encode()
        super().__init__(selected=self._builds, summary=points.summary, _points=zlib.compress(content))

    def __repr__(self) -> str:
        return f"BuildExplorer({self.summary.removesuffix('.')})"

    @property
    def period(self) -> tuple[pd.Timestamp, pd.Timestamp] | None:
        """The selected period: builds created at or after the first time and before the second; None for all builds."""
        if not self._period:
            return None
        first, end = pd.Series(self._period, dtype="int64").astype("datetime64[us]").dt.tz_localize("UTC")
        return first, end

    def select(self, created_from: When, created_to: When) -> None:
        """Select the builds that were created at or after the first time and before the second, as a user would."""
        moments = [when(created_from, "created_from"), when(created_to, "created_to")]
        period = microseconds(pd.Series(moments, dtype=TIMESTAMP)).tolist()
        if period[0] > period[1]:
            raise BadInput(f"created_from={show(created_from)} is after created_to={show(created_to)}.")
        self._period = period

    def clear(self) -> None:
        """Select no period, so that `selected` has all builds."""
        self._period = []

    @traitlets.observe("_period")
    def _select_builds(self, change: Any) -> None:
        if not self._period:
            self.selected = self._builds
            return
        first, end = self._period
        self.selected = self._builds[(self._created >= first) & (self._created < end)]
