"""A form with every property of a new build, as the declaration names them; validated before it is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, is_typeddict

import ipywidgets

from buildframe import spec
from buildframe.errors import BadInput, NotFound, OutcomeUnknown, ServiceError
from buildframe.formatting import named
from buildframe.http.request_body import body_of
from buildframe.spec.bodies import find_violations
from buildframe.spec.declare import Property, properties_of
from buildframe.widgets import html
from buildframe.widgets.arguments import check_workspace
from buildframe.widgets.background_tasks import Lane
from buildframe.widgets.buttons import Acted, Guide, link_to
from buildframe.workspace import Pipeline, Workspace

Input = Any
_PIPELINE = Property("pipeline", str, True, "slug of the pipeline that it is a build of", None)
_GROUPS = {
    "What to build": ("commit", "branch", "message"),
    "Who wrote it": ("author",),
    "Pull request": ("pull_request_id", "pull_request_base_branch", "pull_request_repository"),
}
_OTHERS = "How to build it"
_LINES = ("message",)
_CHOICES = [("left out", ""), ("yes", True), ("no", False)]


class Unreadable(Exception):
    """What was typed cannot be read as what the property holds; the text says why."""


class Field:
    """One property: its input, and below it what it means or what is wrong with it."""

    def __init__(self, entry: Property, within: str = "", input: Input = None) -> None:
        self.name, self.entry, self.problem = within + entry.name, entry, ""
        self.inner: list[Field] = (
            [Field(one, f"{self.name}.") for one in properties_of(entry.type)] if is_typeddict(entry.type) else []
        )
        self.input: Any = None if self.inner else input or _input_for(entry)
        self.hint = ipywidgets.HTML()
        own = [] if self.input is None else [self.input]
        if self.input is not None:
            self.input.description = self.name
            for look in ("bf-field", self._look):
                self.input.add_class(look)
        self.tell("")
        self.face: Any = ipywidgets.VBox([*own, self.hint, *(field.face for field in self.inner)])

    @property
    def _look(self) -> str:
        return f"bf-at-{self.name.replace('.', '-')}"

    @property
    def selector(self) -> str:
        """Where its input is on the page."""
        return f".{self._look} :is(input, textarea, select)"

    def attributes(self) -> dict[str, str]:
        """What tells a screen reader of it: what it means, whether it has to be there, whether it is wrong."""
        required, wrong = self.entry.required, bool(self.problem)
        told = {"aria-required": required, "aria-invalid": wrong}
        return {"aria-describedby": self._id, **{name: str(is_so).lower() for name, is_so in told.items()}}

    @property
    def _id(self) -> str:
        return f"bf-{self.hint.model_id}"

    def all(self) -> list[Field]:
        """This one and those within."""
        return [self, *(each for field in self.inner for each in field.all())]

    def given(self) -> Any:
        """What was filled in, as the property's type; `...` where it was left out. May raise Unreadable."""
        if self.inner:
            parts = {field.entry.name: field.given() for field in self.inner}
            return {name: value for name, value in parts.items() if value is not ...} or ...
        assert self.input is not None
        return _read(self.entry, self.input.value)

    def tell(self, problem: str) -> None:
        """Show what is wrong with it; nothing: what it means."""
        self.problem = problem
        words, look = (f"{self.name} {problem}", "bf-failed") if problem else (_meaning(self.entry), "bf-hint")
        self.hint.value = f'<div id="{self._id}" class="{look}">{html.text(words)}</div>'

    def clear(self, sent: Any) -> None:
        """Empty it, unless its input is no longer what was sent, as one typed meanwhile."""
        if self.input.value == sent:
            self.input.value = ""


