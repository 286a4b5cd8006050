"""Convert the YAML or the visual steps of a pipeline to steps."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from buildframe.errors import BadInput
from buildframe.sandbox_server.pipeline_yaml import yaml_reader
from buildframe.sandbox_server.pipeline_yaml.yaml_reader import FALSE, InvalidYaml, YamlMap
from buildframe.sandbox_server.world.steps import ONLY_DIMENSION, UPLOAD, PipelineStep, Plan, StepKind, Trigger

MAX_JOBS = 500
MAX_RETRIES = 10

_DEFAULT_RETRIES = 2
_BARE_STEPS = frozenset({"wait", "waiter", "block", "manual", "input"})  # steps that may be nothing but their name


class ParsedSteps(NamedTuple):
    """The steps of a configuration and the attributes that it uses, or the problem with it.

    `attributes` are the names at the top level (`env`), and those of steps after `steps.` (`steps.command`).
    """

    steps: tuple[PipelineStep, ...] = ()
    attributes: frozenset[str] = frozenset()
    problem: str | None = None


def parse_configuration(text: str) -> ParsedSteps:
    """Parse the YAML of a pipeline: a list of steps, or a map with `steps`."""
    try:
        whole = yaml_reader.parse_yaml(text)
        top = whole if isinstance(whole, YamlMap) else YamlMap(steps=whole)
        items = _items(top)
        steps = _checked(_with_defaults(top, tuple(_flat(items))))
        return ParsedSteps(steps, frozenset(top) | {f"steps.{name}" for name in _names(items)})
    except InvalidYaml as why:
        return ParsedSteps(problem=str(why))


def parse_visual_steps(items: Sequence[Mapping[str, Any]]) -> ParsedSteps:
    """Convert visual steps, whose types were validated before."""
    try:
        return ParsedSteps(_checked(tuple(map(_visual, items))))
    except InvalidYaml as why:
        return ParsedSteps(problem=str(why))


def _checked(steps: tuple[PipelineStep, ...]) -> tuple[PipelineStep, ...]:
    """Validate steps and set missing keys."""
    jobs = sum((step.parallelism or 1) * math.prod(map(len, (step.matrix or {}).values())) for step in steps)
    if not 0 < jobs <= MAX_JOBS:
        raise InvalidYaml(f"The steps must make at least 1 job and at most {MAX_JOBS}.")
    if any(step.key == UPLOAD for step in steps):
        raise InvalidYaml(f"The key `{UPLOAD}` is that of the step that uploads a pipeline.")
    steps = _keyed(steps)
    try:
        Plan(steps)
    except BadInput as why:
        raise InvalidYaml(str(why)) from None
    return steps


def _keyed(steps: tuple[PipelineStep, ...]) -> tuple[PipelineStep, ...]:
    """Set missing keys from labels or positions, and replace groups in dependencies by their steps."""
    taken = {UPLOAD, *(step.key for step in steps)}
    groups: dict[str, list[str]] = {}
    keyed = []
    for place, step in enumerate(steps, 1):
        by_place = f"{'wait' if step.kind == 'waiter' else 'step'}-{place}"
        names = itertools.chain((_slug(step.label), by_place), (f"{by_place}-{n}" for n in itertools.count(2)))
        key = step.key or next(name for name in names if name and name not in taken)
        taken.add(key)
        groups.setdefault(step.group or "", []).append(key)
        keyed.append(replace(step, key=key))
    members = groups | {step.key: [step.key] for step in keyed}
    needs = [[key for need in step.needs for key in members.get(need, [need])] for step in keyed]
    named = {step.key for step in steps}.union(*needs)
    return tuple(
        replace(step, needs=tuple(dict.fromkeys(keys)), has_key=step.key in named)
        for step, keys in zip(keyed, needs, strict=True)
    )


def _slug(label: str) -> str:
    """Derive a key from a label: `:npm: Unit tests` becomes `unit-tests`."""
    plain = re.sub(r":[\w+-]+:", " ", label)
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")


# --- YAML ---


def _items(item: YamlMap) -> list[Any]:
    steps = item.get("steps")
    if not isinstance(steps, list) or not steps:
        raise item.wrong("steps", "a list of at least one step")
    return steps


def _names(items: Sequence[Any]) -> Iterator[str]:
    """Yield the names of the attributes that steps use."""
    for item in items:
        yield from item if isinstance(item, YamlMap) else (item,)
        if _is_group(item):
            yield from _names(item["steps"])


def _is_group(item: Any) -> bool:
    return isinstance(item, YamlMap) and "group" in item


def _flat(items: Sequence[Any]) -> Iterator[PipelineStep]:
    for item in items:
        if not _is_group(item):
            yield _step(item)
            continue
        group, needs = _key(item) or _slug(item.text("group", "label", "name")) or "group", _needs(item)
        for inner in _items(item):
            if _is_group(inner):
                raise InvalidYaml(f"line {inner.line}: a group cannot be in another.")
            step = _step(inner)
            yield replace(step, group=group, needs=step.needs or needs)


def _step(item: Any) -> PipelineStep:
    if isinstance(item, str) and item in _BARE_STEPS:
        item = YamlMap({item: None})
    if not isinstance(item, YamlMap):
        raise InvalidYaml("A step must be a map, or one of `wait`, `block`, `input`.")
    kind: StepKind | None = next((_KINDS[name] for name in item if name in _KINDS), None)
    if kind is None:
        raise InvalidYaml(f"line {item.line}: a step must have one of: {', '.join(_KINDS)}, group.")
    attributes = {name: read(item) for name, read in _ATTRIBUTES[kind].items()}
    agents = _agents(item) if kind == "script" else {}
    return PipelineStep(kind=kind, **attributes | agents | {"key": _key(item), "needs": _needs(item)})


def _with_defaults(top: YamlMap, steps: tuple[PipelineStep, ...]) -> tuple[PipelineStep, ...]:
    """Apply the environment and the agents of the top level to all steps."""
    env, agents = _env(top), _agents(top)
    filled = []
    for step in steps:
        has_agents = step.queue != "default" or step.agent_query_rules
        more = {"env": env | step.env} | ({} if has_agents else agents)
        filled.append(replace(step, **more) if step.kind == "script" else step)
    return tuple(filled)


# --- attributes of steps ---


def _key(item: YamlMap) -> str:
    key = item.text("key", "id", "identifier")
    if not re.fullmatch(r"[A-Za-z0-9_:-]{0,100}", key):
        raise item.wrong("key", "at most 100 letters, digits, hyphens, underscores and colons")
    return key


def _env(item: YamlMap) -> dict[str, str]:
    env = item.map("env")
    return {name: env.text(name) for name in env}


def _soft_fail(item: YamlMap) -> bool:
    """Return whether failures are soft; a list of exit statuses counts as all of them."""
    statuses = item.get("soft_fail")
    return bool(statuses) if isinstance(statuses, list) else item.flag("soft_fail")


def _is_skipped(item: YamlMap) -> bool:
    """Return whether a step is skipped. A reason counts as yes; conditions count as true unless they are `false`."""
    return item.text("skip").lower() not in FALSE or item.text("if").strip().lower() == "false"


def _needs(item: YamlMap) -> tuple[str, ...]:
    value = item.get("depends_on")
    values = value if isinstance(value, list) else [] if value is None else [value]
    needs = [each.text("step") if isinstance(each, YamlMap) else each for each in values]
    if not all(isinstance(need, str) and need for need in needs):
        raise item.wrong("depends_on", "the key of a step, or a list of keys")
    return tuple(dict.fromkeys(needs))


def _agents(item: YamlMap) -> dict[str, Any]:
    """Return the queue, which a rule such as `queue=docker` names, and the rules.

    A rule that names another queue than the default one is left out if it is the first: see
    `PipelineStep.rules`.
    """
    value = item.get("agents")
    rules = [f"{tag}={value.text(tag)}" for tag in value] if isinstance(value, YamlMap) else item.texts("agents")
    queues = [rule.removeprefix("queue=") for rule in rules if rule.startswith("queue=")]
    queue = next(filter(None, queues), "default")
    is_implied = len(queues) == 1 and queue != "default" and rules[0] == f"queue={queue}"
    return {"queue": queue, "agent_query_rules": tuple(rules[1:] if is_implied else rules)}


def _retries(item: YamlMap) -> int:
    """Return the number of automatic retries: the largest limit of several rules."""
    retry = item.map("retry")
    automatic = retry.get("automatic")
    rules = automatic if isinstance(automatic, list) else [automatic]
    limits = [rule.number("limit") for rule in rules if isinstance(rule, YamlMap)]
    if isinstance(automatic, list | YamlMap):
        return max((_DEFAULT_RETRIES if limit is None else min(limit, MAX_RETRIES) for limit in limits), default=0)
    return _DEFAULT_RETRIES if retry.flag("automatic") else 0


def _matrix(item: YamlMap) -> dict[str, tuple[str, ...]] | None:
    """Return the values of each dimension; adjustments are ignored."""
    value = item.get("matrix")
    value = value.get("setup") if isinstance(value, YamlMap) else value
    if value is None:
        return None
    dimensions = value if isinstance(value, YamlMap) else YamlMap({ONLY_DIMENSION: value})
    matrix = {name: tuple(dimensions.texts(name)) for name in dimensions}
    if not matrix or not all(matrix.values()):
        raise item.wrong("matrix", "a list of values, or `setup` with a list for each dimension")
    return matrix


def _trigger(item: YamlMap) -> Trigger:
    if not item.text("trigger"):
        raise item.wrong("trigger", "the slug of a pipeline")
    build = item.map("build")
    replaced = {name: build.text(name) or None for name in ("message", "branch", "commit")}
    return Trigger(slug=item.text("trigger"), **replaced, env=_env(build), is_async=item.flag("async"))


_KINDS: dict[str, StepKind] = {
    "command": "script", "commands": "script", "script": "script", "plugins": "script", "wait": "waiter",
    "waiter": "waiter", "block": "manual", "manual": "manual", "input": "manual", "trigger": "trigger",
}  # fmt: skip
"""The kind of a step with an attribute of this name; the first attribute counts."""

_LABEL = {"label": lambda item: item.text("label", "name")}
_CONDITIONS = {"branches": lambda item: " ".join(item.texts("branches")) or None, "skip": _is_skipped}
_ATTRIBUTES: dict[StepKind, dict[str, Callable[[YamlMap], Any]]] = {
    "script": _LABEL
    | _CONDITIONS
    | {
        "command": lambda item: "\n".join(item.texts("command") or item.texts("commands") or item.texts("script")),
        "priority": lambda item: item.number("priority", least=-1000) or 0,
        "retries": _retries,
        "soft_fail": _soft_fail,
        "parallelism": lambda item: item.number("parallelism", least=1),
        "matrix": _matrix,
        "env": _env,
        "artifact_paths": lambda item: ";".join(item.texts("artifact_paths")),
        "timeout_in_minutes": lambda item: item.number("timeout_in_minutes") or None,
    },
    "waiter": {"continue_on_failure": lambda item: item.flag("continue_on_failure")},
    "manual": _CONDITIONS | {"label": lambda item: item.text("block", "input", "manual", "label", "name")},
    "trigger": {"trigger": _trigger} | _LABEL | _CONDITIONS | {"soft_fail": _soft_fail},
}
"""How each attribute is read, by the kind of the step."""


# --- visual steps ---


def _visual(item: Mapping[str, Any]) -> PipelineStep:
    """Convert a visual step as if it were written in YAML."""
    match item["type"]:
        case "waiter":
            return _step("wait")
        case "manual":
            return _step(YamlMap(block=item.get("label", "")))
        case "trigger":
            if not item.get("trigger_project_slug"):
                raise InvalidYaml("A trigger step must have `trigger_project_slug`.")
            build = YamlMap(commit=item.get("trigger_commit"), branch=item.get("trigger_branch"))
            written = {"trigger": item["trigger_project_slug"], "label": item.get("label"), "build": build}
            return _step(YamlMap(written | {"async": str(item.get("trigger_async", False))}))
    return _step(
        YamlMap(
            label=item.get("name"),
            command=item.get("command"),
            artifact_paths=item.get("artifact_paths"),
            branches=item.get("branch_configuration"),
            env=YamlMap(item.get("env", {})),
            timeout_in_minutes=str(item.get("timeout_in_minutes", 0)),
            agents=list(item.get("agent_query_rules", ())),
        )
    )
