"""The build browser: filters, a table of builds, and the chosen one with its jobs, logs and buttons."""

from __future__ import annotations

from typing import Any, get_args

import ipywidgets
import pandas as pd

from buildframe import spec
from buildframe.errors import BadInput, BuildframeError
from buildframe.pipeline import Pipeline
from buildframe.spec.builds import BuildState
from buildframe.widgets import faces
from buildframe.widgets.detail import Detail
from buildframe.widgets.form import CreateForm
from buildframe.widgets.loading import load
from buildframe.widgets.tables import Cell, Column, Table
from buildframe.widgets.tasks import Lane, Piece
from buildframe.words import clipped, visible
from buildframe.workspace import Workspace

COLUMNS = (
    Column("Number", "number", "86px"),
    Column("State", "state", "95px"),
    Column("Pipeline", width="minmax(84px, 0.7fr)"),
    Column("Branch", width="minmax(110px, 1fr)"),
    Column("Message", width="minmax(170px, 2fr)"),
    Column("Took", "seconds", "70px"),
    Column("Created (UTC)", width="130px"),
    Column("Creator", width="minmax(90px, 1fr)"),
    Column("Commit", width="90px"),
)
_WIDE = {"width": "290px"}
_NAMES = {"description_width": "95px"}


class BuildBrowser(faces.Face):
    """Builds of an organization or of one pipeline, to filter, sort, look at and act on.

    Pipeline, branch, state, creator and time are filtered by the service; message and commit among the rows that
    are loaded. `created_from` is the time to begin with. Loading starts at once, off the kernel's thread.
    """

    def __init__(self, ws: Workspace | Pipeline, *, created_from: str = "7d") -> None:
        if not isinstance(ws, Workspace | Pipeline):
            raise BadInput(f"ws={ws!r}: pass a workspace, such as of connect(), or a pipeline of one.")
        self._ws = ws
        self._frames: list[pd.DataFrame] = []
        self.builds = pd.DataFrame()
        self.said, self.table = faces.Message(), Table("Builds", COLUMNS)
        self._lane = Lane(self._fail)
        self._names = Lane(lambda why: None)
        self.holds = (self._lane, self._names)
        self._creators: dict[str, str] = {}
        self._make_filters(created_from)
        self.detail = Detail(ws, acted=self._acted)
        self.form = CreateForm(ws, acted=self._acted)
        faces.shown(self.form, False)
        super().__init__([ipywidgets.HTML(faces.STYLE), *self._parts()], _view_count=0)
        self.layout.width = "100%"
        self._watch()
        self.load()
        self._names.start(self._read_names, self._offer_names)

    # --- its parts

    def _make_filters(self, created_from: str) -> None:
        def text(name: str, hint: str, value: str = "") -> ipywidgets.Text:
            return ipywidgets.Text(value, description=name, placeholder=hint, layout=_WIDE, style=_NAMES)

        self.pipeline = ipywidgets.Combobox(
            description="Pipeline", placeholder="all (slug)", ensure_option=False, layout=_WIDE, style=_NAMES
        )
        if isinstance(self._ws, Pipeline):
            self.pipeline.value, self.pipeline.disabled = self._ws.slug, True
        self.branch = text("Branch", "all; * matches any")
        self.state = ipywidgets.Dropdown(
            options=[("all", ""), *((one, one) for one in get_args(BuildState))],
            description="State", layout=_WIDE, style=_NAMES,
        )  # fmt: skip
        self.creator = ipywidgets.Combobox(
            description="Creator", placeholder="all (name or UUID)", layout=_WIDE, style=_NAMES
        )
        self.created_from = text("Created from", "7d, 2026-10-01 …", created_from)
        self.created_to = text("Created to", "now")
        self.message = text("Message", "among loaded rows")
        self.commit = text("Commit", "among loaded rows")
        self.load_button = faces.button("Load", "Ask the service with these filters", self.load, self.said, "primary")
        self.stop_button = faces.button("Stop", "Stop loading; keep what is there", self.stop, self.said)
        self.create_button = faces.button("Create build…", "Open a form", self._toggle_form, self.said)
        self.progress = ipywidgets.FloatProgress(0, max=1, description="Loading", layout={"width": "220px"})

    def _parts(self) -> list[ipywidgets.Widget]:
        wrap: dict[str, Any] = {"flex_flow": "row wrap", "align_items": "center"}
        by_service = [self.pipeline, self.branch, self.state, self.creator, self.created_from, self.created_to]
        words = "Message and commit are looked for among the loaded rows only:"
        hint = ipywidgets.HTML(f'<div class="bf-hint">{words}</div>')
        buttons = [self.load_button, self.stop_button, self.create_button, self.progress]
        left = ipywidgets.VBox([self.table], layout={"flex": "3 1 440px", "min_width": "0"})
        self.detail.layout.flex, self.detail.layout.min_width = "2 1 360px", "0"
        return [
            ipywidgets.HBox(by_service, layout=wrap),
            ipywidgets.HBox(buttons, layout=wrap),
            self.said,
            self.form,
            ipywidgets.HBox([hint, self.message, self.commit], layout=wrap),
            ipywidgets.HBox([left, self.detail], layout={**wrap, "align_items": "flex-start"}),
        ]

    def _watch(self) -> None:
        narrow = faces.guarded(self.said, lambda _: self._show_rows())
        self.message.observe(narrow, "value")
        self.commit.observe(narrow, "value")
        self.table.observe(faces.guarded(self.said, lambda _: self._choose()), "chosen")
        self.observe(lambda change: self._left(change.new), "_view_count")

    # --- loading

    def load(self) -> None:
        """Ask the service with the filters as they are; what was there before goes."""
        of, filters = self._of(), self._filters()
        self._frames = []
        self.progress.value = 0.0
        self._loading(True)
        self.said.tell("Loading …")

        def run(piece: Piece) -> str | None:
            return load(of, filters, piece, lambda frame: piece.show(lambda: self._add(frame)))

        self._lane.instead(run, self._loaded)

    def stop(self) -> None:
        """Stop loading, and keep what is there."""
        if self._lane.busy:
            self._lane.stop()
            self._loading(False)
            self.said.tell(f"Stopped: {self._count()}, others are missing. Load asks again.")

    def _of(self) -> Workspace | Pipeline:
        slug = self.pipeline.value.strip()
        return self._ws.pipeline(slug) if slug and isinstance(self._ws, Workspace) else self._ws

    def _filters(self) -> dict[str, Any]:
        creator = self.creator.value.strip()
        wanted = {
            "branch": self.branch.value.strip(),
            "state": self.state.value,
            "creator": self._creators.get(creator, creator),
            "created_from": self.created_from.value.strip(),
            "created_to": self.created_to.value.strip(),
        }
        return {name: value for name, value in wanted.items() if value}

    def _add(self, frame: pd.DataFrame) -> None:
        self._frames.append(frame)
        self.progress.value = _share(self._frames)
        self._join()
        self.said.tell(f"Loading … {self._count()} so far.")

    def _loaded(self, note: str | None) -> None:
        self._join()
        self._loading(False)
        self.said.tell(f"{self._count()}, complete{f'; {note}' if note else ''}.")

    def _fail(self, why: BaseException) -> None:
        self._loading(False)
        self.said.fail(why)

    def _loading(self, busy: bool) -> None:
        self.stop_button.disabled = not busy
        faces.shown(self.progress, busy)

    def _count(self) -> str:
        rows = len(self.builds)
        return f"{rows:,} build{'' if rows == 1 else 's'}"

    def _left(self, views: int | None) -> None:
        """Nobody looks any more, as when its cell ran again: what is under way stops."""
        if views == 0:
            self.stop()

    # --- the table

    def _join(self) -> None:
        frame = pd.concat(self._frames) if self._frames else pd.DataFrame()
        if len(frame):
            frame = frame.drop_duplicates("id").sort_values(["created_at", "id"], ascending=False, ignore_index=True)
        self.builds = frame
        self._show_rows(filled=True)

    def _show_rows(self, *, filled: bool = False) -> None:
        shown = self._matching()
        if filled:
            self.table.fill([_row(build) for build in self.builds.to_dict("records")], shown)
        else:
            self.table.shown = shown

    def _matching(self) -> list[int] | None:
        """Places of the rows whose message and commit match; None where neither is asked for."""
        words, commit = self.message.value.strip().lower(), self.commit.value.strip().lower()
        if not (words or commit) or self.builds.empty:
            return None
        found = self.builds["message"].fillna("").str.lower().str.contains(words, regex=False)
        found &= self.builds["commit"].fillna("").str.lower().str.startswith(commit)
        return [int(place) for place in self.builds.index[found]]

    def _choose(self) -> None:
        if 0 <= self.table.chosen < len(self.builds):
            build = self.builds.iloc[self.table.chosen]
            self.detail.show(str(build["pipeline"]), int(build["number"]))

    # --- acting

    def _toggle_form(self) -> None:
        opens = self.form.layout.display == "none"
        if opens:
            self.form.offer(self.pipeline.options, self.pipeline.value)
        faces.shown(self.form, opens)
        self.create_button.description = "Close the form" if opens else "Create build…"

    def _acted(self, build: spec.Build) -> None:
        """A build was created or canceled: its row is brought up to date, or added, without asking for all again."""
        if build.pipeline is None or build.number is None:
            return
        of = build.pipeline.slug if isinstance(self._ws, Workspace) else None
        pipeline = self._ws.pipeline(of) if of is not None and isinstance(self._ws, Workspace) else self._ws
        if isinstance(pipeline, Pipeline) and not self._lane.busy:
            number = build.number
            self._lane.start(lambda piece: pipeline.history_of(number).builds, self._refresh)

    def _refresh(self, frame: pd.DataFrame) -> None:
        chosen = None if self.table.chosen < 0 else self.builds["id"].iloc[self.table.chosen]
        self._frames = [frame[self.builds.columns] if len(self.builds) else frame, *self._frames]
        self._join()
        number = frame["number"].iloc[0]
        self.said.tell(f"{self._count()}; of these #{number} as it is now, whatever the filters are.")
        if chosen is not None:
            self.table.chosen = int(self.builds.index[self.builds["id"] == chosen][0])

    # --- names to choose from

    def _read_names(self, piece: Piece) -> tuple[list[str], dict[str, str]]:
        if isinstance(self._ws, Pipeline):
            return [], {}
        return _slugs(self._ws), _members(self._ws)

    def _offer_names(self, names: tuple[list[str], dict[str, str]]) -> None:
        slugs, self._creators = names
        self.pipeline.options = self.form.pipeline.options = tuple(slugs)
        self.creator.options = tuple(self._creators)


