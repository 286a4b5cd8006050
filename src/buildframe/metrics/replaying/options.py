"""Check the options of a replay and convert them to numbers of queues and steps."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.metrics.columns import Floats
from buildframe.metrics.queues import find_queues
from buildframe.metrics.replaying.fleets import HOURS_OF_WEEK, UNLIMITED, Fleet
from buildframe.metrics.replaying.prepared import PreparedReplay
from buildframe.metrics.replaying.record import AGENT, NO_QUEUE
from buildframe.terminal import show

MAX_LOAD = 20
_MAX_AGENTS = 1_000_000

Agents = float | Sequence[int] | Mapping[str, float | Sequence[int]]
"""Agents of all queues, or of each: a number, `inf`, or 168 numbers for the hours of a week."""

Step = str | tuple[str, str]
"""A step, in all pipelines or by pipeline and step."""


def check_options(agents: Any, run_scale: Any, skip: Any, load: Any, seed: Any) -> None:
    """Raise BadInput for options that no record can have."""
    for own in agents.values() if isinstance(agents, Mapping) else (agents,):
        if own is not None or isinstance(agents, Mapping):
            _fleet(own)
    _check_steps(run_scale, skip)
    if not _is_number(load) or not 0 < load <= MAX_LOAD:
        raise BadInput(
            f"load={show(load)} is not a factor above 0 and at most {MAX_LOAD}. Use 1.5 for half as many again.",
        )
    if isinstance(seed, bool) or not isinstance(seed, numbers.Integral) or seed < 0:
        raise BadInput(f"seed={show(seed)} is not a whole number. Use 0 or a larger one.")


def _check_steps(run_scale: Any, skip: Any) -> None:
    if run_scale is not None and not isinstance(run_scale, Mapping):
        raise BadInput(
            f"run_scale={show(run_scale)} is not a mapping. Pass factors by step, such as {{'e2e': 0.5}}.",
        )
    for step, factor in (run_scale or {}).items():
        if not _is_number(factor) or not 0 <= factor < math.inf:
            raise BadInput(
                f"run_scale[{step!r}]={show(factor)} is not a factor. Use a number such as 0.5, at least 0.",
            )
    if skip is not None and not isinstance(skip, (str, Collection)):
        raise BadInput(
            f"skip={show(skip)} is neither a step nor a list of steps. Use one such as 'lint' or ['lint', 'docs'].",
        )


def read_fleets(agents: Agents | None, prepared: PreparedReplay) -> list[Fleet]:
    """Return the fleet of each queue: as given, or else as inferred."""
    if agents is None:
        return prepared.fleets
    if not isinstance(agents, Mapping):
        return [_fleet(agents)] * len(prepared.fleets)
    known = prepared.record.queues
    fleets = [*prepared.fleets]
    named: set[int] = set()
    for queue, of_queue in agents.items():
        positions = find_queues(queue, known, "agents")
        if not positions:
            _check_known(queue, [entry.name for entry in known], "agents", "queue")
        for position in positions:
            if position in named:
                name = known[position].name
                raise BadInput(
                    f"agents names the queue {name!r} twice, by {queue!r}, too. Name it once.",
                )
            named.add(position)
            fleets[position] = _fleet(of_queue)
    return fleets


def _fleet(agents: Any) -> Fleet:
    if isinstance(agents, (pd.Series, np.ndarray, list, tuple)):
        hours = [*agents]
        if len(hours) != HOURS_OF_WEEK or not all(map(_is_count, hours)) or not any(hours):
            raise BadInput(
                f"agents has a schedule of {len(hours)} values. Pass {HOURS_OF_WEEK} whole numbers, one for each hour "
                "of a week from Monday 0:00 UTC, of which at least one is not 0."
            )
        return Fleet(tuple(map(int, hours)))
    if _is_number(agents) and agents == math.inf:
        return Fleet(UNLIMITED)
    if not _is_count(agents) or agents < 1:
        raise BadInput(
            f"agents={show(agents)} is not a number of agents. Use a whole number of at least 1, float('inf'), "
            f"{HOURS_OF_WEEK} numbers by hour of the week, or a dict of these by queue."
        )
    return Fleet(int(agents))


def _is_number(value: Any) -> bool:
    return not isinstance(value, (bool, np.bool_)) and isinstance(value, numbers.Real) and not math.isnan(value)


def _is_count(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= _MAX_AGENTS and value == int(value)


def read_scale(run_scale: Mapping[Step, float] | None, prepared: PreparedReplay) -> Floats | None:
    """Return the factor by which the run time of each job is multiplied; None if nothing changes."""
    if not run_scale:
        return None
    factors = {
        number: float(factor) for step, factor in run_scale.items() for number in _steps(step, prepared, "run_scale")
    }
    return prepared.rows_of(factors)


def read_skipped(skip: Step | Collection[Step] | None, prepared: PreparedReplay) -> Any:
    """Return which jobs are skipped; None if none are."""
    if skip is None:
        return None
    steps: Iterable[Any] = [skip] if isinstance(skip, str) or _is_pair(skip, prepared) else skip
    found = {number: 0.0 for step in steps for number in _steps(step, prepared, "skip")}
    return prepared.rows_of(found) == 0 if found else None


def _is_pair(skip: Any, prepared: PreparedReplay) -> bool:
    """Return whether a tuple is a pipeline and its step, not two steps."""
    return isinstance(skip, tuple) and len(skip) == 2 and skip[0] in {pipeline for pipeline, _ in prepared.record.steps}


def _steps(step: Any, prepared: PreparedReplay, option: str) -> list[int]:
    """Return the numbers of a step's script jobs, in all pipelines or one; raise BadInput if there are none."""
    jobs, steps = prepared.record.jobs, prepared.record.steps
    runs = np.unique(jobs.step[np.isin(jobs.kind, [AGENT, NO_QUEUE])]).tolist()
    found = [number for number in runs if step in (steps[number][1], steps[number])]
    if not found:
        of_pipeline = [steps[n][1] for n in runs if isinstance(step, tuple) and step[:1] == steps[n][:1]]
        _check_known(step, of_pipeline or [steps[number][1] for number in runs], option, "step")
    return found


def _check_known(name: Any, known: Sequence[Any], option: str, what: str) -> None:
    if name in known:
        return
    texts = sorted({one for one in known if isinstance(one, str)})
    close = difflib.get_close_matches(
        str(name[-1] if isinstance(name, tuple) and name else name),
        texts,
        1,
    )
    hint = f" Did you mean {close[0]!r}?" if close else f" Use one of {', '.join(map(repr, texts[:20])) or 'none'}."
    raise BadInput(f"{option}: there is no {what} {name!r} with script jobs in the record.{hint}")
