"""The buttons of one build: cancel and rebuild, live where its state allows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets

from buildframe import spec
from buildframe.errors import BadInput, Invalid, OutcomeUnknown
from buildframe.pipeline import Pipeline
from buildframe.widgets import faces
from buildframe.widgets.tasks import Lane
from buildframe.words import named
from buildframe.workspace import Workspace

CANCELABLE = frozenset({"scheduled", "running", "failing"})
"""The states in which the service cancels a build."""

Acted = Callable[[spec.Build], None]


def actions(ws: Workspace | Pipeline, build: spec.Build | None = None) -> Actions:
    """Buttons that cancel and rebuild a build, for a layout of one's own; `show` gives them another one.

    Cancel is live while the build is scheduled, running or failing, and asks first. After a rebuild the button stays
    dead until another build was shown, so that a click twice sends once. What the service answers shows below.
    """
    return Actions(ws, build)


class Actions(faces.Face):
    """The buttons, the question before a build is canceled, and what came of it."""

    def __init__(
        self, ws: Workspace | Pipeline, build: spec.Build | None = None, *, acted: Acted | None = None
    ) -> None:
        self._ws, self._acted = ws, acted
        self._build: spec.Build | None = None
        self._is_rebuilt = False  # or may be
        self.said = faces.Message()
        self._lane = Lane(self._fail)
        self.holds = (self._lane,)
        self.cancel = faces.button("Cancel…", "Cancel this build; asks first", self._ask, self.said, "warning")
        self.rebuild = faces.button("Rebuild", "Build the same again", self._rebuild, self.said)
        self.yes = faces.button("Yes, cancel it", "Cancel this build now", self._cancel, self.said, "danger")
        self.no = faces.button("No, let it go on", "Change nothing", self._do_not, self.said)
        self.asked = ipywidgets.HTML()
        self.question = ipywidgets.VBox([self.asked, ipywidgets.HBox([self.yes, self.no])])
        super().__init__([ipywidgets.HBox([self.cancel, self.rebuild]), self.question, self.said])
        self.show(build)

    def show(self, build: spec.Build | None) -> None:
        """Act on this build from now on; None for none. What was said stays while it is the same build."""
        if build is None or self._build is None or build.id != self._build.id:
            self.said.clear()
            self._is_rebuilt = False
        self._build = build
        self._do_not()
        self._enliven()

    def _enliven(self) -> None:
        build = self._build
        self.cancel.disabled = build is None or build.state not in CANCELABLE or self._lane.busy
        self.rebuild.disabled = build is None or build.number is None or self._lane.busy or self._is_rebuilt

    def _ask(self) -> None:
        if self._build is None or self.cancel.disabled:
            return
        words = f"Cancel build {_name(self._build)}? Its jobs stop, and what they did so far is lost."
        self.asked.value = f'<div role="alert" class="bf-failed">{faces.text(words)}</div>'
        faces.shown(self.question, True)
        self.no.focus()

    def _do_not(self) -> None:
        faces.shown(self.question, False)

    def _cancel(self) -> None:
        build = self._build
        if build is None or self.question.layout.display == "none":
            return  # a second click on a question that was answered
        self._do_not()
        self._perform(build, lambda of, number: of.cancel(number), self._canceled)

    def _rebuild(self) -> None:
        if self._build is not None and not self.rebuild.disabled:
            self._perform(self._build, lambda of, number: of.rebuild(number), self._rebuilt)

    def _perform(self, build: spec.Build, act: Callable[[Pipeline, int], spec.Build], done: Acted) -> None:
        of, number = pipeline_of(self._ws, build), build.number
        assert number is not None
        if self._lane.start(lambda piece: act(of, number), lambda new: self._done(new, done)):
            self.said.tell(f"Asking the service about build {_name(build)} …")
            self._enliven()

    def _done(self, new: spec.Build, done: Acted) -> None:
        self._enliven()
        done(new)
        if self._acted is not None:
            self._acted(new)

    def _canceled(self, build: spec.Build) -> None:
        if self._build is not None and self._build.id == build.id:
            self._build = build
            self._enliven()
        self.said.tell(f"Build {_name(build)} is {build.state}.", html=link_to(build))

    def _rebuilt(self, build: spec.Build) -> None:
        self._is_rebuilt = True
        self._enliven()
        self.said.tell(f"Build {_name(build)} was created, {build.state}:", html=link_to(build))

    def _fail(self, why: BaseException) -> None:
        self._is_rebuilt = self._is_rebuilt or isinstance(why, OutcomeUnknown)
        self._enliven()
        self.said.fail(why)
        if isinstance(why, Invalid) and self._acted is not None and self._build is not None:
            self._acted(self._build)  # its state was another one than shown


def pipeline_of(ws: Workspace | Pipeline, build: spec.Build) -> Pipeline:
    """The pipeline of a build, to act on it."""
    if isinstance(ws, Pipeline):
        return ws
    if build.pipeline is None or build.pipeline.slug is None:
        raise BadInput(f"The service did not tell the pipeline of build {build.number}: use ws.pipeline(...).")
    return ws.pipeline(build.pipeline.slug)


def link_to(build: spec.Build) -> str:
    """A link to the page of a build, as HTML."""
    return faces.link(build.web_url, f"open build {build.number}")


def _name(build: spec.Build) -> str:
    slug: Any = build.pipeline.slug if build.pipeline else None
    return f"{named(slug)} #{build.number}" if slug else f"#{build.number}"
