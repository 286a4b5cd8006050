"""Inputs for the filters of the service, with suggestions of pipelines and creators."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, get_args

import ipywidgets
import pandas as pd

from buildframe.errors import BadInput, BuildframeError, Forbidden
from buildframe.formatting import format_name
from buildframe.spec.builds import BuildState
from buildframe.widgets import components, html
from buildframe.widgets.background_tasks import BackgroundTask, TaskRunner
from buildframe.workspace import PipelineWorkspace, Workspace

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class FilterInputs(components.CompositeWidget):
    """Inputs for pipeline, branch, state, creator and time. `on_enter` is called when Enter is pressed in one."""

    def __init__(self, ws: Workspace | PipelineWorkspace, created_from: str, on_enter: Callable[[], Any]) -> None:
        self._ws = ws
        self._creators: dict[str, str] = {}
        self._tasks = TaskRunner(lambda error: self._set_suggestions([], {}, html.error_text(error)))
        self.closables = (self._tasks,)
        self._create_inputs(created_from)
        self.hint = ipywidgets.HTML()
        super().__init__([components.input_grid(self._inputs.values()), self.hint])
        for each in self._inputs.values():
            components.on_enter(each, on_enter)
        self._tasks.restart(lambda task: _load_suggestions(ws, task), lambda result: self._set_suggestions(*result))

    def _create_inputs(self, created_from: str) -> None:
        def text(label: str, placeholder: str, tooltip: str, kind: Any = ipywidgets.Text, value: str = "") -> Any:
            texts = {"value": value, "description": label, "placeholder": placeholder, "tooltip": tooltip}
            # Suggestions that arrive would replace a text that the page has not sent yet.
            return kind(**texts, continuous_update=kind is ipywidgets.Combobox)

        self.pipeline = text("Pipeline", "all", "Slug of a pipeline", ipywidgets.Combobox)
        if isinstance(self._ws, PipelineWorkspace):
            self.pipeline.value, self.pipeline.disabled = self._ws.slug, True
        self.branch = text("Branch", "all", "* matches any text: release/*")
        states = [("all", ""), *((state, state) for state in get_args(BuildState))]
        self.state = ipywidgets.Dropdown(description="State", options=states)
        self.creator = text("Creator", "all", "A name from the list, or a user's UUID", ipywidgets.Combobox)
        examples = "12h, 7d, 2026-10-01, 2026-10-01T08:00Z"
        self.created_from = text("Created from", "any time", examples, value=created_from)
        self.created_to = text("Created to", "now", f"Exclusive: {examples}")
        self._inputs: dict[str, Any] = {
            "pipeline": self.pipeline, "branch": self.branch, "state": self.state,
            "creator": self.creator, "created_from": self.created_from, "created_to": self.created_to,
        }  # fmt: skip

    def on_change(self, callback: Callable[[], Any]) -> None:
        """Call back when a value changes."""
        for each in self._inputs.values():
            each.observe(lambda _: callback(), "value")

    def read(self) -> tuple[Workspace | PipelineWorkspace, dict[str, Any]]:
        """Return where to list builds and with which filters; raise BadInput for an invalid pipeline or creator."""
        filters: dict[str, Any] = self._values()
        slug = filters.pop("pipeline", None)
        if "creator" in filters:
            creator = str(filters["creator"])
            filters["creator"] = id = self._creators.get(creator, creator)
            if not _UUID.fullmatch(id):
                advice = "Choose a name from the list, or enter a user's UUID."
                raise BadInput(f"Creator {format_name(creator)} is unknown. {advice}")
        return self._ws.pipeline(slug) if slug and isinstance(self._ws, Workspace) else self._ws, filters

    @property
    def description_text(self) -> str:
        """The filters as text: "pipeline web, state running"."""
        filters = [f"{name.replace('_', ' ')} {format_name(value)}" for name, value in self._values().items()]
        return ", ".join(filters) or "all builds"

    def _values(self) -> dict[str, str]:
        values = {name: each.value.strip() for name, each in self._inputs.items()}
        return {name: value for name, value in values.items() if value}

    def _set_suggestions(self, slugs: list[str], creators: dict[str, str], error: str) -> None:
        self._creators, self.pipeline.options, self.creator.options = creators, tuple(slugs), tuple(creators)
        self.hint.value = html.component("hint_as_alert", error) if error else ""


def _load_suggestions(ws: Workspace | PipelineWorkspace, task: BackgroundTask) -> tuple[list[str], dict[str, str], str]:
    """Return slugs of pipelines, UUIDs of creators by name, and why some could not be loaded."""
    errors: dict[str, None] = {}

    def load(method: Callable[..., pd.DataFrame]) -> pd.DataFrame:
        try:
            if not task.is_canceled:
                return method(progress=False)
        except Forbidden:
            pass  # names can be typed, so the token needs no more scopes
        except BuildframeError as error:
            errors[str(error).splitlines()[0]] = None
        return pd.DataFrame(columns=["id", "name", "slug"], dtype="str")

    workspace = ws if isinstance(ws, Workspace) else Workspace(ws._client, ws.organization)
    slugs = sorted(map(str, load(workspace.pipelines)["slug"])) if workspace is ws else []
    creators = _creators_by_name(load(workspace.members))
    error = f"No suggestions; type pipelines and creators in full: {'; '.join(errors)}" if errors else ""
    return slugs, creators, error


def _creators_by_name(members: pd.DataFrame) -> dict[str, str]:
    """Return the UUID of each member by name; names that several members have are followed by the UUID."""
    names = members["name"].fillna("").map(html.label)
    unique = names.where(~names.duplicated(keep=False), names + " " + members["id"])
    return dict(zip(unique, members["id"], strict=True))
