"""Convert the YAML or the visual steps of a pipeline to steps."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from buildframe.errors import BadInput
from buildframe.sandbox_server.pipeline_yaml import yaml_reader
from buildframe.sandbox_server.pipeline_yaml.yaml_reader import FALSE, InvalidYaml, YamlMap
from buildframe.sandbox_server.world.steps import ONLY_DIMENSION, UPLOAD, PipelineStep, Plan, Trigger

MOST_JOBS = 500
MOST_RETRIES = 10

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
    if not 0 < jobs <= MOST_JOBS:
        raise InvalidYaml(f"The steps must make at least 1 job and at most {MOST_JOBS}.")
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
    keys: list[str] = []
    for place, step in enumerate(steps, 1):
        keys.append(step.key or next(key for key in _possible_keys(step, place) if key not in taken))
        taken.add(keys[-1])
    return tuple(
        msgspec.structs.replace(step, key=key, needs=_with_groups(step.needs, keys, steps))
        for key, step in zip(keys, steps, strict=True)
    )


def _possible_keys(step: PipelineStep, place: int) -> Iterator[str]:
    by_place = f"{'wait' if step.kind == 'waiter' else 'step'}-{place}"
    yield from (key for key in (_slug(step.label), by_place) if key)
    yield from (f"{by_place}-{number}" for number in itertools.count(2))


def _with_groups(needs: Sequence[str], keys: Sequence[str], steps: Sequence[PipelineStep]) -> tuple[str, ...]:
    keys_needed: list[str] = []
    for need in needs:
        members = [key for key, step in zip(keys, steps, strict=True) if step.group == need]
        keys_needed += [need] if need in keys or not members else members
    return tuple(dict.fromkeys(keys_needed))


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
        if isinstance(item, YamlMap) and "group" in item:
            yield from _names(item["steps"])


def _flat(items: Sequence[Any]) -> Iterator[PipelineStep]:
    for item in items:
        if isinstance(item, YamlMap) and "group" in item:
            yield from _of_group(item)
        else:
            yield _step(item)


def _of_group(item: YamlMap) -> Iterator[PipelineStep]:
    group, needs = _key(item) or _slug(item.text("group", "label", "name")) or "group", _needs(item)
    for inner in _items(item):
        if isinstance(inner, YamlMap) and "group" in inner:
            raise InvalidYaml(f"line {inner.line}: a group cannot be in another.")
        step = _step(inner)
        yield msgspec.structs.replace(step, group=group, needs=step.needs or needs)


def _step(item: Any) -> PipelineStep:
    if isinstance(item, str) and item in _BARE_STEPS:
        item = YamlMap({item: None})
    if not isinstance(item, YamlMap):
        raise InvalidYaml("A step must be a map, or one of `wait`, `block`, `input`.")
    make = next((_MAKERS[name] for name in item if name in _MAKERS), None)
    if make is None:
        raise InvalidYaml(f"line {item.line}: a step must have one of: {', '.join(_MAKERS)}, group.")
    return msgspec.structs.replace(make(item), key=_key(item), needs=_needs(item))


def _script(item: YamlMap) -> PipelineStep:
    queue, rules = _agents(item)
    return PipelineStep(
        key="",
        label=_label(item),
        command="\n".join(item.texts("command") or item.texts("commands") or item.texts("script")),
        queue=queue,
        agent_query_rules=rules,
        branches=_branches(item),
        priority=item.number("priority", least=-1000) or 0,
        retries=_retries(item.map("retry")),
        soft_fail=_soft_fail(item),
        parallelism=item.number("parallelism", least=1),
        matrix=_matrix(item),
        env=_env(item),
        artifact_paths=";".join(item.texts("artifact_paths")),
        timeout_in_minutes=item.number("timeout_in_minutes") or None,
        skip=_is_skipped(item),
    )


def _waiter(item: YamlMap) -> PipelineStep:
    return PipelineStep(key="", kind="waiter", continue_on_failure=item.flag("continue_on_failure"))


def _manual(item: YamlMap) -> PipelineStep:
    label = item.text("block", "input", "manual") or _label(item)
    return PipelineStep(key="", kind="manual", label=label, branches=_branches(item), skip=_is_skipped(item))


def _trigger(item: YamlMap) -> PipelineStep:
    if not item.text("trigger"):
        raise item.wrong("trigger", "the slug of a pipeline")
    build = item.map("build")
    trigger = Trigger(
        slug=item.text("trigger"),
        message=build.text("message") or None,
        branch=build.text("branch") or None,
        commit=build.text("commit") or None,
        env=_env(build),
        is_async=item.flag("async"),
    )
    return PipelineStep(
        key="",
        kind="trigger",
        label=_label(item),
        branches=_branches(item),
        soft_fail=_soft_fail(item),
        skip=_is_skipped(item),
        trigger=trigger,
    )


_MAKERS: dict[str, Callable[[YamlMap], PipelineStep]] = {
    **dict.fromkeys(("command", "commands", "script", "plugins"), _script),
    **dict.fromkeys(("wait", "waiter"), _waiter),
    **dict.fromkeys(("block", "manual", "input"), _manual),
    "trigger": _trigger,
}
"""The function that creates a step with an attribute of this name; the first attribute counts."""


def _with_defaults(top: YamlMap, steps: tuple[PipelineStep, ...]) -> tuple[PipelineStep, ...]:
    """Apply the environment and the agents of the top level to all steps."""
    env, (queue, rules) = _env(top), _agents(top)

    def filled(step: PipelineStep) -> PipelineStep:
        if step.queue == "default" and not step.agent_query_rules:
            step = msgspec.structs.replace(step, queue=queue, agent_query_rules=rules)
        return msgspec.structs.replace(step, env=env | step.env)

    return tuple(filled(step) if step.kind == "script" else step for step in steps)


# --- attributes of steps ---


def _key(item: YamlMap) -> str:
    key = item.text("key", "id", "identifier")
    if not re.fullmatch(r"[A-Za-z0-9_:-]{0,100}", key):
        raise item.wrong("key", "at most 100 letters, digits, hyphens, underscores and colons")
    return key


def _label(item: YamlMap) -> str:
    return item.text("label", "name")


def _branches(item: YamlMap) -> str | None:
    return " ".join(item.texts("branches")) or None


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


def _agents(item: YamlMap) -> tuple[str, tuple[str, ...]]:
    """Return the queue (`queue=docker`) and the other query rules."""
    value = item.get("agents")
    rules = [f"{tag}={value.text(tag)}" for tag in value] if isinstance(value, YamlMap) else item.texts("agents")
    queues = [rule.removeprefix("queue=") for rule in rules if rule.startswith("queue=")]
    others = [rule for rule in rules if not rule.startswith("queue=")]
    return next(filter(None, queues), "default"), tuple(others)


def _retries(retry: YamlMap) -> int:
    """Return the number of automatic retries: the largest limit of several rules."""
    automatic = retry.get("automatic")
    rules = automatic if isinstance(automatic, list) else [automatic]
    limits = [_limit(rule) for rule in rules if isinstance(rule, YamlMap)]
    if isinstance(automatic, list | YamlMap):
        return max(limits, default=0)
    return _DEFAULT_RETRIES if retry.flag("automatic") else 0


def _limit(rule: YamlMap) -> int:
    limit = rule.number("limit")
    return _DEFAULT_RETRIES if limit is None else min(limit, MOST_RETRIES)


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


# --- visual steps ---


def _visual(item: Mapping[str, Any]) -> PipelineStep:
    """Convert a visual step as if it were written in YAML."""
    match item["type"]:
        case "waiter":
            return _step("wait")
        case "manual":
            return _step(YamlMap(block=item.get("label", "")))
        case "trigger":
            return _step(_visual_trigger(item))
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


def _visual_trigger(item: Mapping[str, Any]) -> YamlMap:
    if not item.get("trigger_project_slug"):
        raise InvalidYaml("A trigger step must have `trigger_project_slug`.")
    build = YamlMap(commit=item.get("trigger_commit"), branch=item.get("trigger_branch"))
    is_async = str(item.get("trigger_async", False))
    return YamlMap(
        {"trigger": item["trigger_project_slug"], "label": item.get("label"), "build": build, "async": is_async}
    )
