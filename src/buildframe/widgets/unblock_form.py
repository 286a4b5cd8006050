"""Unblock the block steps at which a build waits, with the values of their fields."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets

from buildframe import spec
from buildframe.errors import BuildframeError, OutcomeUnknown
from buildframe.formatting import format_count, format_name
from buildframe.widgets import components, html
from buildframe.widgets.block_fields import BlockField, BlockStep, find_block_step
from buildframe.widgets.build_summary import job_name
from buildframe.widgets.create_build_form import InvalidInput, parse_assignments
from buildframe.widgets.data_table import Row
from buildframe.workspace import PipelineWorkspace, Workspace

_UNKNOWN_FIELDS = "Fields, if the step has some: one NAME=value per line"


class UnblockForm(components.WorkspaceWidget):
    """
    Unblocks one of the block steps of a build. `on_change` is called with the unblocked job.

    It is visible while the build waits at a block step. The fields of the step come from the pipeline's configuration.
    If it does not have the step, a text accepts any fields.
    """

    def __init__(
        self, ws: Workspace | PipelineWorkspace, *, on_change: Callable[[spec.Job], None] | None = None
    ) -> None:
        super().__init__(ws)
        self._on_change = on_change
        self._slug: str | None = None
        self._jobs: dict[str, Row] = {}
        self._job: Row | None = None  # whose fields are shown
        self._clicked: Row | None = None  # the job of the last click
        self._step: BlockStep | None = None
        self.inputs: dict[str, Any] = {}
        self.step: Any = ipywidgets.Dropdown(description="Block step")
        self.start = self.status.create_button(
            "Unblock…", "Show the fields of the block step", self._load, "bf-unblock"
        )
        self.submit = self.status.create_button("Unblock", "The build continues", self._press, "bf-yes")
        self.submit.button_style = "warning"
        self.decline = self.status.create_button("Not yet", "Change nothing (Escape)", self._decline, "bf-no")
        self.prompt, self.fields = ipywidgets.HTML(), components.input_grid([])
        self._accessibility = components.AccessibilityHelper(
            escape=".bf-no",
            attributes={".bf-unblock-fields": {"role": "group", "aria-label": "Fields of the block step"}},
        )
        choices = ipywidgets.HBox([self.submit, self.decline])
        self.form = components.add_classes(ipywidgets.VBox([self.prompt, self.fields, choices]), "bf-unblock-fields")
        self.choice = ipywidgets.HBox([self.step, self.start], layout={"flex_flow": "row wrap"})
        self._show_parts(self.choice, self.form, self.status, self._accessibility)
        self.add_class("bf-accessible")
        self.step.observe(self.status.guard(lambda _: self._close_form()), "value")
        self.show(None, [])

    def show(self, slug: str | None, jobs: Sequence[Row]) -> None:
        """Offer the block steps among the jobs of a build of this pipeline that can be unblocked now.

        The outcome of an action names its build, and stays until the next action or until no build is shown.
        """
        blocked = [job for job in jobs if job["type"] == "manual" and job["state"] == "blocked" and job["unblockable"]]
        if self._slug is not None and blocked and [job["id"] for job in blocked] == list(self._jobs):
            if not self._tasks.is_busy:
                self.submit.disabled = False
            return  # what was typed stays
        self._slug, self._jobs = slug, {job["id"]: job for job in blocked}
        self._close_form()
        self.submit.disabled = False
        if not self._tasks.is_busy and slug is None:
            self.status.show("")
        self.step.options = [(html.label(job_name(job)), id) for id, job in self._jobs.items()]
        self.step.value = next(iter(self._jobs), None)
        components.set_visible(self.step, len(self._jobs) > 1)
        components.set_visible(self.choice, bool(self._jobs))
        name = job_name(blocked[0], 40) if len(blocked) == 1 else ""
        self.start.description = html.label(f"Unblock {name}…") if name else "Unblock…"

    def _load(self) -> None:
        """Fetch the pipeline's configuration, and show the fields of the step."""
        job = self._jobs.get(self.step.value)
        if job is None or self._tasks.is_busy:
            return
        pipeline = components.pipeline_of(self._ws, self._slug)
        self._clicked = job
        self.status.show_action(f"Reading the fields of {job_name(job)} …")

        def read(_: object) -> BlockStep | str | None:
            try:
                return find_block_step(pipeline.get().configuration, job["step_key"], job["label"])
            except BuildframeError as error:
                return html.error_text(error).splitlines()[0]

        self._tasks.start(read, lambda step: self._show_form(job, step))
        self.start.disabled = True

    def _show_form(self, job: Row, step: BlockStep | str | None) -> None:
        self.status.show("")
        if job["id"] != self.step.value:
            return  # another step or build is selected now
        self._job, self._step = job, step if isinstance(step, BlockStep) else None
        question = f"Unblock {job_name(job)}: the build continues."
        if self._step is None:
            reason = f": {step}" if isinstance(step, str) else ""
            note = f"The pipeline's configuration does not describe this step{reason}."
            self.inputs = {"": ipywidgets.Textarea(description=_UNKNOWN_FIELDS, rows=3)}
        else:
            note = self._step.prompt
            self.inputs = {field.key: _create_input(field) for field in self._step.fields}
        self.prompt.value = html.message("\n".join(filter(None, [question, note])))
        self.fields.children = tuple(self.inputs.values())
        components.set_visible(self.form, True)
        self._accessibility.move_focus(".bf-unblock-fields :is(input, textarea, select)" if self.inputs else ".bf-yes")

    def _close_form(self) -> None:
        self._job = None
        components.set_visible(self.form, False)
        self.start.disabled = False

    def _decline(self) -> None:
        if self._tasks.cancel_delayed_start():
            self.submit.disabled = False
            self.status.show("")
        self._close_form()
        self._accessibility.move_focus(".bf-unblock")

    def _press(self) -> None:
        job = self._job
        if job is None or self._tasks.is_busy or self.submit.disabled:
            return
        self._clicked, self.submit.disabled = job, True
        self.status.show_action(f"Unblocking {_full_name(job)} …")
        step, inputs = self._step, self.inputs  # another build may be shown before they are read
        self._start_with_inputs(lambda: self._submit(job, step, inputs))

    def _submit(self, job: Row, step: BlockStep | None, inputs: dict[str, Any]) -> None:
        try:
            fields = _read(step, inputs)
        except InvalidInput as error:
            self.submit.disabled = False
            self.status.show_error(f"{_full_name(job)}: {error}")
            return
        ws = self._ws
        options: dict[str, Any] = {"fields": fields} if fields else {}
        self._tasks.start(lambda _: ws.unblock(job, **options), lambda done: self._on_unblocked(job, done, len(fields)))

    def _is_offered(self, job: Row | None) -> bool:
        return job is not None and job["id"] in self._jobs

    def _on_unblocked(self, job: Row, done: spec.Job, n_fields: int) -> None:
        values = f" with {format_count(n_fields, 'value')}" if n_fields else ""
        if self._is_offered(job):
            self.submit.disabled = False
            self._close_form()
            components.set_visible(self.choice, False)
        self.status.show(f"{_full_name(job)} was unblocked{values}.")
        if self._on_change is not None:
            self._on_change(done)

    def _on_error(self, error: BaseException) -> None:
        """Keep the values. A step that may have been unblocked is not unblocked again before the build is loaded."""
        self.submit.disabled = isinstance(error, OutcomeUnknown) and self._is_offered(self._clicked)
        self.start.disabled = False
        name = f"{_full_name(self._clicked)}: " if self._clicked else ""
        self.status.show_error(name + html.error_text(error))