class CreateForm(html.Face):
    """Creates a build of a pipeline. `acted` is called with the new build."""

    def __init__(self, ws: Workspace | Pipeline, *, acted: Acted | None = None) -> None:
        check_workspace(ws)
        self._ws, self._acted = ws, acted
        self.said = html.Message()
        self._lane = Lane(self._fail, self._tell_wait)
        self.holds = (self._lane,)
        self.pipeline = ipywidgets.Combobox(ensure_option=False, layout=_WIDE)
        self._place = Field(_PIPELINE, input=self.pipeline)
        self.fields = {entry.name: Field(entry) for entry in spec.create_build.properties}
        self.create = html.button(
            "Create this build", "Checks the fields, then sends", self._submit, self.said, "primary"
        )
        self.create.layout.align_self = "flex-start"
        self._guide = Guide()
        style = ipywidgets.HTML(html.STYLE + _STYLE, layout={"display": "none"})
        super().__init__([style, self._groups(), self.create, self.said, self._guide])
        self.add_class("bf-guided")
        for each in self._every():
            if each.input is not None:
                each.input.observe(html.guarded(self.said, lambda _, field=each: self._typed(field)), "value")
        self._mark()

    def _groups(self) -> ipywidgets.Widget:
        placed = [name for names in _GROUPS.values() for name in names]
        others = tuple(name for name in self.fields if name not in placed)
        made = [self._group(title, names) for title, names in {**_GROUPS, _OTHERS: others}.items()]
        groups = ipywidgets.VBox(made)
        groups.add_class("bf-groups")
        return groups

    def _group(self, title: str, names: Sequence[str]) -> ipywidgets.Widget:
        heading = ipywidgets.HTML(f'<div role="heading" aria-level="4" class="bf-group">{html.text(title)}</div>')
        fields = [*(self._own() if "commit" in names else []), *(self.fields[n] for n in names if n in self.fields)]
        return ipywidgets.VBox([heading, *(field.face for field in fields)])

    def offer(self, slugs: Sequence[str], chosen: str | None = None) -> None:
        """Pipelines to choose from."""
        self.pipeline.options = tuple(map(html.label, slugs))
        self.pipeline.value = chosen or self.pipeline.value

    def _own(self) -> list[Field]:
        """The field for the pipeline, where it is not known."""
        return [self._place] if isinstance(self._ws, Workspace) else []

    def _every(self) -> list[Field]:
        return [*self._own(), *(each for field in self.fields.values() for each in field.all())]

    def _mark(self) -> None:
        self._guide.attributes = {field.selector: field.attributes() for field in self._every() if field.input}

    def _typed(self, field: Field) -> None:
        """What was wrong with a field is no longer so; what was sent before may be sent again."""
        self.create.disabled = self._lane.busy
        if field.problem:
            field.tell("")
            self._mark()

    # --- sending

    def _submit(self) -> None:
        if self.create.disabled:
            return  # a second click, before anything was changed
        given, wrong = self._given()
        wrong |= {misfit.field: misfit.problem for misfit in self._find_violations(given) if misfit.field not in wrong}
        self._tell_problems(wrong)
        if wrong:
            self.said.fail(f"Nothing was sent: {len(wrong)} of the fields cannot be used; see there.")
            return
        of = self._of(given)
        body_of(spec.create_build, given)
        sent = {field: field.input.value for each in self.fields.values() for field in each.all() if field.input}
        self.said.tell(_CREATING)
        self.create.disabled = True
        self._lane.start(lambda piece: of.create_build(**given), lambda build: self._done(build, sent))

    def _of(self, given: dict[str, Any]) -> Pipeline:
        """The pipeline to create it in, which is taken out of what was given."""
        if isinstance(self._ws, Pipeline):
            return self._ws
        try:
            return self._ws.pipeline(given.pop("pipeline"))
        except BadInput as why:
            self._tell_problems({"pipeline": f"cannot be used: {why}"})
            raise

    def _given(self) -> tuple[dict[str, Any], dict[str, str]]:
        """What was filled in, and what of it cannot be read."""
        given, wrong = {}, {}
        for field in [*self._own(), *self.fields.values()]:
            try:
                given[field.name] = field.given()
            except Unreadable as why:
                wrong[field.name] = str(why)
        return {name: value for name, value in given.items() if value is not ...}, wrong

    def _find_violations(self, given: Mapping[str, Any]) -> list[spec.Violation]:
        own = [field.entry for field in self._own()]
        return list(find_violations((*own, *spec.create_build.properties), given))

    def _tell_problems(self, wrong: Mapping[str, str]) -> None:
        """Each at its field; the first one that is wrong is where the focus goes."""
        for field in self._every():
            field.tell(next((said for name, said in wrong.items() if _is_at(name, field)), ""))
        self._mark()
        first = next((field for field in self._every() if field.problem), None)
        if first is not None:
            self._guide.lead(first.selector)

    def _tell_wait(self, seconds: float, why: str) -> None:
        self.said.tell(html.waiting(_CREATING, seconds, why))

    def _done(self, build: spec.Build, sent: Mapping[Field, Any]) -> None:
        for field, value in sent.items():
            field.clear(value)
        # until a field is changed: a click twice sends once
        self.create.disabled = not any(field.input.value for field in sent)
        self.said.tell(f"Build #{build.number} was created, {build.state}:", html=link_to(build))
        if self._acted is not None:
            self._acted(build)

    def _fail(self, why: BaseException) -> None:
        """All that was typed stays. What may have been sent is not sent again before a field is changed."""
        self.create.disabled = isinstance(why, OutcomeUnknown)
        self.said.fail(why)
        self._tell_problems(_named_in(why))


