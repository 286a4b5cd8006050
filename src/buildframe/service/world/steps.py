"""Steps of pipelines, and plans: what jobs the steps make and what each of them waits for."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Literal

import msgspec

from buildframe.errors import BadInput

UPLOAD = "upload"
"""Key of the step that uploads the others, where a pipeline begins with one."""

ONLY_DIMENSION = "matrix"
"""Name of the dimension of a matrix that is a bare list of values."""


class Trigger(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a trigger step builds: the pipeline `slug`, and what its build has instead of the triggering build's own."""

    slug: str
    message: str | None = None
    branch: str | None = None
    commit: str | None = None
    env: dict[str, str] = {}
    is_async: bool = False


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of a pipeline: its configuration, and how long it runs (`seconds`, the median).

    `branches` is a branch filter (see `rules.matches`), `retries` how often a failure is repeated by itself,
    `agent_query_rules` what it asks of agents beyond their queue, `continue_on_failure` of a wait step alone.
    """

    key: str
    kind: Literal["script", "waiter", "manual", "trigger"] = "script"
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


class Slot(msgspec.Struct, frozen=True):
    """One job that a step makes. `index` and `total` are of a parallel step, `matrix` of a matrix step."""

    id: str
    step: Step
    index: int | None = None
    total: int | None = None
    matrix: dict[str, str] | None = None


class Plan:
    """The steps of a build and what follows from them.

    `uploads`: the first step adds the others when it has run. `slots`: every job-to-be by its id, in order.
    `needs`: the slots that must be done before a slot may go on. `dependents`: the slots that need a slot.
    Raises `BadInput` where steps share a key, need a step that is not there, or wait for each other.
    """

    def __init__(self, steps: tuple[Step, ...]) -> None:
        self.steps = steps = msgspec.convert(msgspec.to_builtins(steps), type=tuple[Step, ...])  # 55 and 55.0 are one
        self.key = hashlib.blake2b(msgspec.json.encode(steps), digest_size=12).hexdigest()
        self.uploads = bool(steps) and steps[0].key == UPLOAD
        by_step = {step.key: tuple(_slots(step)) for step in steps}
        if len(by_step) < len(steps):
            raise BadInput("Two steps have the same key.")
        ids = {key: tuple(slot.id for slot in slots) for key, slots in by_step.items()}
        self.slots = {slot.id: slot for slots in by_step.values() for slot in slots}
        between = _between(steps[1:] if self.uploads else steps)
        _check(between)
        self.needs = {
            slot: tuple(other for need in needs for other in ids[need])
            for key, needs in between.items()
            for slot in ids[key]
        }
        self.dependents = _turned(self.needs) | ({UPLOAD: ()} if self.uploads else {})

    def first(self) -> tuple[str, ...]:
        """The slots whose jobs a build has from its creation."""
        return (UPLOAD,) if self.uploads else tuple(self.slots)


def _slots(step: Step) -> Iterator[Slot]:
    if step.matrix is not None:
        for place, values in enumerate(itertools.product(*step.matrix.values())):
            yield Slot(f"{step.key}#{place}", step, matrix=dict(zip(step.matrix, values, strict=True)))
    elif step.parallelism is not None:
        for place in range(step.parallelism):
            yield Slot(f"{step.key}#{place}", step, place, step.parallelism)
    else:
        yield Slot(step.key, step)


def _between(steps: tuple[Step, ...]) -> dict[str, tuple[str, ...]]:
    """For each step the steps that must be done before it.

    Wait and block steps need all since the one before them; a step that names no others needs the one before it.
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
                raise BadInput(f"Step {key!r} needs {other!r}, which is not among the steps.")
    try:
        TopologicalSorter(needs).prepare()
    except CycleError:
        raise BadInput("Some steps wait for each other.") from None


def _turned(needs: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    dependents: dict[str, list[str]] = {slot: [] for slot in needs}
    for slot, before in needs.items():
        for other in before:
            dependents[other].append(slot)
    return {slot: tuple(after) for slot, after in dependents.items()}


def waiter() -> Step:
    """A wait step, whose key is given by `uploading`."""
    return Step(key="", kind="waiter")


def uploading(*steps: Step) -> tuple[Step, ...]:
    """These steps after one that uploads them."""
    first = Step(key=UPLOAD, label=":pipeline: upload", command="buildframe-agent pipeline upload", seconds=7)
    keyed = (
        msgspec.structs.replace(step, key=f"wait-{place}") if step.kind == "waiter" else step
        for place, step in enumerate(steps, 1)
    )
    return (first, *keyed)
