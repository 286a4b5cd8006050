"""Format steps as YAML and as JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import yaml  # type: ignore[import-untyped]  # its stubs are not among our tools

from buildframe.sandbox_server.world.steps import ONLY_DIMENSION, UPLOAD, PipelineStep, Trigger

Body = dict[str, Any]


def format_yaml(steps: Sequence[PipelineStep]) -> str:
    """Format steps as YAML without the upload step. Parsing it returns the same steps, except for run times."""
    first = int(steps[0].key == UPLOAD)
    text: str = yaml.dump({"steps": _grouped(steps[first:])}, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # it has no types
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.Node:
        """Quote text with characters that YAML reads as line ends."""
        quote = '"' if re.search("[\x85\u2028\u2029\ufeff]", text) else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=quote)


_Dumper.add_representer(str, _Dumper.represent_text)


def _grouped(steps: Sequence[PipelineStep]) -> list[Any]:
    """Group adjacent steps of the same group."""
    values: list[Any] = []
    last = None
    for place, step in enumerate(steps, 1):
        if step.group is None:
            values.append(_value(step, place))
        elif step.group == last:
            values[-1]["steps"].append(_value(step, place))
        else:
            values.append({"group": step.group, "steps": [_value(step, place)]})
        last = step.group
    return values


def _value(step: PipelineStep, place: int) -> Any:
    common = {"depends_on": list(step.needs), "branches": step.branches, "skip": step.skip}
    named = _non_empty({"key": step.key, "label": step.label})
    match step.kind:
        case "waiter" if step.key == f"wait-{place}" and not (step.needs or step.continue_on_failure):
            return "wait"
        case "waiter":
            return {"wait": None} | named | _non_empty(common | {"continue_on_failure": step.continue_on_failure})
        case "manual":
            return {"block": step.label, "key": step.key} | _non_empty(common)
        case "trigger":
            return named | _non_empty(_of_trigger(step) | common)
        case "script":
            return named | {"command": step.command} | _non_empty(common | _of_script(step))


def _of_trigger(step: PipelineStep) -> Body:
    assert step.trigger is not None
    trigger = step.trigger
    build = _non_empty(_triggered_build(trigger))
    return {"trigger": trigger.slug, "async": trigger.is_async, "build": build, "soft_fail": step.soft_fail}


def _triggered_build(trigger: Trigger) -> Body:
    return {"message": trigger.message, "branch": trigger.branch, "commit": trigger.commit, "env": trigger.env}


def _of_script(step: PipelineStep) -> Body:
    matrix = {name: list(values) for name, values in (step.matrix or {}).items()}
    return {
        "agents": _agents(step),
        "priority": step.priority,
        "retry": _non_empty({"automatic": _non_empty({"limit": step.retries})}),
        "soft_fail": step.soft_fail,
        "parallelism": step.parallelism,
        "matrix": matrix[ONLY_DIMENSION] if list(matrix) == [ONLY_DIMENSION] else _non_empty({"setup": matrix}),
        "env": step.env,
        "artifact_paths": step.artifact_paths,
        "timeout_in_minutes": step.timeout_in_minutes,
    }


def _agents(step: PipelineStep) -> Body | list[str]:
    queue = {} if step.queue == "default" else {"queue": step.queue}
    return rules_of(step) if step.agent_query_rules else queue


def rules_of(step: PipelineStep) -> list[str]:
    """Return the query rules of a step, such as `queue=docker`."""
    return [*([] if step.queue == "default" else [f"queue={step.queue}"]), *step.agent_query_rules]


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
            return _trigger_json(step)
        case "script":
            return _script_json(step)


def _script_json(step: PipelineStep) -> Body:
    return {
        "type": "script",
        "name": step.label or None,
        "command": step.command,
        "artifact_paths": step.artifact_paths,
        "branch_configuration": step.branches or "",
        "env": step.env,
        "timeout_in_minutes": step.timeout_in_minutes,
        "agent_query_rules": rules_of(step),
        "concurrency": None,
        "parallelism": step.parallelism,
    }


def _trigger_json(step: PipelineStep) -> Body:
    assert step.trigger is not None
    trigger = step.trigger
    return {
        "type": "trigger",
        "label": step.label,
        "pipeline": trigger.slug,
        "build": _triggered_build(trigger),
        "async": trigger.is_async,
        "branch_configuration": step.branches,
        "concurrency": None,
        "parallelism": None,
    }
