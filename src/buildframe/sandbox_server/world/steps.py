"""Steps of pipelines, and the plans made from them: which jobs there are and how they depend on each other."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Literal

import msgspec

from buildframe.errors import BadInput
from buildframe.spec.decoders import convert

UPLOAD = "upload"
"""Key of the step that uploads the others, if a pipeline begins with one."""

ONLY_DIMENSION = "matrix"
"""Name of the dimension of a matrix without named dimensions."""

StepKind = Literal["script", "waiter", "manual", "trigger"]


class Trigger(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The pipeline that a trigger step builds, and the values that replace those of the triggering build."""

    slug: str
    message: str | None = None
    branch: str | None = None
    commit: str | None = None
    env: dict[str, str] = {}
    is_async: bool = False


class PipelineStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of a pipeline: its configuration and its median run time (`seconds`).

    `has_key` is false if the configuration sets no key, so that jobs have no `step_key`; `key` then
    is internal. `branches` is a branch filter (see `rules.matches`), `retries` the number of
    automatic retries, `agent_query_rules` what agents must match in addition to the queue; if one
    of them names the queue, they are all rules as they were written. `continue_on_failure` is for
    wait steps only.
    """

    key: str
    has_key: bool = True
    kind: StepKind = "script"
    label: str = ""
    command: str = ""
    needs: tuple[str, ...] = ()
    queue: str = "default"
    branches: str | None = None
    priority: int = 0
    retries: int = 0
    group: str | None = None
    seconds: float = 30.0
    soft_fail: bool = False
    parallelism: int | None = None
    matrix: dict[str, tuple[str, ...]] | None = None
    env: dict[str, str] = {}
    artifact_paths: str = ""
    timeout_in_minutes: int | None = None
    agent_query_rules: tuple[str, ...] = ()
    continue_on_failure: bool = False
    skip: bool = False
    trigger: Trigger | None = None

    @property
    def rules(self) -> tuple[str, ...]:
        """All query rules that an agent must match, such as `queue=docker`."""
        if any(rule.startswith("queue=") for rule in self.agent_query_rules):
            return self.agent_query_rules
        return self.agent_query_rules if self.queue == "default" else (f"queue={self.queue}", *self.agent_query_rules)


class Slot(msgspec.Struct, frozen=True):
    """One job that a step creates. Parallel steps have `index` and `total`, matrix steps `matrix`."""

    id: str
    step: PipelineStep
    index: int | None = None
    total: int | None = None
    matrix: dict[str, str] | None = None


class Plan:
    """The steps of a build, and the dependencies of their jobs.

    `uploads`: the first step adds the others when it has run. `slots`: the jobs by id, in order. `needs`: the slots
    that a slot depends on. `dependents`: the slots that depend on a slot. Raises `BadInput` if steps share a key,
    need a step that does not exist, or depend on each other in a cycle.
    """

    def __init__(self, steps: tuple[PipelineStep, ...]) -> None:
        builtins = msgspec.to_builtins(steps)  # 55 and 55.0 are one
        self.steps = steps = convert(builtins, tuple[PipelineStep, ...])
        self.key = hashlib.blake2b(msgspec.json.encode(steps), digest_size=12).hexdigest()
        self.uploads = bool(steps) and steps[0].key == UPLOAD
        by_step = {step.key: tuple(_slots(step)) for step in steps}
        if len(by_step) < len(steps):
            raise BadInput("Two steps have the same key. Give each step its own.")
        ids = {key: tuple(slot.id for slot in slots) for key, slots in by_step.items()}
        self.slots = {slot.id: slot for slots in by_step.values() for slot in slots}
        dependencies = _dependencies(steps[1:] if self.uploads else steps)
        _check(dependencies)
        self.needs = {
            slot: tuple(other for need in needs for other in ids[need])
            for key, needs in dependencies.items()
            for slot in ids[key]
        }
        self.dependents: dict[str, list[str]] = {slot: [] for slot in self.slots}
        for slot, before in self.needs.items():
            for other in before:
                self.dependents[other].append(slot)

    def first(self) -> tuple[str, ...]:
        """Return the slots whose jobs exist from the creation of the build."""
        return (UPLOAD,) if self.uploads else tuple(self.slots)


def _slots(step: PipelineStep) -> Iterator[Slot]:
    if step.matrix is not None:
        for place, values in enumerate(itertools.product(*step.matrix.values())):
            yield Slot(f"{step.key}#{place}", step, matrix=dict(zip(step.matrix, values, strict=True)))
    elif step.parallelism is not None:
        for place in range(step.parallelism):
            yield Slot(f"{step.key}#{place}", step, place, step.parallelism)
    else:
        yield Slot(step.key, step)


def _dependencies(steps: tuple[PipelineStep, ...]) -> dict[str, tuple[str, ...]]:
    """Return the steps that each step depends on.

    A wait or block step depends on all steps since the previous one. Other steps depend on the previous wait or block
    step, unless they name their dependencies.
    """
    needs: dict[str, tuple[str, ...]] = {}
    barrier: tuple[str, ...] = ()
    since: list[str] = []
    for step in steps:
        bars = step.kind in ("waiter", "manual")
        needs[step.key] = step.needs or (*barrier, *since) if bars else step.needs or barrier
        since = [] if bars else [*since, step.key]
        barrier = (step.key,) if bars else barrier
    return needs


def _check(needs: dict[str, tuple[str, ...]]) -> None:
    for key, before in needs.items():
        for other in before:
            if other not in needs:
                raise BadInput(f"Step {key!r} needs {other!r}, which does not exist.")
    try:
        TopologicalSorter(needs).prepare()
    except CycleError:
        raise BadInput("Some steps depend on each other in a cycle.") from None
