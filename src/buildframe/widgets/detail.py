"""One build: its facts, its buttons, its jobs, when they ran, and the log of one of them."""

from __future__ import annotations

import base64
import io
import re
from typing import Any, NamedTuple

import ipywidgets
import pandas as pd

from buildframe import spec
from buildframe.pipeline import Pipeline
from buildframe.widgets import faces
from buildframe.widgets.buttons import Acted, Actions
from buildframe.widgets.tasks import Lane
from buildframe.words import clipped, counted, span, visible
from buildframe.workspace import Workspace

_STEERING = re.compile(r"\x1b_bk;[^\x07]*\x07|\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\r(?=\n)")
"""Colours, moves and time stamps that an agent puts into a log."""
_END_OF_LOG = 60_000


class Found(NamedTuple):
    """A build as a record, and its jobs as a frame."""

    build: spec.Build
    jobs: pd.DataFrame


class Detail(faces.Face):
    """One build; `show` gives it another one. `acted` is told of each build that its buttons canceled or created."""

    def __init__(self, ws: Workspace | Pipeline, *, acted: Acted | None = None) -> None:
        self._ws = ws
        self._acted = acted
        self.found: Found | None = None
        self.said = faces.Message()
        self._lane, self._logs = Lane(self.said.fail), Lane(self._no_log)
        self.holds = (self._lane, self._logs)
        self.facts, self.timeline, self.log_text = ipywidgets.HTML(), ipywidgets.HTML(), ipywidgets.HTML()
        self.actions = Actions(ws, acted=self._after)
        self.jobs = ipywidgets.Select(
            description="Jobs", rows=8, layout={"width": "99%"}, style={"description_width": "40px"}
        )
        self.log_button = faces.button("Show its log", "The log of the chosen job", self._show_log, self.said)
        self.body = ipywidgets.VBox(
            [self.facts, self.actions, self.jobs, self.log_button, self.log_text, self.timeline],
            layout={"width": "100%"},
        )
        super().__init__([self.said, self.body])
        self.jobs.observe(faces.guarded(self.said, lambda _: self._enliven_log()), "value")
        faces.shown(self.body, False)
        self.said.tell("Choose a build in the table: with the arrow keys, or by a click.")

    def show(self, pipeline: str, number: int) -> None:
        """Ask for this build, and show it; one that is being asked for is forgotten."""
        of = self._ws if isinstance(self._ws, Pipeline) else self._ws.pipeline(pipeline)
        self.said.tell(f"Loading build #{number} …")
        self._lane.instead(lambda piece: Found(of.build(number), of.history_of(number).jobs), self._show)

    def _show(self, found: Found) -> None:
        same = self.found is not None and self.found.build.id == found.build.id
        self.found = found
        self.said.clear()
        self.facts.value = _facts(found.build)
        self.actions.show(found.build)
        if not same:
            self.log_text.value = ""
        self.jobs.options = [(_told(job), place) for place, job in enumerate(_shown_jobs(found))]
        if self.jobs.options:
            self.jobs.index = _worst(_shown_jobs(found))
        self.timeline.value = _timeline(found.jobs)
        self._enliven_log()
        faces.shown(self.body, True)

    def _after(self, build: spec.Build) -> None:
        """What the buttons did shows in the facts, too; a new build is not shown before it is chosen."""
        if self.found is not None and build.id == self.found.build.id and build.number is not None:
            self.show(str(build.pipeline.slug if build.pipeline else ""), build.number)
        if self._acted is not None:
            self._acted(build)

    # --- logs

    def _job(self) -> spec.Job | None:
        if self.found is None or self.jobs.value is None:
            return None
        chosen: int = self.jobs.value
        return _shown_jobs(self.found)[chosen]

    def _enliven_log(self) -> None:
        job = self._job()
        self.log_button.disabled = job is None or not (job.raw_log_url or job.log_url)

    def _show_log(self) -> None:
        job, build = self._job(), self.found.build if self.found else None
        if job is None or build is None:
            return
        self.log_text.value = '<div role="status" class="bf-told">Loading the log …</div>'
        self._logs.instead(lambda piece: self._workspace().log(job), lambda log: self._show_text(job, log))

    def _workspace(self) -> Workspace:
        ws = self._ws
        return ws if isinstance(ws, Workspace) else Workspace(ws._client, ws.organization)

    def _show_text(self, job: spec.Job, log: str) -> None:
        name = f"Log of {_name(job)}"
        end = _STEERING.sub("", log)[-_END_OF_LOG:]
        left = f" (its last {_END_OF_LOG:,} of {counted(len(log), 'sign')})" if len(log) > _END_OF_LOG else ""
        lines = "\n".join(faces.text(line, 2000) for line in end.split("\n"))
        self.log_text.value = (
            f"<div><b>{faces.text(name)}</b>{left}</div>"
            f'<pre class="bf-log" role="region" tabindex="0" aria-label="{faces.text(name)}">{lines}</pre>'
        )

    def _no_log(self, why: BaseException) -> None:
        self.log_text.value = ""
        self.said.fail(why)


