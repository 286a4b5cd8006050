"""The build browser: filters, a table of builds, and the chosen one with its jobs, logs and buttons."""

from __future__ import annotations

import math
import time

import ipywidgets
import pandas as pd

from buildframe import spec
from buildframe.errors import BadInput, BuildframeError
from buildframe.guards.arguments import checked_names
from buildframe.widgets import html
from buildframe.widgets.arguments import check_workspace
from buildframe.widgets.background_tasks import Lane, Piece
from buildframe.widgets.detail import Detail
from buildframe.widgets.filters import Filters
from buildframe.widgets.form import CreateForm
from buildframe.widgets.loading import COLUMNS, Got, Listing, load, with_rows
from buildframe.widgets.tables import Column, Table
from buildframe.workspace import Pipeline, Workspace

SHOWN = (
    Column("Number", "number", "78px"),
    Column("State", "state", "100px"),
    Column("Pipeline", width="minmax(74px, 0.7fr)"),
    Column("Branch", width="minmax(92px, 1fr)"),
    Column("Message", width="minmax(120px, 2fr)"),
    Column("Took", "seconds", "68px"),
    Column("Created (UTC)", "time", "146px"),
    Column("Creator", width="minmax(74px, 0.8fr)"),
    Column("Commit", width="86px"),
)
_CREATED = 6
_BEHIND = 1.0  # seconds: a page may send the click or the Enter before the value that was typed before it


