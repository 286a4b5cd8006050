"""The build monitor: what waits and runs, how long it may still take, and how it ended."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable
from typing import Any

import ipywidgets
import pandas as pd

from buildframe import spec
from buildframe.formatting import span
from buildframe.guards.arguments import checked_names
from buildframe.widgets import build_tracker, html, monitor_rows
from buildframe.widgets.arguments import check_workspace, length
from buildframe.widgets.background_tasks import Lane, Piece, home
from buildframe.widgets.build_tracker import Seen, Watch
from buildframe.widgets.buttons import CANCELABLE, Actions
from buildframe.widgets.tables import Table
from buildframe.workspace import Pipeline, Workspace

LEAST = dt.timedelta(seconds=10)
_PATIENCE = 2
"""Calls that no page answers until nobody looks; one may lie unanswered while a cell of the user's runs."""
_AT_ONCE = dt.timedelta(0)
_HISTORIES = 2
"""Of pipelines, that one refresh reads at most, so that rows are not old when they come."""


class BuildMonitor(html.Face):
    """Builds of an organization or of one pipeline that wait or run, followed to their end.

    Asks at once, and again `every` so often (at least 10 s) as long as somebody looks and for at most `for_at_most`;
    "Go on" begins anew. Builds are asked for without their jobs. What a build may still take goes by those of its
    pipeline in the last 14 days that ran as long (`metrics.remaining_time`); that history is read once. Where no event
    loop runs, as in a script, it asks at once, and then when `refresh` is called.
    """

    @checked_names
    def __init__(
        self,
        ws: Workspace | Pipeline,
        *,
        every: str | dt.timedelta = LEAST,
        for_at_most: str | dt.timedelta = "1h",
    ) -> None:
        check_workspace(ws)
        self._every = length("every", every, LEAST, "as the limits of requests are for all who share them")
        self._at_most = length("for_at_most", for_at_most, self._every, "as it refreshes so often")
        self.seen: Seen | None = None
        self._watch = Watch(ws)
        self._build: spec.Build | None = None
        self._resting = ""  # why, where it does
        self._is_outdated = False
        self._acts_on: tuple[str, str] | None = None
        self.said, self.table = html.Message(), Table("Builds that wait or run", monitor_rows.COLUMNS)
        self._lane, self._pulse = Lane(self._fail, self._wait), Pulse(html.guarded(self.said, self._beat))
        self.holds = (self._pulse, self._lane)
        self.is_on, self._is_unseen = False, False
        self._unanswered = 0
        self._make_parts(ws)
        parts = [self._buttons, self.said, self.queue, self.table, self.meaning, self.facts, self.actions, self.ended]
        super().__init__([ipywidgets.HTML(html.STYLE), *parts], _view_count=0)
        self.layout.width = "100%"
        self.table.observe(html.guarded(self.said, lambda _: self._choose()), "chosen")
        self.observe(html.guarded(self.said, lambda change: self._looked_at(change.new)), "_view_count")
        self.table.observe(html.guarded(self.said, lambda _: self._looked_at(1)), "answered")
        self.go_on()

    def _make_parts(self, ws: Workspace | Pipeline) -> None:
        self.switch = html.button("Pause", "Stop refreshing, or go on with it", self._turn, self.said)
        self.again = html.button("Refresh now", "Ask the service now", self.refresh, self.said)
        self.told = ipywidgets.HTML()
        center: dict[str, Any] = {"flex_flow": "row wrap", "align_items": "center"}
        self._buttons = ipywidgets.HBox([self.switch, self.again, self.told], layout=center)
        self.queue, self.facts, self.ended = ipywidgets.HTML(), ipywidgets.HTML(), ipywidgets.HTML()
        self.meaning = ipywidgets.HTML(f'<div class="bf-hint">{monitor_rows.MEANING}</div>')
        self.actions = Actions(ws, acted=lambda build: self._acted())
        html.shown(self.actions, False)

    # --- when it asks

    def refresh(self) -> None:
        """Ask the service once, off the kernel's thread, unless that is under way."""
        if self._lane.start(self._look, lambda _: self._rest()):
            self._is_outdated = False
            self._tell("asking …")
        elif self.is_on:
            self._pulse.after(self._every)

    def go_on(self) -> None:
        """Refresh from now on, for a bounded time."""
        self.is_on, self._is_unseen = True, False
        self._unanswered = 0
        self._pulse.begin()
        self.switch.description = "Pause"
        self._resting = ""
        self._say_whether()
        self.refresh()

    def pause(self, why: str = "Paused") -> None:
        """Refresh no more, and stop what is under way."""
        self.is_on = False
        self._pulse.stop()
        self._lane.stop()
        self.switch.description = "Go on"
        self._resting = f"{why}: what is shown is not refreshed. “Go on” does that."
        self._tell("not refreshed")
        self._say_whether()

    def _say_whether(self) -> None:
        if self._resting:
            self.said.tell(self._resting)
        else:
            self.said.clear()

    def _turn(self) -> None:
        if self.is_on:
            self.pause()
        else:
            self.go_on()

    def _beat(self) -> None:
        """It is time for the next refresh, if somebody looks: the view count does not tell of closed pages."""
        self._unanswered = 0 if self.table.answered == self.table.calls else self._unanswered + 1
        self.table.calls += 1
        if not self._view_count or self._unanswered >= _PATIENCE:
            self._looked_at(0)
        elif self._pulse.age() >= self._at_most.total_seconds():
            self.pause(f"Stopped after {span(self._at_most.total_seconds())}")
        else:
            self.refresh()

    def _looked_at(self, views: int | None) -> None:
        """Nobody looks any more, as when its cell ran again; or somebody does so again."""
        if not views and self.is_on:
            self.pause("Stopped, as nobody looked")
            self._is_unseen = True
        elif views and self._is_unseen:
            self.go_on()

    def _rest(self) -> None:
        """A refresh has ended; the next one comes."""
        if self.is_on or self._is_outdated:
            self._pulse.after(_AT_ONCE if self._is_outdated else self._every)
        goes = self.is_on and self._pulse.goes
        self._tell(f"refreshed every {span(self._every.total_seconds())}" if goes else "not refreshed")

    def _acted(self) -> None:
        """A build was canceled or made; a look that is under way may have come before."""
        self._is_outdated = True
        self.refresh()

    # --- a refresh

    def _look(self, piece: Piece) -> None:
        """What one refresh does, in a thread: rows come first, since histories take longer."""
        watch = self._watch
        watch.look()
        self._hand(piece, watch.seen())
        for slug in watch.unknown()[:_HISTORIES]:
            if piece.stopped:
                return
            watch.learn(slug)
            self._hand(piece, watch.seen())

    def _hand(self, piece: Piece, seen: Seen) -> None:
        piece.show(html.guarded(self.said, lambda: self._show(seen)))

    def _fail(self, why: BaseException) -> None:
        self.said.fail(why)
        self._rest()
        self.table.former = self.seen is not None

    def _wait(self, seconds: float, why: str) -> None:
        self._tell(f"waiting {span(seconds)}, as {why}")

    def _show(self, seen: Seen) -> None:
        self._choose()  # what was chosen among the rows of before, and not heard yet
        self.seen = seen
        self._say_whether()
        self.table.former = False
        self.queue.value = monitor_rows.queue(seen)
        self.ended.value = monitor_rows.ended(seen)
        places = {row["id"]: place for place, row in enumerate(seen.rows)}
        chosen = places.get(self._build.id, -1) if self._build else -1
        self.table.fill([monitor_rows.cells(row) for row in seen.rows], chosen=chosen)
        self._show_chosen()
        self._tell("asking …")

    def _tell(self, words: str) -> None:
        """Of when the rows are, and what goes on; no live region, as it changes all the time."""
        as_of = f"As of {_time(self.seen)}" if self.seen else "Nothing read yet"
        self.told.value = f'<div class="bf-hint">{html.text(", ".join(filter(None, [as_of, words])))}</div>'

    # --- the chosen one

    def _choose(self) -> None:
        if self.seen is not None and 0 <= self.table.chosen < len(self.seen.rows):
            self._build = build_tracker.build_of(self.seen.rows[self.table.chosen])
            self._show_chosen()

    def _show_chosen(self) -> None:
        """The chosen build as it is now, also when it has left the table."""
        if self._build is None or self.seen is None:
            return
        id = self._build.id
        row = next((row for row in self.seen.rows if row["id"] == id), None)
        end = next((one for one in self.seen.ended if one.build.id == id), None)
        if row is not None:
            self._build = build_tracker.build_of(row)
            self.facts.value = monitor_rows.facts(row, self._build)
        elif end is not None:
            self._build = end.build
            self.facts.value = monitor_rows.facts_of_end(end)
        self._act_on(self._build)
        html.shown(self.actions, end is None or end.is_there)

    def _act_on(self, build: spec.Build) -> None:
        """Its buttons; a question that they ask stays while it can be answered."""
        acts_on = build.id, "cancelable" if build.state in CANCELABLE else str(build.state)
        if acts_on != self._acts_on:
            self._acts_on = acts_on
            self.actions.show(build)


class Pulse:
    """Calls an act after some time, on the kernel's loop; never where no loop runs, and never again once closed."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act
        self._next: asyncio.TimerHandle | None = None
        self._begun = 0.0
        self._loop = home()

    @property
    def goes(self) -> bool:
        """Whether there is a loop to call on."""
        return self._loop is not None

    def begin(self) -> None:
        """Count the age from now on."""
        self._begun = self._loop.time() if self._loop else 0.0

    def age(self) -> float:
        """Seconds since it began."""
        return self._loop.time() - self._begun if self._loop else 0.0

    def after(self, delay: dt.timedelta) -> None:
        """Call after so long, once; an earlier call that was to come does not."""
        self.stop()
        if self._loop is not None:
            self._next = self._loop.call_later(delay.total_seconds(), self._act)

    def stop(self) -> None:
        """Do not call."""
        if self._next is not None:
            self._next.cancel()

    def close(self) -> None:
        """Never call again."""
        self.stop()
        self._loop = None


def _time(seen: Seen) -> str:
    return "an unknown time" if pd.isna(seen.as_of) else f"{seen.as_of:%H:%M:%S} UTC"
