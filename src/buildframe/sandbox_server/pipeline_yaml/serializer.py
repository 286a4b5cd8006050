"""Format steps as YAML and as JSON."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

import yaml  # type: ignore[import-untyped]  # its stubs are not among our tools

from buildframe.sandbox_server.world.steps import ONLY_DIMENSION, UPLOAD, PipelineStep

Body = dict[str, Any]


def format_yaml(steps: Sequence[PipelineStep]) -> str:
    """Format steps as YAML without the upload step. Parsing it returns the same steps, except for run times."""
    first = int(steps[0].key == UPLOAD)
    text: str = yaml.dump({"steps": list(_grouped(steps[first:]))}, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # it has no types
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.Node:
        """Quote text with characters that YAML reads as line ends."""
        quote = '"' if re.search("[\x85\u2028\u2029\ufeff]", text) else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=quote)


_Dumper.add_representer(str, _Dumper.represent_text)


def _grouped(steps: Sequence[PipelineStep]) -> Iterator[Any]:
    """Group adjacent steps of the same group."""
    for group, members in itertools.groupby(enumerate(steps, 1), key=lambda numbered: numbered[1].group):
        values = [_value(step, place) for place, step in members]
        yield from values if group is None else [{"group": group, "steps": values}]


def _value(step: PipelineStep, place: int) -> Any:
    common = {"depends_on": list(step.needs), "branches": step.branches, "skip": step.skip}
    key = {"key": step.key} if step.has_key else {}
    named = key | _non_empty({"label": step.label})
    match step.kind:
        case "waiter" if step.key == f"wait-{place}" and not (step.needs or step.continue_on_failure):
            return "wait"
        case "waiter":
            return {"wait": None} | named | _non_empty(common | {"continue_on_failure": step.continue_on_failure})
        case "manual":
            return {"block": step.label} | key | _non_empty(common)
        case "trigger":
            slug, is_async, build = _trigger_json(step)
            trigger = {"trigger": slug, "async": is_async, "build": _non_empty(build), "soft_fail": step.soft_fail}
            return named | _non_empty(trigger | common)
        case "script":
            return named | {"command": step.command} | _non_empty(common | _of_script(step))


def _trigger_json(step: PipelineStep) -> tuple[str, bool, Body]:
    """Return the slug of the triggered pipeline, whether it is triggered asynchronously, and the new build."""
    assert step.trigger is not None
    build = {name: getattr(step.trigger, name) for name in ("message", "branch", "commit", "env")}
    return step.trigger.slug, step.trigger.is_async, build


def _of_script(step: PipelineStep) -> Body:
    matrix = {name: list(values) for name, values in (step.matrix or {}).items()}
    queue = {} if step.queue == "default" else {"queue": step.queue}
    return {
        "agents": list(step.rules) if step.agent_query_rules else queue,
        "priority": step.priority,
        "retry": _non_empty({"automatic": _non_empty({"limit": step.retries})}),
        "soft_fail": step.soft_fail,
        "parallelism": step.parallelism,
        "matrix": matrix[ONLY_DIMENSION] if list(matrix) == [ONLY_DIMENSION] else _non_empty({"setup": matrix}),
        **{name: getattr(step, name) for name in ("env", "artifact_paths", "timeout_in_minutes")},
    }


def _non_empty(values: Body) -> Body:
    """Return the values without empty ones."""
    return {name: value for name, value in values.items() if value}


def step_json(step: PipelineStep) -> Body:
    """Serialize a step for the `steps` of a pipeline."""
    match step.kind:
        case "waiter":
            return {"type": "waiter"}
        case "manual":
            return {"type": "manual", "label": step.label}
        case "trigger":
            slug, is_async, build = _trigger_json(step)
            body = {"type": "trigger", "label": step.label, "pipeline": slug, "build": build, "async": is_async}
            return body | {"branch_configuration": step.branches, "concurrency": None, "parallelism": None}
        case "script":
            return {
                "type": "script",
                "name": step.label or None,
                "command": step.command,
                "artifact_paths": step.artifact_paths,
                "branch_configuration": step.branches or "",
                "env": step.env,
                "timeout_in_minutes": step.timeout_in_minutes,
                "agent_query_rules": list(step.rules),
                "concurrency": None,
                "parallelism": step.parallelism,
            }