def _slugs(ws: Workspace) -> list[str]:
    try:
        return [str(slug) for slug in ws.pipelines(columns=["slug"], progress=False)["slug"]]
    except BuildframeError:
        return []  # a token without that scope: slugs can be typed


def _members(ws: Workspace) -> dict[str, str]:
    """The UUID of each member by the name; one whose name others have, too, by name and UUID."""
    try:
        members = ws.members(progress=False)
    except BuildframeError:
        return {}  # likewise
    names = members["name"].fillna("").map(visible)
    told = names.where(~names.duplicated(keep=False), names + " " + members["id"])
    return dict(zip(told, members["id"], strict=True))


def _share(frames: list[pd.DataFrame]) -> float:
    """How much of the way back in time is done, if the frames tell where it began and ends."""
    left = frames[-1].attrs["left"]
    if not left:
        return 1.0
    start, now = left[-1].get("created_from"), frames[0].attrs["as_of"]
    if start is None or now is None:
        return 0.0
    whole = pd.Timestamp(now) - pd.Timestamp(start)
    return float(1 - (pd.Timestamp(left[0]["created_to"]) - pd.Timestamp(start)) / whole) if whole else 0.0


def _row(build: dict[Any, Any]) -> list[Cell]:
    ran = build["finished_at"] - build["created_at"]
    message = faces.plain(_known(build["message"])).splitlines() or [""]
    return [
        None if pd.isna(build["number"]) else int(build["number"]),
        "blocked" if build["blocked"] is True else _cell(build["state"]),
        _cell(build["pipeline"]),
        _cell(build["branch"]),
        visible(clipped(message[0])),
        None if pd.isna(ran) else round(ran.total_seconds()),
        f"{build['created_at']:%Y-%m-%d %H:%M}",
        _cell(build["creator"]),
        _cell(build["commit"])[:10],
    ]


def _cell(value: Any) -> str:
    return visible(clipped(faces.plain(_known(value))))


def _known(value: Any) -> Any:
    return None if pd.isna(value) else value
