"""The steps that a pipeline's YAML, or its visual steps, describe."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from buildframe.errors import BadInput
from buildframe.service.texts import yaml_text
from buildframe.service.texts.yaml_text import FALSE, Map, Unreadable
from buildframe.service.world.steps import ONLY_DIMENSION, UPLOAD, Plan, Step, Trigger

MOST_JOBS = 500
MOST_RETRIES = 10

_RETRIES_IF_NOT_TOLD = 2
_WORDS = frozenset({"wait", "waiter", "block", "manual", "input"})  # steps that may be nothing but their name


class Read(NamedTuple):
    """The steps of a configuration and the attributes that it uses, or what is wrong with it.

    `attributes` are the names at the top (`env`), and those of steps after `steps.` (`steps.command`).
    """

    steps: tuple[Step, ...] = ()
    attributes: frozenset[str] = frozenset()
    problem: str | None = None


def read(text: str) -> Read:
    """What a YAML text describes: a list of steps, or a map with `steps`."""
    try:
        whole = yaml_text.read(text)
        top = whole if isinstance(whole, Map) else Map(steps=whole)
        items = _items(top)
        steps = _checked(_with_defaults(top, tuple(_flat(items))))
        return Read(steps, frozenset(top) | {f"steps.{name}" for name in _names(items)})
    except Unreadable as why:
        return Read(problem=str(why))


def read_visual(items: Sequence[Mapping[str, Any]]) -> Read:
    """What visual steps describe; that they are as declared was checked before."""
    try:
        return Read(_checked(tuple(map(_visual, items))))
    except Unreadable as why:
        return Read(problem=str(why))


def _checked(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps with all their keys, if a plan can be made of them."""
    jobs = sum((step.parallelism or 1) * math.prod(map(len, (step.matrix or {}).values())) for step in steps)
    if not 0 < jobs <= MOST_JOBS:
        raise Unreadable(f"The steps must make at least 1 job and at most {MOST_JOBS}.")
    if any(step.key == UPLOAD for step in steps):
        raise Unreadable(f"The key `{UPLOAD}` is that of the step that uploads a pipeline.")
    steps = _keyed(steps)
    try:
        Plan(steps)
    except BadInput as why:
        raise Unreadable(str(why)) from None
    return steps


