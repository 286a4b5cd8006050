"""One build: its facts, its buttons, its jobs, when they ran, and the log of one of them."""

from __future__ import annotations

from typing import NamedTuple

import ipywidgets

from buildframe import spec
from buildframe.widgets import html
from buildframe.widgets.arguments import check_workspace
from buildframe.widgets.background_tasks import Lane, Piece
from buildframe.widgets.build_summary import (
    COLUMNS,
    Row,
    facts_of,
    goes_on,
    job_cells,
    log_text,
    name_of,
    rows_of,
    why_no_log,
)
from buildframe.widgets.buttons import Acted, Actions
from buildframe.widgets.tables import Table
from buildframe.widgets.timeline import STYLE, timeline
from buildframe.workspace import Pipeline, Workspace

_FAILED = ("failed", "timed_out", "expired")


class Found(NamedTuple):
    """A build, its jobs as they are shown (those that failed first), and what is drawn of them."""

    build: Row
    jobs: list[Row]
    facts: str
    timeline: str


class Detail(html.Face):
    """One build; `show` gives it another one. `acted` is told of each build that its buttons canceled or created."""

    def __init__(self, ws: Workspace | Pipeline, *, acted: Acted | None = None) -> None:
        check_workspace(ws)
        self._ws, self._acted = ws, acted
        self.found: Found | None = None
        self._asked: tuple[str, int] | None = None
        self._in_sight: tuple[str, int] | None = None
        self.said = html.Message(layout={"flex": "1 1 200px", "min_height": "34px"})
        self._loading, self._loading_log = "", ""
        self._lane, self._logs = Lane(self._fail, self._tell_wait), Lane(self._no_log, self._tell_wait_for_log)
        self.holds = (self._lane, self._logs)
        self.facts, self.timeline, self.log_text = ipywidgets.HTML(), ipywidgets.HTML(), ipywidgets.HTML()
        self.actions = Actions(ws, acted=self._after)
        self.jobs = Table("Jobs", COLUMNS)
        self.again = html.button("Read again", "Ask the service for this build as it is now", self._reread, self.said)
        self.log_button = html.button("Show its log", "The log of the chosen job", self._show_log, self.said)
        super().__init__(self._parts())
        self.jobs.observe(html.guarded(self.said, lambda _: self._enliven_log()), "chosen")
        html.shown(self.body, False)
        html.shown(self.again, False)
        self.said.tell("Choose a build in the table: with the arrow keys, or by a click.")

    def _parts(self) -> list[ipywidgets.Widget]:
        style = ipywidgets.HTML(html.STYLE + STYLE + _STYLE, layout={"display": "none"})
        self.body = ipywidgets.VBox(
            [self.facts, self.actions, self.jobs, self.log_button, self.log_text, self.timeline],
            layout={"width": "100%"},
        )
        self.log_button.layout.align_self = "flex-start"
        self.jobs.add_class("bf-jobs")
        return [style, ipywidgets.HBox([self.again, self.said]), self.body]

    # --- the build

    def show(self, pipeline: str, number: int) -> None:
        """Ask for this build, and show it; one that is being asked for is forgotten. What is shown stays till then."""
        of = self._ws if isinstance(self._ws, Pipeline) else self._ws.pipeline(pipeline)
        self._asked = (of.slug, number)
        if self._asked != self._in_sight:
            self.actions.show(None)  # they would act on a build that is no longer the chosen one
        self._loading = f"Loading build #{number} …"
        self.said.tell(self._loading)
        self._lane.instead(lambda piece: _read(of, number), self._show)

    def _reread(self) -> None:
        if self._asked is not None:
            self.show(*self._asked)

    def _show(self, found: Found) -> None:
        before, job = self.found, self._job()
        same = before is not None and before.build["id"] == found.build["id"]
        self.found = found
        self._in_sight = self._asked
        self.said.clear()
        self.facts.value, self.timeline.value = found.facts, found.timeline
        self.actions.show(_record(found.build))
        if not same:
            self.log_text.value = ""
            self._logs.stop()
        wanted = job["id"] if same and job else None
        ids = [each["id"] for each in found.jobs]
        place = ids.index(wanted) if wanted in ids else min(0, len(ids) - 1)
        self.jobs.label = html.label(f"Jobs of {found.build['pipeline']} #{found.build['number']}")
        self.jobs.fill([job_cells(each) for each in found.jobs], chosen=place)
        self._enliven_log()
        html.shown(self.body, True)
        html.shown(self.again, True)

    def _tell_wait(self, seconds: float, why: str) -> None:
        self.said.tell(html.waiting(self._loading, seconds, why))

    def _fail(self, why: BaseException) -> None:
        html.shown(self.body, self._asked == self._in_sight)
        html.shown(self.again, True)
        self.said.fail(why)

    def _after(self, build: spec.Build) -> None:
        """What the buttons did shows in the facts, too; a new build is not shown before it is chosen."""
        if self.found is not None and build.id == self.found.build["id"] and self._asked == self._in_sight:
            self._reread()
        if self._acted is not None:
            self._acted(build)

    # --- logs

    def _job(self) -> Row | None:
        there = self.found is not None and 0 <= self.jobs.chosen < len(self.found.jobs)
        return self.found.jobs[self.jobs.chosen] if self.found and there else None

    def _enliven_log(self) -> None:
        job = self._job()
        self.log_button.disabled = (
            job is None or job["started_at"] is None or not (job["raw_log_url"] or job["log_url"])
        )
        self.log_button.description = html.label(f"Show its log: {name_of(job, 40)}") if job else "Show its log"
        dead = "Only jobs that an agent ran have a log" if job else "Choose a job in the table"
        self.log_button.tooltip = dead if self.log_button.disabled else "The log of the chosen job"

    def _show_log(self) -> None:
        job = self._job()
        if job is None or self.log_button.disabled or self.found is None:
            return
        self._loading_log = f"Loading the log of {name_of(job)} …"
        self._tell_of_log(self._loading_log)
        of = self._ws

        def read(piece: Piece) -> str:
            return log_text(job, of.log(job).raw)

        self._logs.instead(read, self._show_text)

    def _tell_of_log(self, words: str) -> None:
        told = "<br>".join(map(html.text, words.splitlines()))
        self.log_text.value = f'<div role="status" class="bf-told">{told}</div>'

    def _tell_wait_for_log(self, seconds: float, why: str) -> None:
        self._tell_of_log(html.waiting(self._loading_log, seconds, why))

    def _show_text(self, log: str) -> None:
        self.log_text.value = log

    def _no_log(self, why: BaseException) -> None:
        said = "<br>".join(map(html.text, why_no_log(why).splitlines()))
        self.log_text.value = f'<div role="alert" class="bf-failed">{said}</div>'