_WIDE = {"width": "auto"}
_CREATING = "Creating the build …"


def _named_in(why: BaseException) -> dict[str, str]:
    """What the service says of single fields."""
    if isinstance(why, NotFound):
        return {"pipeline": "is not known to the service, or not to this token"}
    errors = why.errors if isinstance(why, ServiceError) else ()
    return {str(error["field"]): named(str(error.get("code"))) for error in errors if error.get("field")}


def _is_at(name: str, field: Field) -> bool:
    return name == field.name or (not field.inner and name.startswith(f"{field.name}."))


def _meaning(entry: Property) -> str:
    how = ' One NAME=value a line; or JSON, such as {"A": "1"}.' if _is_map(entry.type) else ""
    doc = entry.doc.replace("`", "")
    return f"{f'Required: {doc}' if entry.required else doc[:1].upper() + doc[1:]}.{how}"


def _is_map(hint: Any) -> bool:
    return getattr(hint, "__origin__", None) is Mapping


def _input_for(entry: Property) -> Input:
    if entry.type is bool:
        return ipywidgets.Dropdown(options=_CHOICES, layout=_WIDE)
    if _is_map(entry.type) or entry.name in _LINES:
        return ipywidgets.Textarea(rows=3, layout=_WIDE)
    return ipywidgets.Text(layout=_WIDE)


def _read(entry: Property, value: Any) -> Any:
    """An input's value as the type of its property; `...` where it is empty."""
    if isinstance(value, bool):
        return value
    if not value.strip():
        return ...
    if entry.type is int:
        return _whole(value.strip())
    if _is_map(entry.type):
        return _json(value) if value.lstrip().startswith("{") else _map(value)
    return value if entry.name in _LINES else value.strip()


def _whole(digits: str) -> int:
    if not digits.removeprefix("-").isdecimal():
        raise Unreadable("must be a whole number")
    try:
        return int(digits)
    except ValueError:  # Python reads no longer one, and no service would
        raise Unreadable(f"has {len(digits):,} digits, which is too long a number") from None


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once)
    except ValueError as why:
        raise Unreadable(f"is no JSON: {why}") from None


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, in which a name twice would drop a value without a word."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise Unreadable(f"has {named(twice)} twice")
    return found


def _map(lines: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for at, line in enumerate(lines.splitlines(), 1):
        name, sign, value = line.partition("=")
        if not line.strip():
            continue
        if not sign or not name.strip():
            raise Unreadable(f"has no NAME=value in line {at}")
        if name.strip() in found:
            raise Unreadable(f"has {named(name.strip())} twice, again in line {at}")
        found[name.strip()] = value
    return found


_STYLE = """<style>
.bf-groups.widget-vbox { display: block; columns: 3 290px; column-gap: 28px; }
.bf-groups > .widget-vbox { break-inside: avoid; margin-bottom: 6px; }
.bf-group { font-weight: 600; font-size: 115%; line-height: 1.5;
  border-bottom: 1px solid var(--jp-border-color1, #bdbdbd); }
.bf-field.widget-inline-hbox { flex-direction: column; align-items: stretch; height: auto; }
.bf-field.widget-inline-hbox > .widget-label { width: auto; max-width: none; text-align: left; font-weight: 600;
  height: auto; line-height: 1.5; overflow-wrap: anywhere; white-space: normal; }
.bf-field :is(input, textarea, select) { width: auto; flex: none; box-sizing: border-box; }
.bf-field :is(input, select) { height: 28px; }
.bf-field :is(input, textarea, select)[aria-invalid="true"] { outline: 2px solid var(--jp-error-color1, #d32f2f); }
</style>"""
"""What a form looks like, beside what all faces share."""