def _keyed(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps, each with a key: its own, else one made from its label or its place. Groups needed become steps."""
    taken = {UPLOAD, *(step.key for step in steps)}
    keys: list[str] = []
    for place, step in enumerate(steps, 1):
        keys.append(step.key or next(key for key in _possible_keys(step, place) if key not in taken))
        taken.add(keys[-1])
    return tuple(
        msgspec.structs.replace(step, key=key, needs=_with_groups(step.needs, keys, steps))
        for key, step in zip(keys, steps, strict=True)
    )


def _possible_keys(step: Step, place: int) -> Iterator[str]:
    by_place = f"{'wait' if step.kind == 'waiter' else 'step'}-{place}"
    yield from (key for key in (_slug(step.label), by_place) if key)
    yield from (f"{by_place}-{number}" for number in itertools.count(2))


def _with_groups(needs: Sequence[str], keys: Sequence[str], steps: Sequence[Step]) -> tuple[str, ...]:
    found: list[str] = []
    for need in needs:
        members = [key for key, step in zip(keys, steps, strict=True) if step.group == need]
        found += [need] if need in keys or not members else members
    return tuple(dict.fromkeys(found))


def _slug(label: str) -> str:
    """A label as a key: `:npm: Unit tests` becomes `unit-tests`."""
    plain = re.sub(r":[\w+-]+:", " ", label)
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")


# --- YAML ---


def _items(item: Map) -> list[Any]:
    steps = item.get("steps")
    if not isinstance(steps, list) or not steps:
        raise item.wrong("steps", "a list of at least one step")
    return steps


def _names(items: Sequence[Any]) -> Iterator[str]:
    """The names of the attributes that steps use."""
    for item in items:
        yield from item if isinstance(item, Map) else (item,)
        if isinstance(item, Map) and "group" in item:
            yield from _names(item["steps"])


def _flat(items: Sequence[Any]) -> Iterator[Step]:
    for item in items:
        if isinstance(item, Map) and "group" in item:
            yield from _of_group(item)
        else:
            yield _step(item)


def _of_group(item: Map) -> Iterator[Step]:
    group, needs = _key(item) or _slug(item.text("group", "label", "name")) or "group", _needs(item)
    for inner in _items(item):
        if isinstance(inner, Map) and "group" in inner:
            raise Unreadable(f"line {inner.line}: a group cannot be in another.")
        step = _step(inner)
        yield msgspec.structs.replace(step, group=group, needs=step.needs or needs)


def _step(item: Any) -> Step:
    if isinstance(item, str) and item in _WORDS:
        item = Map({item: None})
    if not isinstance(item, Map):
        raise Unreadable("A step must be a map, or one of `wait`, `block`, `input`.")
    make = next((_MAKERS[name] for name in item if name in _MAKERS), None)
    if make is None:
        raise Unreadable(f"line {item.line}: a step must have one of: {', '.join(_MAKERS)}, group.")
    return msgspec.structs.replace(make(item), key=_key(item), needs=_needs(item))


def _script(item: Map) -> Step:
    queue, rules = _agents(item)
    return Step(
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


def _waiter(item: Map) -> Step:
    return Step(key="", kind="waiter", continue_on_failure=item.flag("continue_on_failure"))


def _manual(item: Map) -> Step:
    label = item.text("block", "input", "manual") or _label(item)
    return Step(key="", kind="manual", label=label, branches=_branches(item), skip=_is_skipped(item))


def _trigger(item: Map) -> Step:
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
    return Step(
        key="",
        kind="trigger",
        label=_label(item),
        branches=_branches(item),
        soft_fail=_soft_fail(item),
        skip=_is_skipped(item),
        trigger=trigger,
    )


_MAKERS: dict[str, Callable[[Map], Step]] = {
    "command": _script,
    "commands": _script,
    "script": _script,
    "plugins": _script,
    "wait": _waiter,
    "waiter": _waiter,
    "block": _manual,
    "manual": _manual,
    "input": _manual,
    "trigger": _trigger,
}
"""What makes a step that has an attribute of this name; the first of its names counts."""


def _with_defaults(top: Map, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps with the environment and the agents that are given for all of them."""
    env, (queue, rules) = _env(top), _agents(top)

    def filled(step: Step) -> Step:
        if step.queue == "default" and not step.agent_query_rules:
            step = msgspec.structs.replace(step, queue=queue, agent_query_rules=rules)
        return msgspec.structs.replace(step, env=env | step.env)

    return tuple(filled(step) if step.kind == "script" else step for step in steps)


# --- attributes of steps ---


def _key(item: Map) -> str:
    key = item.text("key", "id", "identifier")
    if not re.fullmatch(r"[A-Za-z0-9_:-]{0,100}", key):
        raise item.wrong("key", "at most 100 letters, digits, hyphens, underscores and colons")
    return key


def _label(item: Map) -> str:
    return item.text("label", "name")


def _branches(item: Map) -> str | None:
    return " ".join(item.texts("branches")) or None


def _env(item: Map) -> dict[str, str]:
    env = item.map("env")
    return {name: env.text(name) for name in env}


def _soft_fail(item: Map) -> bool:
    """Whether a failure may be; some exit statuses count as all."""
    statuses = item.get("soft_fail")
    return bool(statuses) if isinstance(statuses, list) else item.flag("soft_fail")


def _is_skipped(item: Map) -> bool:
    """Whether a step is left out; a reason counts as yes. Conditions count as true unless they are plainly false."""
    return item.text("skip").lower() not in FALSE or item.text("if").strip().lower() == "false"


def _needs(item: Map) -> tuple[str, ...]:
    value = item.get("depends_on")
    values = value if isinstance(value, list) else [] if value is None else [value]
    needs = [each.text("step") if isinstance(each, Map) else each for each in values]
    if not all(isinstance(need, str) and need for need in needs):
        raise item.wrong("depends_on", "the key of a step, or a list of keys")
    return tuple(dict.fromkeys(needs))


def _agents(item: Map) -> tuple[str, tuple[str, ...]]:
    asked = item.get("agents")
    rules = [f"{tag}={asked.text(tag)}" for tag in asked] if isinstance(asked, Map) else item.texts("agents")
    return _queue_and_rules(rules)


def _queue_and_rules(rules: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The queue that rules such as `queue=docker` ask for, and the other rules."""
    queues = [rule.removeprefix("queue=") for rule in rules if rule.startswith("queue=")]
    others = [rule for rule in rules if not rule.startswith("queue=")]
    return next(filter(None, queues), "default"), tuple(others)


def _retries(retry: Map) -> int:
    """How often a failure is repeated by itself; the most generous of several rules counts."""
    automatic = retry.get("automatic")
    rules = automatic if isinstance(automatic, list) else [automatic]
    limits = [_limit(rule) for rule in rules if isinstance(rule, Map)]
    if isinstance(automatic, list | Map):
        return max(limits, default=0)
    return _RETRIES_IF_NOT_TOLD if retry.flag("automatic") else 0


def _limit(rule: Map) -> int:
    limit = rule.number("limit")
    return _RETRIES_IF_NOT_TOLD if limit is None else min(limit, MOST_RETRIES)


def _matrix(item: Map) -> dict[str, tuple[str, ...]] | None:
    """The values of each dimension; adjustments of single combinations do not count."""
    asked = item.get("matrix")
    asked = asked.get("setup") if isinstance(asked, Map) else asked
    if asked is None:
        return None
    dimensions = asked if isinstance(asked, Map) else Map({ONLY_DIMENSION: asked})
    matrix = {name: tuple(dimensions.texts(name)) for name in dimensions}
    if not matrix or not all(matrix.values()):
        raise item.wrong("matrix", "a list of values, or `setup` with a list for each dimension")
    return matrix


# --- visual steps ---


def _visual(item: Mapping[str, Any]) -> Step:
    match item["type"]:
        case "waiter":
            return Step(key="", kind="waiter")
        case "manual":
            return Step(key="", kind="manual", label=item.get("label", ""))
        case "trigger":
            return Step(key="", kind="trigger", label=item.get("label", ""), trigger=_visual_trigger(item))
    queue, rules = _queue_and_rules(item.get("agent_query_rules", ()))
    return Step(
        key="",
        label=item.get("name", ""),
        command=item.get("command", ""),
        artifact_paths=item.get("artifact_paths", ""),
        branches=item.get("branch_configuration") or None,
        env=dict(item.get("env", {})),
        timeout_in_minutes=_minutes(item),
        queue=queue,
        agent_query_rules=rules,
    )


def _visual_trigger(item: Mapping[str, Any]) -> Trigger:
    if not item.get("trigger_project_slug"):
        raise Unreadable("A trigger step must have `trigger_project_slug`.")
    return Trigger(
        slug=item["trigger_project_slug"],
        commit=item.get("trigger_commit") or None,
        branch=item.get("trigger_branch") or None,
        is_async=item.get("trigger_async", False),
    )


def _minutes(item: Mapping[str, Any]) -> int | None:
    minutes: int = item.get("timeout_in_minutes", 0)
    if not 0 <= minutes <= 1_000_000:
        raise Unreadable("`timeout_in_minutes` must be a whole number from 0 to 1000000.")
    return minutes or None