class BuildBrowser(html.Face):
    """Builds of an organization or of one pipeline, to filter, sort, look at and act on.

    Pipeline, branch, state, creator and time are filtered by the service; message and commit among the rows that
    are loaded. `created_from` is the time to begin with. Loading starts at once, off the kernel's thread.
    """

    @checked_names
    def __init__(self, ws: Workspace | Pipeline, *, created_from: str = "7d") -> None:
        check_workspace(ws)
        if not isinstance(created_from, str):
            raise BadInput(f"created_from={created_from!r}: pass a text, such as '7d' or '2026-10-01'.")
        self._ws = ws
        self._asked = self._answer = Listing("")  # the last question's, and that which the table shows
        self._pressed_at = -math.inf
        self._chosen_id: str | None = None
        self._acted_on: dict[tuple[str, int], None] = {}
        self.said, self.table = html.Message(), Table("Builds", SHOWN)
        self.table.order = [_CREATED, True]
        self._lane = Lane(self._fail, self._wait)
        self._again = Lane(self._fail_again)
        self.filters = Filters(ws, created_from, html.guarded(self.said, self._press))
        self.holds = (self._lane, self._again)
        self._make_inputs()
        self.detail = Detail(ws, acted=self._acted)
        self.form = CreateForm(ws, acted=self._acted)
        html.shown(self.form, False)
        super().__init__([ipywidgets.HTML(html.STYLE + _STYLE), *self._parts()], _view_count=0)
        self.add_class("bf-browser")
        self._watch()
        self.load()

    @property
    def builds(self) -> pd.DataFrame:
        """The builds in the table, newest first, one row each, with the columns that `ws.builds()` gives them."""
        newest_first = self._answer.builds.sort_values(["created_at", "id"], ascending=False, ignore_index=True)
        return newest_first[COLUMNS]

    # --- its parts

    def _make_inputs(self) -> None:
        self.message = ipywidgets.Text(description="Message contains", placeholder="among the loaded rows")
        self.commit = ipywidgets.Text(description="Commit begins with", placeholder="among the loaded rows")
        self.load_button = html.button("Load", "Ask the service with these filters", self._press, self.said, "primary")
        self.stop_button = html.button("Stop", "Stop loading; keep what is there", self.stop, self.said)
        self.create_button = html.button("Create build…", "Open a form", self._toggle_form, self.said)

    def _parts(self) -> list[ipywidgets.Widget]:
        buttons = ipywidgets.HBox([self.load_button, self.stop_button, self.create_button])
        words = "Filter loaded rows"
        hint = ipywidgets.HTML(f'<div class="bf-hint">{words}</div>')
        narrow = html.fields([hint, self.message, self.commit])
        split = ipywidgets.Box([ipywidgets.VBox([narrow, self.table]), self.detail])
        split.add_class("bf-split")
        return [self.filters, buttons, self.said, self.form, split]

    def _watch(self) -> None:
        narrow = html.guarded(self.said, lambda _: self._show_rows())
        self.message.observe(narrow, "value")
        self.commit.observe(narrow, "value")
        self.filters.changed(html.guarded(self.said, self._filter_changed))
        self.table.observe(html.guarded(self.said, lambda _: self._choose()), "chosen")
        self.observe(html.guarded(self.said, lambda change: self._left(change.new)), "_view_count")

    # --- loading

    def _press(self) -> None:
        self._pressed_at = time.monotonic()
        self.load()

    def _filter_changed(self) -> None:
        if time.monotonic() - self._pressed_at < _BEHIND:
            self.load()
        else:
            self._tell()

    def load(self) -> None:
        """Ask the service with the filters as they are. The rows of before stay, marked so, until the first come."""
        self._asked = Listing(self.filters.words)
        try:
            of, filters = self.filters.question()
        except BadInput as why:
            self._lane.stop()
            self._fail(why)
            return

        def run(piece: Piece) -> None:
            load(of, filters, piece, lambda got: piece.show(lambda: self._add(got)))

        self._lane.instead(run, lambda _: self._end())
        self._tell()

    def stop(self) -> None:
        """Stop loading, and keep what is there."""
        if self._lane.busy:
            self._lane.stop()
            self._asked.standing = "stopped"
            self._tell()

    def _add(self, got: Got) -> None:
        self._choose()  # what was chosen among the rows of before, and not heard yet
        self._asked.add(got)
        self._answer = self._asked
        self._fill()
        self._tell()

    def _end(self) -> None:
        self._asked.standing = "complete"
        self._tell()

    def _fail(self, why: BaseException) -> None:
        self._asked.standing, self._asked.problem = "failed", html.reason(why)
        self._tell()

    def _wait(self, seconds: float, why: str) -> None:
        self._tell(html.waiting("", seconds, why).strip())

    def _tell(self, more: str = "") -> None:
        """What the rows are, and how far the loading is."""
        loads = self._lane.busy
        self.stop_button.disabled, self.table.former = not loads, self._answer is not self._asked
        words = "\n".join(filter(None, (self._asked.told, more, self._former_words(), self._changed_words())))
        if self._asked.problem:
            self.said.fail(words)
        else:
            self.said.tell(words, html=_progress(self._asked.share) if loads else "")

    def _changed_words(self) -> str:
        changed = self._asked.words != self.filters.words
        return "The filters were changed since; Load asks with them." if changed else ""

    def _former_words(self) -> str:
        if self._answer is self._asked or self._answer.builds.empty:
            return ""
        return f"Showing previous results ({self._answer.words}), as of {self._answer.time}."

    def _left(self, views: int | None) -> None:
        """Nobody looks any more, as when its cell ran again: what is under way stops."""
        if views == 0:
            self.stop()

    # --- the table

    def _fill(self) -> None:
        builds = self._answer.builds
        at = builds.index[builds["id"] == self._chosen_id]
        self.table.fill(builds["row"].tolist(), self._matching(), int(at[0]) if len(at) else -1)

    def _show_rows(self) -> None:
        self.table.shown = self._matching()

    def _matching(self) -> list[int] | None:
        """Places of the rows whose message and commit match; None where neither is asked for."""
        words, commit = self.message.value.strip().lower(), self.commit.value.strip().lower()
        builds = self._answer.builds
        if not (words or commit) or builds.empty:
            return None
        found = builds["message"].fillna("").str.lower().str.contains(words, regex=False)
        found &= builds["commit"].fillna("").str.lower().str.startswith(commit)
        return [int(place) for place in builds.index[found]]

    def _choose(self) -> None:
        builds, place = self._answer.builds, self.table.chosen
        if not 0 <= place < len(builds) or builds["id"].iloc[place] == self._chosen_id:
            return
        build = builds.iloc[place]
        self._chosen_id = str(build["id"])
        self.detail.show(str(build["pipeline"]), int(build["number"]))

    # --- acting

    def _toggle_form(self) -> None:
        opens = self.form.layout.display == "none"
        if opens:
            self.form.offer(self.filters.pipeline.options, self.filters.pipeline.value)
        html.shown(self.form, opens)
        self.create_button.description = "Close the form" if opens else "Create build…"

    def _acted(self, build: spec.Build) -> None:
        """A build was created or canceled: its row is brought up to date, or added, without asking for all again."""
        if build.pipeline is None or build.pipeline.slug is None or build.number is None:
            return
        self._acted_on[build.pipeline.slug, build.number] = None
        builds = list(self._acted_on)
        self._again.instead(lambda piece: [self._read(*one) for one in builds], self._update)

    def _read(self, slug: str, number: int) -> pd.DataFrame | str:
        """The build with its row, or why there is none."""
        of = self._ws if isinstance(self._ws, Pipeline) else self._ws.pipeline(slug)
        try:
            return with_rows(of.history_of(number).builds)
        except BuildframeError as why:
            return f"The row of {slug} #{number} could not be brought up to date. {html.reason(why)}"

    def _update(self, read: list[pd.DataFrame | str]) -> None:
        self._acted_on.clear()
        self._choose()  # as in `_add`
        if frames := [one for one in read if not isinstance(one, str)]:
            self._answer.read_again(pd.concat(frames))
            self._fill()
        self._tell("\n".join(one for one in read if isinstance(one, str)))

    def _fail_again(self, why: BaseException) -> None:
        self._acted_on.clear()
        self.said.fail(why)


def _progress(share: float | None) -> str:
    value = "" if share is None else f' value="{share:.3f}"'
    return f'<progress aria-label="Share of the time asked for" max="1"{value}></progress>'


_STYLE = """<style>
.bf-browser { container-type: inline-size; width: 100%; }
.bf-browser .widget-box { overflow: visible; }
.bf-split.bf-split { display: grid; grid-template-columns: minmax(0, 1fr); gap: 8px 16px; }
.bf-split > * { min-width: 0; }
@container (min-width: 1180px) {
  .bf-split.bf-split { grid-template-columns: minmax(0, 1fr) 31%; }
  .bf-split > :first-child .bf-grid { height: 674px; }
}
</style>"""
