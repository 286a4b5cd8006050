"""Builds, shown while others are still being read, and what is said of those that came."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import pandas as pd

from buildframe.formatting import clipped, counted, visible
from buildframe.widgets import html
from buildframe.widgets.background_tasks import Piece
from buildframe.widgets.tables import Cell
from buildframe.workspace import Pipeline, Workspace

COLUMNS = [
    "id", "number", "pipeline", "state", "blocked", "branch", "commit", "message", "creator", "creator_id",
    "created_at", "started_at", "finished_at", "web_url", "fetched_at",
]  # fmt: skip

_PAUSE = 0.5  # seconds between two times that rows are shown; what comes faster is not seen, and costs

Standing = Literal["loading", "complete", "stopped", "failed"]


class Got(NamedTuple):
    """Builds with their rows, if some came; the share of the walk that is done; and what their frame's attrs tell."""

    builds: pd.DataFrame | None
    share: float | None
    told: Mapping[Any, Any]


class Listing:
    """Builds that answer one question, which `words` tell: in the order in which they came, each as it was read last.

    `builds` has the columns COLUMNS and `row`, what the table shows of each. `standing` is how far the answer is, and
    `problem` why it failed.
    """

    def __init__(self, words: str) -> None:
        self.words = words
        self.builds = pd.DataFrame(columns=[*COLUMNS, "row"])
        self.standing: Standing = "loading"
        self.problem = ""
        self.share: float | None = 0.0
        self._told: Mapping[Any, Any] = {}
        self._again: dict[str, None] = {}

    def add(self, got: Got) -> None:
        """More of them came."""
        self._told, self.share = got.told, got.share
        if got.builds is not None:
            self._join(got.builds)

    def read_again(self, builds: pd.DataFrame) -> None:
        """These were read by themselves, so that they are here whatever was asked for."""
        self._again |= {f"{build.pipeline} #{build.number}": None for build in builds.itertuples()}
        self._join(builds)

    def _join(self, builds: pd.DataFrame) -> None:
        together = pd.concat([self.builds, builds]) if len(self.builds) else builds
        in_time = together.sort_values("fetched_at", kind="stable")
        last = in_time.drop_duplicates("id", keep="last").set_index("id", drop=False)
        self.builds = last.loc[together["id"].unique()].reset_index(drop=True)

    @property
    def told(self) -> str:
        """What is to be said of how many there are, and whether these are all."""
        again = (
            f" {', '.join(self._again)} updated; {'they' if len(self._again) > 1 else 'it'} may not match the filters."
            if self._again
            else ""
        )
        return self._standing_words() + again

    def _standing_words(self) -> str:
        if self.standing == "complete" and not self._told["complete"]:
            return f"{self._count()}, not complete: {self._told['why']}."
        return {
            "loading": f"Loading … {self._so_far()}",
            "complete": f"{self._count()}, complete, as of {self.time}{self._note()}.{self._none()}",
            "stopped": f"Stopped: {self._count()}, others are missing. Load asks again.",
            "failed": f"{self.problem}{self._before()}",
        }[self.standing]

    @property
    def time(self) -> str:
        """The service's time of the first answer."""
        at = self._told.get("as_of")
        return f"{pd.Timestamp(at):%H:%M:%S} UTC" if at else "an unknown time"

    def _count(self) -> str:
        return counted(len(self.builds), "build")

    def _note(self) -> str:
        return f"; {self._told['note']}" if self._told.get("note") else ""

    def _none(self) -> str:
        if len(self.builds):
            return ""
        return f" Nothing matches: {self.words}. Widen the time, or leave a filter out."

    def _before(self) -> str:
        return f"\n{self._count()} came before that; others are missing." if len(self.builds) else ""

    def _so_far(self) -> str:
        if self.builds.empty:
            return ""
        done = f", {100 * self.share:.0f} % of the time asked for" if self.share is not None else ""
        return f"{self._count()} so far{done}"


def load(of: Workspace | Pipeline, filters: Mapping[str, Any], piece: Piece, got: Callable[[Got], None]) -> None:
    """All builds that match, handed to `got` as they come, with the row of each; at last with what is noted of all.

    Ends where the piece is stopped.
    """
    parts: list[pd.DataFrame] = []
    shown_at = -math.inf

    def hear(builds: pd.DataFrame, share: float | None) -> None:
        nonlocal shown_at
        parts.append(builds)
        if time.monotonic() - shown_at >= _PAUSE:
            hand_over(share, builds.attrs)
            shown_at = time.monotonic()

    def hand_over(share: float | None, told: Mapping[Any, Any]) -> None:
        builds = [with_rows(part) for part in parts if len(part)]
        parts.clear()
        got(Got(pd.concat(builds) if builds else None, share, told))

    piece.hear(hear)
    whole = of.builds(**filters, columns=COLUMNS, progress=False)
    hand_over(1.0, whole.attrs)


def with_rows(builds: pd.DataFrame) -> pd.DataFrame:
    """The builds, and in `row` what the table shows of each."""
    rows = pd.Series([_row(build) for build in builds.to_dict("records")], index=builds.index, dtype=object)
    return builds[COLUMNS].assign(row=rows)


def _row(build: dict[Any, Any]) -> list[Cell]:
    is_blocked = build["blocked"] is True
    took = pd.NaT if is_blocked else build["finished_at"] - build["created_at"]  # a blocked build is not over
    message = html.plain(_known(build["message"])).splitlines() or [""]
    return [
        None if pd.isna(build["number"]) else int(build["number"]),
        "blocked" if is_blocked else _cell(build["state"]),
        _cell(build["pipeline"]),
        _cell(build["branch"]),
        visible(clipped(message[0])),
        None if pd.isna(took) else round(took.total_seconds()),
        f"{build['created_at']:%Y-%m-%d %H:%M:%S.%f}",
        _cell(build["creator"]),
        _cell(build["commit"])[:8],
    ]


def _cell(value: Any) -> str:
    return visible(clipped(html.plain(_known(value))))


def _known(value: Any) -> Any:
    return None if pd.isna(value) else value
