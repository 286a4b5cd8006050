"""The buttons of one build: cancel and rebuild, live where its state allows it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import anywidget
import ipywidgets
import traitlets

from buildframe import connect, spec
from buildframe.errors import BadInput, BuildframeError, Invalid, OutcomeUnknown
from buildframe.formatting import named
from buildframe.guards.arguments import checked_names
from buildframe.widgets import html
from buildframe.widgets.arguments import check_workspace
from buildframe.widgets.background_tasks import Lane
from buildframe.workspace import Pipeline, Workspace

CANCELABLE = ("scheduled", "running", "failing")
"""The states in which the service cancels a build."""

Acted = Callable[[spec.Build], None]


@checked_names
def actions(build: spec.Build, ws: Workspace | Pipeline | None = None) -> Actions:
    """Buttons that cancel and rebuild a build, for a layout of one's own; `show` gives them another one.

    Cancel is live while the build is scheduled, running or failing, and asks first. Rebuild asks once the build was
    rebuilt here, so that a click twice builds once. What the service answers shows below; after a refusal the build is
    read again, so that the buttons are true.

    A build holds no connection: without `ws` it is that of `connect()`, from the environment. BadInput: the
    environment names another service, or there is no token.
    """
    if not isinstance(build, spec.Build):
        raise BadInput(f"build={build!r}: pass a build, such as of ws.pipeline(...).build(41).")
    return Actions(_connected(build) if ws is None else ws, build)


def _connected(build: spec.Build) -> Workspace:
    ws = connect(build.organization)
    if not (build.url or "").startswith(f"{ws.base_url}/"):
        raise BadInput(f"Build {_name(build)} is of {build.url}, not of {ws}: pass its workspace, actions(build, ws).")
    return ws


class Guide(anywidget.AnyWidget):
    """What ipywidgets has no words for, for the box of the class `bf-guided` that it lies in.

    `attributes` are those of the parts that a selector of CSS finds (`role` and `aria-…` only); Escape presses the
    button that `escape` finds, while it is in sight.
    """

    _esm = Path(__file__).parent / "guide.js"

    attributes: Any = traitlets.Dict().tag(sync=True)
    escape = traitlets.Unicode().tag(sync=True)

    def lead(self, selector: str) -> None:
        """Move the focus to what the selector finds, once it is live, unless one is at something else meanwhile."""
        self.send({"focus": selector})


class Question(NamedTuple):
    """What is asked before something is done; the answers; whom the focus goes back to."""

    words: str
    yes: str
    no: str
    act: Callable[[], None]
    button: str


class Actions(html.Face):
    """The buttons, the question before a build is canceled or rebuilt once more, and what came of it."""

    def __init__(
        self, ws: Workspace | Pipeline, build: spec.Build | None = None, *, acted: Acted | None = None
    ) -> None:
        check_workspace(ws)
        self._ws, self._acted = ws, acted
        self._build: spec.Build | None = None
        self._again: dict[str, spec.Build | None] = {}  # what was rebuilt here, and as what; None: not known
        self._asks: Question | None = None
        self._shown, self._stayed = "", ""  # the last build that was shown, and what was said when it was
        self._about, self._doing = "", ""
        self.said = html.Message()
        self._lane = Lane(self._fail, self._tell_wait)
        self.holds = (self._lane,)
        self.cancel = self._button("Cancel…", "", self._ask_cancel, "bf-cancel")
        self.rebuild = self._button("Rebuild", "", self._start_rebuild, "bf-rebuild")
        self.yes = self._button("Yes", "Do it now", self._do, "bf-yes", "danger")
        self.no = self._button("No", "Change nothing; so does Escape", self._do_not, "bf-no")
        self.asked = ipywidgets.HTML()
        self.question = ipywidgets.VBox([self.asked, ipywidgets.HBox([self.yes, self.no])])
        self._guide = Guide(escape=".bf-no", attributes={".bf-question": _QUESTION})
        style = ipywidgets.HTML(html.STYLE + _STYLE, layout={"display": "none"})
        buttons = ipywidgets.HBox([self.cancel, self.rebuild], layout={"flex_flow": "row wrap"})
        super().__init__([style, buttons, self.question, self.said, self._guide])
        self.add_class("bf-guided")
        self.question.add_class("bf-question")
        self.show(build)

    def _button(self, words: str, tip: str, act: Callable[[], None], name: str, look: str = "") -> ipywidgets.Button:
        made = html.button(words, tip, act, self.said, look)
        made.add_class(name)
        return made

    def show(self, build: spec.Build | None) -> None:
        """Act on this build from now on; None for none.

        What came of an action names its build and stays: until the next action, or until a second build is shown.
        """
        if build is not None and build.id != self._shown:
            if self.said.value == self._stayed and not self._lane.busy:
                self.said.clear()
            self._shown, self._stayed = build.id, self.said.value
        self._build = build
        self._hide_question()
        self._enliven()

    def _enliven(self) -> None:
        build, busy = self._build, self._lane.busy
        is_unknown = build is not None and self._again.get(build.id, build) is None
        self.cancel.disabled = busy or build is None or build.state not in CANCELABLE
        self.rebuild.disabled = busy or build is None or build.number is None or is_unknown
        self.rebuild.description = "Rebuild once more…" if build and self._again.get(build.id) else "Rebuild"
        state = named(build.state) if build else "none"
        why = f"Only a build that is scheduled, running or failing can be canceled; this one is {state}"
        self.cancel.tooltip = html.label(why) if self.cancel.disabled else "Cancel this build; asks first"
        self.rebuild.tooltip = _UNKNOWN if is_unknown else "Build the same again"

    # --- asking first

    def _ask_cancel(self) -> None:
        if self._build is not None and not self.cancel.disabled:
            words = f"Cancel build {_name(self._build)}? Its jobs stop, and what they did so far is lost."
            self._ask(Question(words, "Yes, cancel it", "Keep running", self._start_cancel, ".bf-cancel"))

    def _start_rebuild(self) -> None:
        if self._build is None or self.rebuild.disabled:
            return
        again = self._again.get(self._build.id)
        if again is None:
            self._perform("rebuild")
        else:
            words = f"Build {_name(self._build)} was built again already, as #{again.number}. Once more?"
            self._ask(Question(words, "Yes, once more", "No, that is enough", self._again_rebuild, ".bf-rebuild"))

    def _ask(self, question: Question) -> None:
        self._asks = question
        self.asked.value = f'<div role="alert" class="bf-failed">{html.text(question.words)}</div>'
        self.yes.description, self.no.description = question.yes, question.no
        html.shown(self.question, True)
        self._guide.lead(".bf-no")

    def _hide_question(self) -> None:
        self._asks = None
        html.shown(self.question, False)

    def _do_not(self) -> None:
        if self._asks is not None:
            self._guide.lead(self._asks.button)
        self._hide_question()

    def _do(self) -> None:
        question = self._asks
        self._hide_question()
        if question is not None:  # else a second click on a question that was answered
            question.act()

    def _start_cancel(self) -> None:
        self._perform("cancel")

    def _again_rebuild(self) -> None:
        self._perform("rebuild")

    # --- doing it, in a thread

    def _perform(self, what: str) -> None:
        build = self._build
        assert build is not None
        assert build.number is not None
        self._hide_question()
        of, number = pipeline_of(self._ws, build), build.number
        self._about, self._stayed = _name(build), ""
        self._doing = f"Asking the service to {what} build {self._about} …"
        self.said.tell(self._doing)
        self._lane.start(lambda piece: _try(of, number, what), lambda came: self._came(build, what, came))
        self._enliven()

    def _came(self, build: spec.Build, what: str, came: Came) -> None:
        if what == "rebuild" and (came.made or isinstance(came.why, OutcomeUnknown)):
            self._again[build.id] = came.made
        if self._build is not None and came.now is not None and self._build.id == came.now.id:
            self._build = came.now
        self._enliven()
        self._tell(came)
        live = [f".bf-{name}" for name in (what, "rebuild", "cancel") if not getattr(self, name).disabled]
        self._guide.lead(next(iter(live), ".bf-none"))
        if self._acted is not None and (changed := came.made or came.now):
            self._acted(changed)

    def _fail(self, why: BaseException) -> None:
        self._enliven()
        self._tell_failure(why)

    def _tell_failure(self, why: BaseException) -> None:
        self.said.fail(f"{self._about}: {html.reason(why)}")

    def _tell_wait(self, seconds: float, why: str) -> None:
        self.said.tell(html.waiting(self._doing, seconds, why))

    def _tell(self, came: Came) -> None:
        if came.why is not None:
            self._tell_failure(came.why)
        elif came.made is not None:
            self.said.tell(f"Build {_name(came.made)} was created, {came.made.state}:", html=link_to(came.made))
        elif came.now is not None:
            self.said.tell(f"Build {_name(came.now)} is {came.now.state}.", html=link_to(came.now))


_QUESTION = {"role": "group", "aria-label": "Question"}
_UNKNOWN = "Whether it was built again is not known: look at the newest builds first"


class Came(NamedTuple):
    """What came of it: the build that was made, the one that was acted on as it is now, or why neither."""

    made: spec.Build | None = None
    now: spec.Build | None = None
    why: BuildframeError | None = None


def _try(of: Pipeline, number: int, what: str) -> Came:
    try:
        return Came(now=of.cancel(number)) if what == "cancel" else Came(made=of.rebuild(number))
    except Invalid as why:
        return Came(now=_as_it_is(of, number), why=why)  # its state was another one than shown
    except BuildframeError as why:
        return Came(why=why)


def _as_it_is(of: Pipeline, number: int) -> spec.Build | None:
    try:
        return of.build(number)
    except BuildframeError:
        return None  # the refusal is told, and says more


def pipeline_of(ws: Workspace | Pipeline, build: spec.Build) -> Pipeline:
    """The pipeline of a build, to act on it."""
    if isinstance(ws, Pipeline):
        return ws
    if build.pipeline is None or build.pipeline.slug is None:
        raise BadInput(f"The service did not tell the pipeline of build {build.number}: use ws.pipeline(...).")
    return ws.pipeline(build.pipeline.slug)


def link_to(build: spec.Build) -> str:
    """A link to the page of a build, as HTML."""
    return html.link(build.web_url, f"open build {build.number}")


def _name(build: spec.Build) -> str:
    slug: Any = build.pipeline.slug if build.pipeline else None
    return f"{named(slug)} #{build.number}" if slug else f"#{build.number}"


_STYLE = """<style>
.bf-cancel.bf-cancel {
  box-shadow: inset 0 0 0 2px color-mix(in srgb, var(--jp-warn-color1, #f57c00), currentColor 30%); }
</style>"""
"""What tells the button that destroys; its words stay in the theme's ink, which white on orange would not be."""
