"""A form with every property of a new build, as its declaration lists them; validated before it is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, is_typeddict

import ipywidgets

from buildframe import spec
from buildframe.errors import BadInput, NotFound, OutcomeUnknown, ServiceError
from buildframe.formatting import format_count, format_name
from buildframe.http.request_body import body_of
from buildframe.spec.bodies import find_violations
from buildframe.spec.operations import Property, properties_of
from buildframe.terminal import nearest_name
from buildframe.widgets import components, html
from buildframe.widgets.background_tasks import TaskRunner
from buildframe.widgets.build_actions import OnBuildChanged, link_to
from buildframe.workspace import PipelineWorkspace, Workspace

_PIPELINE = Property("pipeline", str, True, "slug of the pipeline to build", None)
_FIRST = ("pipeline", "branch", "commit", "message")
"""Properties that are always visible; "More options" shows the others."""

_GROUPS = {
    "Author": ("author",),
    "Pull request": ("pull_request_id", "pull_request_base_branch", "pull_request_repository"),
}
_LABELS = {
    "author.name": "Author's name",
    "author.email": "Author's e-mail address",
    "env": "Environment variables",
    "ignore_pipeline_branch_filters": "Build branches that the pipeline filters out",
    "meta_data": "Meta-data",
    "pull_request_id": "Pull request number",
    "pull_request_base_branch": "Base branch of the pull request",
    "pull_request_repository": "Repository of the pull request",
}
_DEFAULTS = {"commit": "HEAD"}
_MULTILINE = ("message",)
_CHOICES = [("not set", ""), ("yes", True), ("no", False)]
_AUTO_WIDTH = {"width": "auto"}


class InvalidInput(Exception):
    """The input cannot be parsed as the property's type; the text says why."""


class FormField:
    """
    One property: its input, and below it a description or what is wrong. A property with parts has no input.

    `default` is the value that the input starts with, and gets back after a build was created.
    """

    def __init__(self, entry: Property, prefix: str = "", widget: Any = None) -> None:
        self.name, self.entry, self.problem = prefix + entry.name, entry, ""
        self.label = _LABELS.get(self.name) or self.name.replace("_", " ").capitalize()
        self.default = _DEFAULTS.get(self.name, "")
        parts = properties_of(entry.type) if is_typeddict(entry.type) else ()
        self.parts: list[FormField] = [FormField(part, f"{self.name}.") for part in parts]
        self.input: Any = None if self.parts else widget or _create_input(entry)
        self.hint = ipywidgets.HTML()
        self._hint_id = f"bf-{self.hint.model_id}"
        css_class = f"bf-field-{self.name.replace('.', '-')}"
        self.selector = f".{css_class} :is(input, textarea, select)"  # of its input
        if self.input is not None:
            self.input.description, self.input.value = self.label, self.default
            self.input.tooltip = f"{self.name}= of create_build"
            components.add_classes(self.input, "bf-field", css_class)
        self.show_problem("")
        inputs = [] if self.input is None else [self.input]
        self.box: Any = ipywidgets.VBox([*inputs, self.hint, *(part.box for part in self.parts)])

    def aria_attributes(self) -> dict[str, str]:
        """Return its description, whether it is required, and whether it is invalid, for screen readers."""
        return {
            "aria-describedby": self._hint_id,
            "aria-required": str(bool(self.entry.required)).lower(),
            "aria-invalid": str(bool(self.problem)).lower(),
        }

    def with_parts(self) -> list[FormField]:
        """Return this field and all its parts."""
        return [self, *(each for part in self.parts for each in part.with_parts())]

    def read(self) -> Any:
        """Return the value as the property's type, or `...` if it is empty; raise InvalidInput."""
        if self.parts:
            values = {part.entry.name: part.read() for part in self.parts}
            return {name: value for name, value in values.items() if value is not ...} or ...
        return _parse(self.entry, self.input.value)

    def set_default(self, default: str) -> None:
        """Change the default, and the value unless the user changed it."""
        if self.input.value == self.default:
            self.input.value = default
        self.default = default

    def show_problem(self, problem: str) -> None:
        """Show what is wrong, or the description if nothing is."""
        self.problem = problem
        text = f"{self.label} {problem}" if problem else _description(self.entry)
        self.hint.value = html.component("hint_of_field", self._hint_id, text, bool(problem))


