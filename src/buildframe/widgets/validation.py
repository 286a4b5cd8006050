"""Check the arguments of widgets before any request is sent."""

from __future__ import annotations

import datetime as dt

from buildframe.errors import BadInput
from buildframe.spec.times import parse_duration
from buildframe.workspace import Pipeline, Workspace


def check_workspace(ws: object, *, may_be_pipeline: bool = True) -> None:
    """Raise BadInput unless `ws` is a workspace of one organization, or one of its pipelines."""
    if not isinstance(ws, Workspace | Pipeline if may_be_pipeline else Workspace):
        pipelines = ", or one of its pipelines" if may_be_pipeline else ""
        raise BadInput(f"ws={ws!r} is not a workspace. Pass the result of connect(){pipelines}.")
    if ws.organization is None:
        raise BadInput('ws is of all organizations; a widget shows one. Use connect("acme"), or set BUILDFRAME_ORG.')


def check_duration(name: str, value: str | dt.timedelta, minimum: float, reason: str) -> float:
    """Return a duration in seconds; raise BadInput if it is below the minimum."""
    seconds = parse_duration(value, name).total_seconds()
    if seconds < minimum:
        raise BadInput(f"{name}={value!r} is too short. Use at least {minimum:.0f} s, {reason}.")
    return seconds
