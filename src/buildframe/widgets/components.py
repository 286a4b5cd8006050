"""Parts that all widgets share: bases, status lines, buttons, callbacks whose errors are shown, and accessibility."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets
import traitlets

from buildframe.errors import BadInput
from buildframe.terminal import show
from buildframe.widgets import html
from buildframe.widgets.background_tasks import TaskRunner, call_on_loop, kernel_loop
from buildframe.workspace import PipelineWorkspace, Workspace

_INPUT_DELAY = 0.5  # seconds within which values arrive that were entered before a click
_STYLES = f"<style>{(Path(__file__).parent / 'widgets.css').read_text(encoding='utf-8')}</style>"


class CompositeWidget(ipywidgets.VBox):
    """A widget made of others. Closing it closes these and everything in `closables`; no thread starts afterwards."""

    closables: tuple[TaskRunner, ...] = ()  # ipywidgets also closes widgets whose __init__ raised

    def close(self) -> None:
        """Close the widget and its parts, and cancel its requests."""
        for closable in self.closables:
            closable.close()
        for child in getattr(self, "children", ()):
            _close(child)
        super().close()

    def _mime_(self) -> tuple[str, str]:
        """Return what marimo shows: it has no Jupyter widgets, and would advise to rewrite this one."""
        return "text/plain", (
            f"{type(self).__name__} consists of Jupyter widgets, which marimo does not show. Use JupyterLab or Voila. "
            "In marimo, show DataFrames, plots and plots.explore."
        )


def _close(widget: ipywidgets.Widget) -> None:
    for child in getattr(widget, "children", ()):
        _close(child)
    widget.close()


class StatusLine(ipywidgets.HTML):
    """Shows one message at a time. Screen readers announce it."""

    _action = ""

    def show(self, message: str, *, extra: str = "") -> None:
        """Show a message, or nothing for an empty text; `extra` is HTML that follows the text."""
        self.value = html.message(message, extra=extra) if message else ""

    def show_action(self, action: str) -> None:
        """Show an action in progress."""
        self._action = action
        self.show(action)

    def show_wait(self, seconds: float, reason: str) -> None:
        """Show why the action waits."""
        self.show(f"{self._action}\n{html.wait_text(seconds, reason)}")

    def show_error(self, error: BaseException | str) -> None:
        """Show an error."""
        self.value = html.message(error if isinstance(error, str) else html.error_text(error), is_error=True)

    def guard(self, callback: Callable[..., Any]) -> Callable[..., None]:
        """Return a callback that runs on the kernel's thread and shows its errors: ipywidgets would swallow them."""
        loop = kernel_loop()

        def call(*arguments: Any) -> None:
            try:
                callback(*arguments)
            except Exception as error:
                self.show_error(error)

        return lambda *arguments: call_on_loop(loop, lambda: call(*arguments))

    def create_button(self, label: str, tooltip: str, on_click: Callable[[], Any], css_class: str = "") -> Any:
        """Return a button whose errors are shown here."""
        button = ipywidgets.Button(description=label, tooltip=tooltip, layout={"width": "auto"})
        button.on_click(self.guard(lambda _: on_click()))
        return add_classes(button, *css_class.split())


class TaskWidget(CompositeWidget):
    """A widget that works in background tasks. Its status line shows their errors and waits."""

    def __init__(self, **traits: Any) -> None:
        self.status = StatusLine()
        self._tasks = TaskRunner(self._on_error, self._on_wait)
        self.closables = (self._tasks,)
        super().__init__(**traits)

    def _start_with_inputs(self, start: Callable[[], Any]) -> None:
        """Call a function that reads inputs and starts a task, but half a second later.

        The kernel may handle a click before values that were entered before the click.
        """
        self._tasks.start_later(_INPUT_DELAY, self.status.guard(start))

    def _show_parts(self, *parts: ipywidgets.Widget) -> None:
        """Show these widgets in the styles of this package, which use the colors of JupyterLab's theme."""
        self.children = (ipywidgets.HTML(_STYLES, layout={"display": "none"}), *parts)

    def _on_error(self, error: BaseException) -> None:
        self.status.show_error(error)

    def _on_wait(self, seconds: float, reason: str) -> None:
        self.status.show_wait(seconds, reason)


class WorkspaceWidget(TaskWidget):
    """A widget of a workspace or pipeline, whose tasks send requests."""

    def __init__(self, ws: Workspace | PipelineWorkspace, *, may_be_pipeline: bool = True, **traits: Any) -> None:
        if not isinstance(ws, Workspace | PipelineWorkspace if may_be_pipeline else Workspace):
            pipelines = ", or one of its pipelines" if may_be_pipeline else ""
            raise BadInput(f"ws={show(ws)} is not a workspace. Pass the result of connect(){pipelines}.")
        if ws.organization is None:
            raise BadInput(
                'ws is of all organizations; a widget shows one. Use connect("acme"), or set BUILDFRAME_ORG.'
            )
        self._ws: Workspace | PipelineWorkspace = ws
        super().__init__(**traits)


def pipeline_of(ws: Workspace | PipelineWorkspace, slug: str | None) -> PipelineWorkspace:
    """Return a pipeline of a workspace, or the pipeline itself."""
    if isinstance(ws, PipelineWorkspace):
        return ws
    if slug is None:
        raise BadInput("The service did not report the pipeline of this build. Pass ws.pipeline(...) as ws.")
    return ws.pipeline(slug)


def input_grid(inputs: Iterable[ipywidgets.Widget]) -> ipywidgets.Box:
    """Return inputs in a grid, with the label above each."""
    return add_classes(ipywidgets.Box(tuple(inputs)), "bf-input-grid")


def on_enter(text: ipywidgets.Widget, callback: Callable[[], Any]) -> None:
    """Call back when Enter is pressed in a text input, which ipywidgets reports as the event "submit"."""
    text.on_msg(lambda _, content, buffers: callback() if content.get("event") == "submit" else None)


def add_classes(widget: Any, *names: str) -> Any:
    """Add CSS classes to a widget and return it."""
    for name in names:
        widget.add_class(name)
    return widget


def set_visible(widget: ipywidgets.DOMWidget, is_visible: bool) -> None:
    """Show a widget, or take it out of the page and out of the order of the Tab key."""
    widget.layout.display = None if is_visible else "none"


class AccessibilityHelper(anywidget.AnyWidget):
    """
    An invisible widget that serves the box of class `bf-accessible` that contains it.

    `attributes` maps CSS selectors to attributes (`role` and `aria-…` only). Escape clicks the button that the selector
    `escape` finds, while it is visible.
    """

    _esm = Path(__file__).parent / "accessibility.js"

    attributes: Any = traitlets.Dict().tag(sync=True)
    escape = traitlets.Unicode().tag(sync=True)

    def move_focus(self, selector: str) -> None:
        """Move the focus to the element of a selector once it is enabled, unless the user is somewhere else."""
        self.send({"focus": selector})


class LogTools(anywidget.AnyWidget):
    """A search, and buttons that jump to error lines and fold groups, for the log in the same box `bf-log-view`."""

    _esm = Path(__file__).parent / "log_tools.js"
