"""Signatures of the public API, one per line: `python -m tests.public_api > tests/public_api.txt` after a change."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import buildframe as bf
from buildframe import metrics, plots, report, webhooks, widgets
from buildframe.sandbox_server import Sandbox
from buildframe.workspace import Workspace
from buildframe.workspace.pipeline import PipelineWorkspace


def lines() -> list[str]:
    """Return name and signature of each public function, class, method and property."""
    modules = (bf, metrics, plots, report, webhooks, widgets)
    found = [line for module in modules for name in module.__all__ for line in of_object(module, name)]
    classes = [line for kind in (Workspace, PipelineWorkspace, Sandbox) for line in of_class(kind.__name__, kind)]
    return sorted({*found, *classes})


def of_object(module: ModuleType, name: str) -> Iterator[str]:
    value, full = getattr(module, name), f"{module.__name__}.{name}"
    if isinstance(value, type):
        yield from of_class(full, value)
    elif callable(value):
        yield full + signature(value)
    elif not isinstance(value, ModuleType):
        yield f"{full}: {type(value).__name__}"


def of_class(full: str, kind: type[Any]) -> Iterator[str]:
    yield full + signature(kind)
    for base in kind.__mro__:
        if base.__module__.startswith("buildframe"):
            for name, value in vars(base).items():
                if not name.startswith("_"):
                    plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
                    yield f"{full}.{name}" + (signature(plain) if inspect.isfunction(plain) else "")


def signature(value: Any) -> str:
    """Return a signature without addresses of objects in memory; nothing for errors that only have a message."""
    try:
        return re.sub(r" at 0x\w+", "", str(inspect.signature(value)))
    except ValueError:
        return ""


if __name__ == "__main__":
    print("\n".join(lines()))
