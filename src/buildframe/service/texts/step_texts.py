"""Steps as the service tells them: as YAML, and one by one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import yaml  # type: ignore[import-untyped]  # its stubs are not among our tools

from buildframe.service.world.steps import ONLY_DIMENSION, UPLOAD, Step

Body = dict[str, Any]


def text_of(steps: Sequence[Step]) -> str:
    """Steps as YAML, without the one that uploads the others; reading it gives them again, but for their run time."""
    first = int(steps[0].key == UPLOAD)
    text: str = yaml.dump({"steps": _grouped(steps[first:])}, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # it has no types
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.Node:
        """Quoted where a character would else be read back as the end of a line."""
        quote = '"' if re.search("[\x85\u2028\u2029\ufeff]", text) else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=quote)


_Dumper.add_representer(str, _Dumper.represent_text)


def _grouped(steps: Sequence[Step]) -> list[Any]:
    """Steps as values, neighbours in a group together."""
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


def _value(step: Step, place: int) -> Any:
    common = {"depends_on": list(step.needs), "branches": step.branches, "skip": step.skip}
    named = _given({"key": step.key, "label": step.label})
    match step.kind:
        case "waiter" if step.key == f"wait-{place}" and not (step.needs or step.continue_on_failure):
            return "wait"
        case "waiter":
            return {"wait": None} | named | _given(common | {"continue_on_failure": step.continue_on_failure})
        case "manual":
            return {"block": step.label, "key": step.key} | _given(common)
        case "trigger":
            return named | _given(_of_trigger(step) | common)
        case "script":
            return named | {"command": step.command} | _given(common | _of_script(step))


def _of_trigger(step: Step) -> Body:
    assert step.trigger is not None
    trigger = step.trigger
    build = {"message": trigger.message, "branch": trigger.branch, "commit": trigger.commit, "env": trigger.env}
    return {
        "trigger": trigger.slug,
        "async": trigger.is_async,
        "build": _given(build),
        "soft_fail": step.soft_fail,
    }


def _of_script(step: Step) -> Body:
    matrix = {name: list(values) for name, values in (step.matrix or {}).items()}
    return {
        "agents": _agents(step),
        "priority": step.priority,
        "retry": _given({"automatic": _given({"limit": step.retries})}),
        "soft_fail": step.soft_fail,
        "parallelism": step.parallelism,
        "matrix": matrix[ONLY_DIMENSION] if list(matrix) == [ONLY_DIMENSION] else _given({"setup": matrix}),
        "env": step.env,
        "artifact_paths": step.artifact_paths,
        "timeout_in_minutes": step.timeout_in_minutes,
    }


def _agents(step: Step) -> Body | list[str]:
    queue = {} if step.queue == "default" else {"queue": step.queue}
    return rules_of(step) if step.agent_query_rules else queue


def rules_of(step: Step) -> list[str]:
    """What a step asks of agents, such as `queue=docker`."""
    return [*([] if step.queue == "default" else [f"queue={step.queue}"]), *step.agent_query_rules]


def _given(values: Body) -> Body:
    """Without what is empty."""
    return {name: value for name, value in values.items() if value}


def told(step: Step) -> Body:
    """A step as it is told among a pipeline's `steps`."""
    match step.kind:
        case "waiter":
            return {"type": "waiter"}
        case "manual":
            return {"type": "manual", "label": step.label}
        case "trigger":
            return _told_trigger(step)
        case "script":
            return _told_script(step)


def _told_script(step: Step) -> Body:
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


def _told_trigger(step: Step) -> Body:
    assert step.trigger is not None
    trigger = step.trigger
    return {
        "type": "trigger",
        "label": step.label,
        "pipeline": trigger.slug,
        "build": {
            "message": trigger.message,
            "branch": trigger.branch,
            "commit": trigger.commit,
            "env": trigger.env,
        },
        "async": trigger.is_async,
        "branch_configuration": step.branches,
        "concurrency": None,
        "parallelism": None,
    }