# --- reading, in a thread


def _read(of: Pipeline, number: int) -> Found:
    builds, jobs = of.history_of(number)
    build, name = {**rows_of(builds)[0], "pipeline": of.slug}, f"{of.slug} #{number}"
    shown = [job for job in rows_of(jobs) if job["type"] != "waiter"]
    drawn = timeline(jobs, name, goes_on=goes_on(build) or bool(build["blocked"]))
    return Found(build, sorted(shown, key=_badness), facts_of(build), drawn)


def _badness(job: Row) -> int:
    """Failed jobs first, as they are what one looks for; of these first what no retry and no leave made good."""
    return 2 if job["state"] not in _FAILED else 1 if job["retried"] or job["soft_failed"] else 0


def _record(build: Row) -> spec.Build:
    """As much of a build as its buttons need."""
    of = spec.Pipeline(id=build["pipeline_id"] or "", slug=build["pipeline"])
    named = {name: build[name] for name in ("id", "number", "state", "web_url")}
    return spec.Build(**named, pipeline=of)


_STYLE = """<style>
.bf-jobs .bf-grid { height: min(220px, var(--bf-fit)); }
.bf-facts .bf-state { font-weight: 600; }
.bf-facts .bf-state[data-state="passed"] { --bf-hue: var(--jp-success-color1, #2e7d32); }
.bf-facts .bf-state[data-state^="fail"] { --bf-hue: var(--jp-error-color1, #c62828); }
.bf-facts .bf-state[data-state="running"] { --bf-hue: var(--jp-warn-color1, #b26a00); }
.bf-facts .bf-state:is([data-state="passed"], [data-state^="fail"], [data-state="running"]) {
  color: color-mix(in srgb, var(--bf-hue), var(--jp-content-font-color0, #000) 30%); } /* legible in each theme */
.bf-of-log { color: var(--jp-content-font-color1, #212121); line-height: 1.5; }
.bf-of-log a { color: var(--jp-content-link-color, #1565c0); text-decoration: underline; }
.bf-of-log .bf-log { display: flex; flex-direction: column-reverse; font-size: 12px; } /* begins at its end */
.bf-of-log .bf-log pre { flex: none; margin: 0; overflow: visible; white-space: pre-wrap; overflow-wrap: anywhere; }
</style>"""
"""What a build looks like, beside what all faces share."""
