"""What builds are asked for: inputs for the filters of the service, and names to choose from."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_args

import ipywidgets

from buildframe.errors import BadInput, BuildframeError, Forbidden
from buildframe.formatting import named
from buildframe.spec.builds import BuildState
from buildframe.widgets import html
from buildframe.widgets.background_tasks import Lane, Piece
from buildframe.workspace import Pipeline, Workspace

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_ENTER = "submit"  # the event that ipywidgets sends


class Question(NamedTuple):
    """What is asked for: of whom, with which filters."""

    of: Workspace | Pipeline
    filters: Mapping[str, Any]


class Names(NamedTuple):
    """What may be chosen: pipelines, and creators by name; and what kept others from being read."""

    slugs: list[str]
    creators: dict[str, str]
    problem: str


class Filters(html.Face):
    """Inputs for pipeline, branch, state, creator and time. `enter` is called when Enter is pressed in one of them."""

    def __init__(self, ws: Workspace | Pipeline, created_from: str, enter: Callable[[], Any]) -> None:
        self._ws = ws
        self._creators: dict[str, str] = {}
        self._lane = Lane(lambda why: self._offer(Names([], {}, html.reason(why))))
        self.holds = (self._lane,)
        self._make_inputs(created_from)
        self.said = ipywidgets.HTML()
        super().__init__([html.fields(self._inputs.values()), self.said])
        for given in self._inputs.values():
            given.on_msg(lambda _, content, buffers: self._heard(content, enter))
        self._lane.instead(lambda piece: _names(ws, piece), self._offer)

    def _make_inputs(self, created_from: str) -> None:
        self.pipeline = ipywidgets.Combobox(description="Pipeline", placeholder="all", continuous_update=False)
        if isinstance(self._ws, Pipeline):
            self.pipeline.value, self.pipeline.disabled = self._ws.slug, True
        self.branch = _text("Branch", "all", "* matches any: release/*")
        self.state = ipywidgets.Dropdown(
            description="State", options=[("all", ""), *((s, s) for s in get_args(BuildState))]
        )
        self.creator = ipywidgets.Combobox(
            description="Creator",
            placeholder="all",
            tooltip="A name of the list, or a user's UUID",
            continuous_update=False,
        )
        self.created_from = _text("Created from", "any time", "7d, 12h, 2026-10-01, 2026-10-01T08:00Z", created_from)
        self.created_to = _text("Created to", "now", "2d, 2026-10-08, 2026-10-08T08:00Z; not included")
        self._inputs: dict[str, Any] = {
            "pipeline": self.pipeline, "branch": self.branch, "state": self.state,
            "creator": self.creator, "created_from": self.created_from, "created_to": self.created_to,
        }  # fmt: skip

    def _heard(self, content: Mapping[str, Any], enter: Callable[[], Any]) -> None:
        if content.get("event") == _ENTER:
            enter()

    def changed(self, act: Callable[[], Any]) -> None:
        """Call `act` whenever one of them has another value."""
        for given in self._inputs.values():
            given.observe(lambda _: act(), "value")

    def question(self) -> Question:
        """What is asked for, as it stands; a pipeline or creator that cannot be one raises BadInput."""
        given = self._given()
        slug = given.pop("pipeline", None)
        if "creator" in given:
            given["creator"] = self._id_of(given["creator"])
        return Question(self._ws.pipeline(slug) if slug and isinstance(self._ws, Workspace) else self._ws, given)

    def _id_of(self, creator: str) -> str:
        id = self._creators.get(creator, creator)
        if not _UUID.fullmatch(id):
            raise BadInput(f"No creator {named(creator)} is known: choose a name of the list, or give a user's UUID.")
        return id

    @property
    def words(self) -> str:
        """The same in words: "pipeline web, state running"."""
        told = [f"{name.replace('_', ' ')} {named(value)}" for name, value in self._given().items()]
        return ", ".join(told) or "all builds"

    def _given(self) -> dict[str, str]:
        values = {name: given.value.strip() for name, given in self._inputs.items()}
        return {name: value for name, value in values.items() if value}

    def _offer(self, names: Names) -> None:
        self._creators = names.creators
        self.pipeline.options, self.creator.options = tuple(names.slugs), tuple(names.creators)
        self.said.value = f'<div role="alert" class="bf-hint">{html.text(names.problem)}</div>' if names.problem else ""


def _text(name: str, empty: str, tip: str, value: str = "") -> ipywidgets.Text:
    return ipywidgets.Text(value, description=name, placeholder=empty, tooltip=tip, continuous_update=False)


def _names(ws: Workspace | Pipeline, piece: Piece) -> Names:
    problems: dict[str, None] = {}

    def read(method: Callable[..., Any]) -> Any:
        try:
            return None if piece.stopped else method(progress=False)
        except Forbidden:
            return None  # names can be typed; the token need not allow more
        except BuildframeError as why:
            problems[str(why).splitlines()[0]] = None
            return None

    whole = ws if isinstance(ws, Workspace) else Workspace(ws._client, ws.organization)
    pipelines = read(whole.pipelines) if whole is ws else None
    members = read(whole.members)
    slugs = [] if pipelines is None else sorted(map(str, pipelines["slug"]))
    told = f"Names cannot be offered, only typed: {'; '.join(problems)}" if problems else ""
    return Names(slugs, {} if members is None else _creators(members), told)


def _creators(members: Any) -> dict[str, str]:
    """The UUID of each member by the name; one whose name others have, too, by name and UUID."""
    names = members["name"].fillna("").map(html.label)
    told = names.where(~names.duplicated(keep=False), names + " " + members["id"])
    return dict(zip(told, members["id"], strict=True))