def _shown_jobs(found: Found) -> list[spec.Job]:
    return [job for job in found.build.jobs or [] if job.type != "waiter"]


def _worst(jobs: list[spec.Job]) -> int:
    """The place of the first job that failed, as that is what one looks for; else of the first."""
    return next((place for place, job in enumerate(jobs) if job.state in {"failed", "timed_out"}), 0)


def _name(job: spec.Job) -> str:
    return visible(clipped(job.name or job.label or job.step_key or job.type or "job", 80))


def _told(job: spec.Job) -> str:
    ran = span((job.finished_at - job.started_at).total_seconds()) if job.started_at and job.finished_at else ""
    again = "retried" if job.retried else ""
    return ", ".join(filter(None, (f"{job.state}: {_name(job)}", ran, again)))


def _facts(build: spec.Build) -> str:
    slug = build.pipeline.slug if build.pipeline else None
    again = build.rebuilt_from.number if build.rebuilt_from else None
    rows: list[tuple[str, Any]] = [
        ("State", faces.text(f"{build.state}{', blocked' if build.blocked else ''}")),
        ("Branch", faces.text(build.branch)),
        ("Commit", faces.text(build.commit)),
        ("Message", faces.text(build.message)),
        ("Creator", faces.text(build.creator.name if build.creator else None)),
        ("Source", faces.text(build.source)),
        ("Created", _moment(build.created_at)),
        ("Started", _moment(build.started_at)),
        ("Finished", _moment(build.finished_at)),
        ("Rebuilt from", faces.text(f"#{again}" if again else None)),
        ("Canceled", faces.text(build.cancel_reason)),
        ("Page", faces.link(build.web_url, f"open build {build.number}")),
    ]
    return faces.facts(rows, f"{slug} #{build.number}")


def _moment(moment: spec.Moment | None) -> str:
    return faces.text(f"{moment:%Y-%m-%d %H:%M:%S} UTC") if moment else ""


def _timeline(jobs: pd.DataFrame) -> str:
    """The picture of `plots.timeline` in a figure of its own, which no cell shows a second time."""
    from matplotlib.figure import Figure

    from buildframe import plots

    drawn = int(jobs[["runnable_at", "started_at", "unblocked_at"]].notna().any(axis="columns").sum())
    figure = Figure(figsize=(7, min(9.0, 1.9 + 0.26 * drawn)), layout="constrained", facecolor="white")
    axes = plots.timeline(jobs, figure.subplots())
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=100)
    words = faces.text(f"Timeline of the build: {axes.get_title() or counted(len(jobs), 'job')}")
    data = base64.b64encode(target.getvalue()).decode()
    return f'<img alt="{words}" style="max-width:100%" src="data:image/png;base64,{data}">'
