"""A form with every property of a new build, as the declaration names them; validated before it is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, is_typeddict

import ipywidgets

from buildframe import spec
from buildframe.bodies import body_of
from buildframe.errors import BadInput
from buildframe.pipeline import Pipeline
from buildframe.spec.bodies import misfits
from buildframe.spec.declare import Property, properties_of
from buildframe.widgets import faces
from buildframe.widgets.buttons import Acted, link_to
from buildframe.widgets.tasks import Lane
from buildframe.workspace import Workspace

Input = Any
_WIDE = {"width": "100%", "max_width": "560px"}
_NAMES = {"description_width": "230px"}


class Field:
    """One property: its input, and below it what it means or what is wrong with it."""

    def __init__(self, entry: Property, within: str = "") -> None:
        self.name, self.entry = within + entry.name, entry
        self.inner: list[Field] = (
            [Field(one, f"{self.name}.") for one in properties_of(entry.type)] if is_object(entry) else []
        )
        self.input = None if self.inner else _input_for(entry, self.name)
        self.hint = ipywidgets.HTML(layout={"margin": "0 0 0 236px"})  # below its input
        self.tell("")
        own = [ipywidgets.HTML(f"<b>{faces.text(self.name)}</b>")] if self.inner else [self.input]
        self.face: Any = ipywidgets.VBox([*own, self.hint, *(field.face for field in self.inner)])

    def all(self) -> list[Field]:
        """This one and those within."""
        return [self, *(each for field in self.inner for each in field.all())]

    def given(self) -> Any:
        """What was filled in, as the property's type where it can be read so; `...` where it was left out."""
        if self.inner:
            parts = {field.entry.name: field.given() for field in self.inner}
            return {name: value for name, value in parts.items() if value is not ...} or ...
        assert self.input is not None
        return _read(self.entry.type, self.input.value)

    def tell(self, problem: str) -> None:
        """Show what is wrong with it; nothing: what it means."""
        if problem:
            self.hint.value = f'<div role="alert" class="bf-failed">{faces.text(f"{self.name} {problem}")}</div>'
        else:
            self.hint.value = f'<div class="bf-hint">{faces.text(_meaning(self.entry))}</div>'

    def clear(self) -> None:
        """Empty it, and what is within."""
        for field in self.all():
            field.tell("")
            if field.input is not None:
                field.input.value = False if isinstance(field.input.value, bool) else ""


class CreateForm(faces.Face):
    """Creates a build of a pipeline. `acted` is called with the new build."""

    def __init__(self, ws: Workspace | Pipeline, *, acted: Acted | None = None) -> None:
        self._ws, self._acted = ws, acted
        self.said = faces.Message()
        self._lane = Lane(self._fail)
        self.holds = (self._lane,)
        self.pipeline = ipywidgets.Combobox(description="pipeline", ensure_option=False, layout=_WIDE, style=_NAMES)
        self.fields = {entry.name: Field(entry) for entry in spec.create_build.properties}
        self.create = faces.button(
            "Create this build", "Checks the fields, then sends", self._submit, self.said, "primary"
        )
        of = [] if isinstance(ws, Pipeline) else [self.pipeline]
        faces_of = [field.face for field in self.fields.values()]
        super().__init__([*of, *faces_of, self.create, self.said])
        for each in self._every():
            if each.input is not None:
                each.input.observe(faces.guarded(self.said, lambda _: self._enliven()), "value")

    def offer(self, slugs: Sequence[str], chosen: str | None = None) -> None:
        """Pipelines to choose from."""
        self.pipeline.options = tuple(slugs)
        self.pipeline.value = chosen or self.pipeline.value

    def given(self) -> dict[str, Any]:
        """What was filled in, for `create_build`."""
        read = {name: field.given() for name, field in self.fields.items()}
        return {name: value for name, value in read.items() if value is not ...}

    def _every(self) -> list[Field]:
        return [each for field in self.fields.values() for each in field.all()]

    def _enliven(self) -> None:
        self.create.disabled = self._lane.busy

    def _submit(self) -> None:
        if self.create.disabled:
            return  # a second click, before anything was changed
        given = self.given()
        if self._check(given):
            of = self._ws if isinstance(self._ws, Pipeline) else self._ws.pipeline(self.pipeline.value.strip())
            if self._lane.start(lambda piece: of.create_build(**given), self._done):
                self.said.tell("Creating the build …")
                self.create.disabled = True

    def _check(self, given: Mapping[str, Any]) -> bool:
        """Whether it can be sent; what is wrong stands at each field."""
        wrong = {misfit.field: misfit.problem for misfit in misfits(spec.create_build.properties, given)}
        for field in self._every():
            field.tell(next((said for name, said in wrong.items() if _is_at(name, field)), ""))
        if wrong:
            self.said.fail(f"Nothing was sent: {len(wrong)} of the fields cannot be used; see there.")
            return False
        body_of(spec.create_build, given)
        return True

    def _done(self, build: spec.Build) -> None:
        for field in self.fields.values():
            field.clear()
        self.create.disabled = True  # until a field is changed: a click twice sends once
        self.said.tell(f"Build #{build.number} was created, {build.state}:", html=link_to(build))
        if self._acted is not None:
            self._acted(build)

    def _fail(self, why: BaseException) -> None:
        self.create.disabled = not isinstance(why, BadInput)
        self.said.fail(why)


def is_object(entry: Property) -> bool:
    """Whether a property is an object with properties of its own."""
    return is_typeddict(entry.type)


def _is_at(name: str, field: Field) -> bool:
    return name == field.name or (not field.inner and name.startswith(f"{field.name}."))


def _meaning(entry: Property) -> str:
    how = " One NAME=value a line." if _is_map(entry.type) else ""
    return f"{'Required: ' if entry.required else ''}{entry.doc}.{how}"


def _is_map(hint: Any) -> bool:
    return getattr(hint, "__origin__", None) is Mapping


def _input_for(entry: Property, name: str) -> Input:
    look: dict[str, Any] = {"description": name, "style": _NAMES, "layout": _WIDE, "tooltip": entry.doc}
    if entry.type is bool:
        return ipywidgets.Checkbox(False, indent=True, **look)
    kind: Callable[..., Input] = ipywidgets.Textarea if _is_map(entry.type) else ipywidgets.Text
    return kind(continuous_update=True, **look)


def _read(hint: Any, value: Any) -> Any:
    """An input's value as the type of its property; text that cannot be read so stays text, which then misfits."""
    if isinstance(value, bool):
        return value or ...
    if not value.strip():
        return ...
    if hint is int:
        return int(value) if value.strip().isdecimal() else value
    return _map(value) if _is_map(hint) else value


def _map(lines: str) -> Any:
    pairs = [line.partition("=") for line in lines.splitlines() if line.strip()]
    if any(not name.strip() or not sign for name, sign, _ in pairs):
        return lines
    return {name.strip(): value for name, _, value in pairs}
