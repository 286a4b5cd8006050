"""What is given to a widget, refused before anything is asked where it cannot be used."""

from __future__ import annotations

import datetime as dt

from buildframe.errors import BadInput
from buildframe.spec.times import parse_duration
from buildframe.workspace import Pipeline, Workspace


def check_workspace(ws: object) -> None:
    """An organization's workspace, or one of its pipelines: builds of several have no place of their own in it."""
    if not isinstance(ws, Workspace | Pipeline):
        raise BadInput(f"ws={ws!r}: pass a workspace, such as of connect(), or a pipeline of one.")
    if ws.organization is None:
        raise BadInput('This workspace is of all organizations; a widget shows one: connect("acme").')


def length(name: str, value: str | dt.timedelta, least: dt.timedelta, why: str) -> dt.timedelta:
    """A length of time that is not below the least one."""
    found = parse_duration(value, name)
    if found < least:
        raise BadInput(f"{name}={value!r}: at least {least.total_seconds():.0f} s, {why}.")
    return found
