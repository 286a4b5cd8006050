"""Buttons that cancel and rebuild one build, enabled if its state allows it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import ipywidgets
import pandas as pd

from buildframe import connect, spec
from buildframe.errors import BadInput, Invalid, OutcomeUnknown
from buildframe.formatting import format_name
from buildframe.guards.arguments import checked_names
from buildframe.spec.builds import CANCELABLE_STATES
from buildframe.terminal import show
from buildframe.widgets import components, html
from buildframe.workspace import PipelineWorkspace, Workspace

OnBuildChanged = Callable[[spec.Build], None]

_IN_PROGRESS = {"cancel": "Canceling", "rebuild": "Rebuilding"}
_UNKNOWN_OUTCOME = "It is unknown whether the last rebuild was created. Check the newest builds first."


@checked_names
def actions(build: spec.Build, ws: Workspace | PipelineWorkspace | None = None) -> BuildActions:
    """
    Return buttons that cancel and rebuild a build, for a custom layout.

    Cancel is enabled while the build is scheduled, running or failing, and asks for confirmation. Rebuild asks for
    confirmation if the build was already rebuilt here, so a double click creates one build. The outcome appears below
    the buttons. If the service refuses, the build is loaded again, so that the buttons match its state.

    Parameters
    ----------
    build : buildframe.spec.Build
        Build to act on, such as the result of `ws.pipeline("web").build(41)`.
    ws : Workspace or PipelineWorkspace, optional
        Workspace of the build, or its pipeline. By default the widget connects as `buildframe.connect()` does, from the
        environment, because a build holds no connection.

    Returns
    -------
    BuildActions
        A widget. Its method `show(build)` replaces the build.

    Raises
    ------
    BadInput
        If `build` is not a build, `ws` is a workspace of all organizations, or, without `ws`, the environment has no
        token or names another service than that of the build.

    See Also
    --------
    BuildBrowser : Find builds, and act on one of them.

    Notes
    -----
    Needs the scope `write_builds`, and `read_builds` to load the build after a refusal. Each click sends one request.
    If the response to a rebuild is lost, the button stays disabled and the widget explains how to check.

    Examples
    --------
    >>> number = int(ci.pipeline("web").builds(created_from="1d")["number"].max())
    >>> buttons = widgets.actions(ci.pipeline("web").build(number), ci)
    >>> buttons.rebuild.description
    'Rebuild'
    """
    if not isinstance(build, spec.Build):
        raise BadInput(_advice(build, ws))
    return BuildActions(_workspace_of(build) if ws is None else ws, build)


def _advice(build: object, ws: object) -> str:
    """Return how to load the build that a row of builds describes, or what to pass instead of another value."""
    if isinstance(build, Workspace | PipelineWorkspace) and ws is not None:
        which = "build and ws are swapped: call actions(build, ws)."
        return which if isinstance(ws, spec.Build) else f"{which} {_advice(ws, None)}"
    if isinstance(build, pd.Series) and {"pipeline", "number"} <= {*build.index}:
        place = f"ws.pipeline({show(build['pipeline'])}).build({build['number']})"
        return f"build= is a row of builds. Pass the build itself: {place}."
    return f"build={show(build)} is not a build. Pass one, such as ws.pipeline(...).build(41)."


def _workspace_of(build: spec.Build) -> Workspace:
    """Return the workspace that the environment names, if the build belongs to its service."""
    ws = connect(build.organization)
    if not (build.url or "").startswith(f"{ws.base_url}/"):
        raise BadInput(
            f"Build {build_name(build)} belongs to {build.url}, not to {ws}. Pass its workspace: actions(build, ws)."
        )
    return ws


class BuildActions(components.WorkspaceWidget):
    """The buttons, the confirmation of an action, and its outcome."""

    def __init__(
        self,
        ws: Workspace | PipelineWorkspace,
        build: spec.Build | None = None,
        *,
        on_change: OnBuildChanged | None = None,
    ) -> None:
        super().__init__(ws)
        self._on_change = on_change
        self._build: spec.Build | None = None
        self._rebuilds: dict[str, spec.Build | None] = {}  # by id of the original; None: unknown outcome
        self._pending = ""  # the action that awaits confirmation
        self._last_id, self._last_status = "", ""  # the last build that was shown, and the status at that time
        self._build_name = ""
        self.cancel = self.status.create_button("Cancel…", "", self._confirm_cancel, "bf-cancel")
        self.rebuild = self.status.create_button("Rebuild", "", self._start_rebuild, "bf-rebuild")
        self.yes = self.status.create_button("Yes", "Confirm", self._accept, "bf-yes")
        self.yes.button_style = "danger"
        self.no = self.status.create_button("No", "Change nothing (Escape)", self._decline, "bf-no")
        self.question = ipywidgets.HTML()
        choices = ipywidgets.HBox([self.yes, self.no])
        self.confirmation = components.add_classes(ipywidgets.VBox([self.question, choices]), "bf-confirmation")
        self._accessibility = components.AccessibilityHelper(
            escape=".bf-no", attributes={".bf-confirmation": {"role": "group", "aria-label": "Confirmation"}}
        )
        buttons = ipywidgets.HBox([self.cancel, self.rebuild], layout={"flex_flow": "row wrap"})
        self._show_parts(buttons, self.confirmation, self.status, self._accessibility)
        self.add_class("bf-accessible")
        self.show(build)

    def show(self, build: spec.Build | None) -> None:
        """
        Act on this build from now on; None for none.

        The outcome of an action names its build, and stays until the next action or until a second build is shown.
        """
        if build is not None and build.id != self._last_id:
            if self.status.value == self._last_status and not self._tasks.is_busy:
                self.status.show("")
            self._last_id, self._last_status = build.id, self.status.value
        self._build = build
        self._close_confirmation()
        self._update_buttons()

    def _update_buttons(self) -> None:
        build, is_busy = self._build, self._tasks.is_busy
        is_unknown = build is not None and self._rebuilds.get(build.id, build) is None
        self.cancel.disabled = is_busy or build is None or build.state not in CANCELABLE_STATES
        self.rebuild.disabled = is_busy or build is None or build.number is None or is_unknown
        self.rebuild.description = "Rebuild again…" if build and self._rebuilds.get(build.id) else "Rebuild"
        reason = "Only scheduled, running and failing builds can be canceled"
        state = f"{reason}; this one is {format_name(build.state)}" if build else reason
        self.cancel.tooltip = html.label(state) if self.cancel.disabled else "Cancel this build (with confirmation)"
        self.rebuild.tooltip = _UNKNOWN_OUTCOME if is_unknown else "Create a build of the same commit"

    def _confirm_cancel(self) -> None:
        if self._build is not None and not self.cancel.disabled:
            question = f"Cancel build {build_name(self._build)}? Its jobs stop and their work is lost."
            self._ask("cancel", question, "Yes, cancel it", "Keep running")

    def _start_rebuild(self) -> None:
        if self._build is None or self.rebuild.disabled:
            return
        earlier = self._rebuilds.get(self._build.id)
        if earlier is None:
            self._start("rebuild")
        else:
            question = f"Build {build_name(self._build)} was already rebuilt as #{earlier.number}. Rebuild it again?"
            self._ask("rebuild", question, "Yes, rebuild again", "No")

    def _ask(self, action: str, question: str, yes: str, no: str) -> None:
        self._pending = action
        self.question.value = html.message(question, is_error=True)
        self.yes.description, self.no.description = yes, no
        components.set_visible(self.confirmation, True)
        self._accessibility.move_focus(".bf-no")

    def _close_confirmation(self) -> None:
        self._pending = ""
        components.set_visible(self.confirmation, False)

    def _decline(self) -> None:
        if self._pending:
            self._accessibility.move_focus(f".bf-{self._pending}")
        self._close_confirmation()

    def _accept(self) -> None:
        if self._pending:  # otherwise the second click of a double click
            self._start(self._pending)

    def _start(self, action: str) -> None:
        build = self._build
        assert build is not None
        assert build.number is not None
        self._close_confirmation()
        slug = build.pipeline.slug if build.pipeline else None
        pipeline, number = components.pipeline_of(self._ws, slug), build.number
        self._build_name, self._last_status = build_name(build), ""
        self.status.show_action(f"{_IN_PROGRESS[action]} build {self._build_name} …")
        self._tasks.start(
            lambda task: _perform(pipeline, number, action), lambda outcome: self._on_outcome(build, action, *outcome)
        )
        self._update_buttons()

    def _on_outcome(self, original: spec.Build, action: str, build: spec.Build | None, error: Exception | None) -> None:
        if action == "rebuild" and (error is None or isinstance(error, OutcomeUnknown)):
            self._rebuilds[original.id] = build
        elif self._build is not None and build is not None and self._build.id == build.id:
            self._build = build
        self._update_buttons()
        if error is not None:
            self.status.show_error(f"{self._build_name}: {html.error_text(error)}")
        elif build is not None:
            text = f"was created, {build.state}:" if action == "rebuild" else f"is {build.state}."
            self.status.show(f"Build {build_name(build)} {text}", extra=link_to(build))
        enabled = [f".bf-{name}" for name in (action, "rebuild", "cancel") if not getattr(self, name).disabled]
        self._accessibility.move_focus(next(iter(enabled), ".bf-none"))
        if self._on_change is not None and build is not None:
            self._on_change(build)


def _perform(pipeline: PipelineWorkspace, number: int, action: str) -> tuple[spec.Build | None, Exception | None]:
    """Return the build that was created or changed, if it is known, and the error."""
    try:
        return pipeline.cancel(number) if action == "cancel" else pipeline.rebuild(number), None
    except Invalid as error:  # its state differs from the one shown
        with contextlib.suppress(Exception):  # the refusal is shown, and says more
            return pipeline.build(number), error
        return None, error
    except Exception as error:
        return None, error


def link_to(build: spec.Build) -> str:
    """Return a link to the page of a build, as HTML."""
    return html.link(build.web_url, f"open build {build.number}")


def build_name(build: spec.Build) -> str:
    """Return pipeline and number, for use in a sentence."""
    slug = build.pipeline.slug if build.pipeline else None
    return html.build_name(slug, build.number) if slug else f"#{build.number}"