def _full_name(job: Row) -> str:
    return f"{job_name(job)} of build {html.build_name(job['pipeline'], job['build_number'])}"


def _read(step: BlockStep | None, inputs: dict[str, Any]) -> dict[str, str]:
    """Return the values of the fields of a step; raise InvalidInput if one is missing."""
    if step is None:
        return parse_assignments(inputs[""].value)
    values = {}
    for field in step.fields:
        value = inputs[field.key].value
        text = "\n".join(value) if isinstance(value, tuple) else value
        if field.is_required and not text.strip():
            raise InvalidInput(f"{format_name(field.label)} is missing. Nothing was sent.")
        if text:
            values[field.key] = text
    return values


def _create_input(field: BlockField) -> Any:
    """Return the input of a field, with its default."""
    label = html.label(field.label) + ("" if field.is_required else " (optional)")
    common = {"description": label, "tooltip": html.label(field.hint)}
    if not field.options:
        return ipywidgets.Text(value=html.label("\n".join(field.default)), placeholder=html.label(field.hint), **common)
    options = [(html.label(name), value) for name, value in field.options]
    chosen = [value for value in field.default if value in dict(field.options).values()]
    if field.is_multiple:
        return ipywidgets.SelectMultiple(options=options, value=chosen, rows=min(5, len(options)), **common)
    options = options if chosen else [("not chosen", ""), *options]
    return ipywidgets.Dropdown(options=options, value=chosen[0] if chosen else "", **common)