class CreateBuildForm(components.WorkspaceWidget):
    """
    Creates a build of a pipeline. `on_change` is called with the new build.

    It starts with the newest commit and, after `prepare`, with the pipeline's default branch. "More options" shows the
    properties that few builds need.
    """

    def __init__(self, ws: Workspace | PipelineWorkspace, *, on_change: OnBuildChanged | None = None) -> None:
        super().__init__(ws)
        self._on_change = on_change
        self._default_branches: dict[str, str] = {}
        self._is_prepared = False
        self._branch_tasks = TaskRunner(lambda error: None)  # the user can type the branch
        self.closables += (self._branch_tasks,)
        self.pipeline = ipywidgets.Combobox(ensure_option=False, layout=_AUTO_WIDTH, continuous_update=False)
        self.fields = {"pipeline": FormField(_PIPELINE, widget=self.pipeline)} if isinstance(ws, Workspace) else {}
        self.fields |= {entry.name: FormField(entry) for entry in spec.create_build.properties}
        self._all_fields = [each for field in self.fields.values() for each in field.with_parts()]
        self._inputs = [field for field in self._all_fields if field.input is not None]
        self.create = self.status.create_button("Create this build", "Validate, then create the build", self._press)
        self.create.button_style = "primary"
        self.more_button = self.status.create_button("", "Show or hide the other properties", self._toggle, "bf-more")
        self._accessibility = components.AccessibilityHelper()
        self.more = components.add_classes(ipywidgets.VBox(self._more_groups()), "bf-form-groups", "bf-more-options")
        first = ipywidgets.VBox([self.fields[name].box for name in _FIRST if name in self.fields])
        buttons = ipywidgets.HBox([self.create, self.more_button], layout={"flex_flow": "row wrap"})
        first.add_class("bf-first-fields")
        self._show_parts(first, buttons, self.more, self.status, self._accessibility)
        components.add_classes(self, "bf-accessible", "bf-create-form")
        for field in self._inputs:
            field.input.observe(self.status.guard(lambda _, field=field: self._on_edit(field)), "value")
        self.pipeline.observe(self.status.guard(lambda _: self._load_branch()), "value")
        self._open(is_open=False)

    def _more_groups(self) -> list[ipywidgets.Widget]:
        grouped = {name for names in _GROUPS.values() for name in names} | set(_FIRST)
        boxes = []
        for title, names in {"Options": [name for name in self.fields if name not in grouped], **_GROUPS}.items():
            heading = ipywidgets.HTML(html.component("heading", title))
            boxes.append(ipywidgets.VBox([heading, *(self.fields[name].box for name in names if name in self.fields)]))
        return boxes

    def prepare(self, slugs: Sequence[str] = (), selected: str | None = None) -> None:
        """Offer pipelines, preselect one, fetch its default branch, and fold properties that were not changed."""
        self.pipeline.options = tuple(map(html.label, slugs))
        if not self._tasks.is_busy:  # otherwise a build is about to be created in this pipeline
            self.pipeline.value = selected or self.pipeline.value
        self._is_prepared = True
        folded = [field for field in self._inputs if field.name not in _FIRST]
        self._open(is_open=any(field.input.value != field.default for field in folded))
        self._load_branch()

    def _load_branch(self) -> None:
        """Fetch the default branch of the pipeline, once."""
        if not self._is_prepared:
            return
        self._branch_tasks.cancel()  # of the pipeline before
        slug = self._ws.slug if isinstance(self._ws, PipelineWorkspace) else self.pipeline.value.strip()
        if slug in self._default_branches:
            self._set_branch(slug, self._default_branches[slug])
        elif slug:
            pipeline = components.pipeline_of(self._ws, slug)
            self._branch_tasks.restart(
                lambda task: pipeline.get().default_branch or "", lambda branch: self._set_branch(slug, branch)
            )

    def _set_branch(self, slug: str, branch: str) -> None:
        self._default_branches[slug] = branch
        field = self.fields["branch"]
        if html.label(branch) != branch:
            return  # the input would show another name
        if self._tasks.is_busy and field.input.value:
            field.default = branch  # the build is created with the branch that was shown at the click
        else:
            field.set_default(branch)

    def _toggle(self) -> None:
        self._open(is_open=self.more.layout.display == "none")

    def _open(self, *, is_open: bool) -> None:
        components.set_visible(self.more, is_open)
        self.more_button.description = "Fewer options" if is_open else "More options"
        self._update_aria()

    def _update_aria(self) -> None:
        is_open = self.more.layout.display != "none"
        self._accessibility.attributes = {
            **{field.selector: field.aria_attributes() for field in self._inputs},
            ".bf-create-form": {"role": "group", "aria-label": "New build"},
            ".bf-more": {"aria-expanded": str(is_open).lower()},
        }

    def _on_edit(self, field: FormField) -> None:
        """Clear the problem of an edited field, and allow another submission."""
        self.create.disabled = self._tasks.is_busy
        if field.problem:
            field.show_problem("")
            self._update_aria()

    def _press(self) -> None:
        if self.create.disabled:
            return  # the second click of a double click
        self.create.disabled = True
        self.status.show_action("Creating the build …")
        self._start_with_inputs(self._submit)

    def _submit(self) -> None:
        self.create.disabled = False
        values, problems = self._read()
        for violation in find_violations([field.entry for field in self.fields.values()], values):
            problems.setdefault(violation.field, violation.problem)
        self._show_problems(problems)
        if problems:
            self.status.show_error(f"Nothing was sent. Correct {format_count(len(problems), 'marked field')}.")
            return
        try:
            pipeline = components.pipeline_of(self._ws, values.pop("pipeline", None))
        except BadInput as error:
            self._show_problems({"pipeline": f"is not valid: {error}"})
            raise
        body_of(spec.create_build, values)
        sent = {field: field.input.value for field in self._inputs if field.entry is not _PIPELINE}
        self.create.disabled = True
        self._tasks.start(
            lambda task: pipeline.create_build(**values), lambda build: self._on_build_created(build, sent)
        )

    def _read(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the values that are set, and the problems of inputs that cannot be parsed."""
        values, problems = {}, {}
        for name, field in self.fields.items():
            try:
                values[name] = field.read()
            except InvalidInput as error:
                problems[name] = str(error)
        return {name: value for name, value in values.items() if value is not ...}, problems

    def _show_problems(self, problems: Mapping[str, str]) -> None:
        """Show each problem at its field, and move the focus to the first."""
        for field in self._all_fields:
            field.show_problem(next((text for name, text in problems.items() if _concerns(name, field)), ""))
        wrong = [field for field in self._all_fields if field.problem]
        is_open = self.more.layout.display != "none"
        self._open(is_open=is_open or any(field.name not in _FIRST for field in wrong))
        if first := next(iter(wrong), None):
            self._accessibility.move_focus(first.selector)

    def _on_build_created(self, build: spec.Build, sent: Mapping[FormField, Any]) -> None:
        for field, value in sent.items():
            if field.input.value == value:  # otherwise it was edited meanwhile
                field.input.value = field.default
        # Disabled until a field is edited, so that a double click creates one build.
        self.create.disabled = all(field.input.value == field.default for field in sent)
        self.status.show(f"Build #{build.number} was created, {build.state}:", extra=link_to(build))
        if self._on_change is not None:
            self._on_change(build)

    def _on_error(self, error: BaseException) -> None:
        """Keep all input. A build that may have been created is not sent again before a field is edited."""
        self.create.disabled = isinstance(error, OutcomeUnknown)
        self.status.show_error(error)
        self._show_problems(_problems_by_field(error, self.pipeline.value, self.pipeline.options))


def _problems_by_field(error: BaseException, slug: str, slugs: Sequence[str]) -> dict[str, str]:
    if isinstance(error, NotFound):
        near = nearest_name(slug.strip(), slugs)
        advice = f". Did you mean {near}?" if near else ""
        return {"pipeline": f"does not exist, or this token cannot see it{advice}"}
    details = error.errors if isinstance(error, ServiceError) else ()
    return {str(detail["field"]): format_name(str(detail.get("code"))) for detail in details if detail.get("field")}


def _concerns(name: str, field: FormField) -> bool:
    return name == field.name or (not field.parts and name.startswith(f"{field.name}."))


def _description(entry: Property) -> str:
    syntax = ' One NAME=value per line, or JSON such as {"A": "1"}.' if _is_map(entry) else ""
    doc = entry.doc.replace("`", "").replace("(False)", "(default: no)")
    return f"{f'Required: {doc}' if entry.required else doc[:1].upper() + doc[1:]}.{syntax}"


def _is_map(entry: Property) -> bool:
    return getattr(entry.type, "__origin__", None) is Mapping


def _create_input(entry: Property) -> Any:
    if entry.type is bool:
        return ipywidgets.Dropdown(options=_CHOICES, layout=_AUTO_WIDTH)
    if _is_map(entry) or entry.name in _MULTILINE:
        return ipywidgets.Textarea(rows=3, layout=_AUTO_WIDTH)
    return ipywidgets.Text(layout=_AUTO_WIDTH)


def _parse(entry: Property, value: Any) -> Any:
    """Return the value of an input as the type of its property, or `...` if it is empty."""
    if isinstance(value, bool):
        return value
    if not value.strip():
        return ...
    if entry.type is int:
        return _parse_integer(value.strip())
    if _is_map(entry):
        return _parse_json(value) if value.lstrip().startswith("{") else parse_assignments(value)
    return value if entry.name in _MULTILINE else value.strip()


def _parse_integer(digits: str) -> int:
    if not digits.removeprefix("-").isdecimal():
        raise InvalidInput("must be a whole number")
    try:
        return int(digits)
    except ValueError:  # Python limits the number of digits
        raise InvalidInput(f"has {len(digits):,} digits, which is too many") from None


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_reject_duplicates)
    except ValueError as error:
        raise InvalidInput(f"is not valid JSON: {error}") from None


def _reject_duplicates(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; raise InvalidInput for a repeated name, whose first value would be lost."""
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise InvalidInput(f"contains {format_name(name)} twice")
        values[name] = value
    return values


def parse_assignments(text: str) -> dict[str, str]:
    """Return the values in lines such as "NAME=value"; raise InvalidInput for other lines and repeated names."""
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        name, sign, value = line.partition("=")
        if not sign or not name.strip():
            raise InvalidInput(f"has no NAME=value in line {number}")
        if name.strip() in values:
            raise InvalidInput(f"contains {format_name(name.strip())} twice, again in line {number}")
        values[name.strip()] = value
    return values
