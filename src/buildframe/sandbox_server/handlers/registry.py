"""Register the handlers of operations by decorator, and create all of them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from buildframe.sandbox_server.db.database import Database
from buildframe.sandbox_server.db.teams import TeamDirectory
from buildframe.sandbox_server.handlers.messages import ApiRequest, ApiResponse
from buildframe.sandbox_server.handlers.pipeline_serializer import PipelineSerializer
from buildframe.sandbox_server.simulation.simulator import Simulator
from buildframe.spec import Endpoint

Handler = Callable[[ApiRequest], ApiResponse]
Method = TypeVar("Method", bound=Callable[..., ApiResponse])


@dataclass(frozen=True)
class HandlerContext:
    """What handlers work with. `deepest` is the number of builds that pages of a list reach."""

    db: Database
    simulator: Simulator
    serializer: PipelineSerializer
    deepest: int


class HandlerGroup:
    """Handlers of related operations: methods that `handles` marks."""

    def __init__(self, context: HandlerContext) -> None:
        self._db, self._simulator = context.db, context.simulator
        self._serializer, self._deepest = context.serializer, context.deepest
        self._teams = TeamDirectory(context.db)


def handles(endpoint: Endpoint) -> Callable[[Method], Method]:
    """Mark a method of a `HandlerGroup` as the handler of an operation."""

    def mark(method: Method) -> Method:
        method.handled_operation = endpoint.name  # type: ignore[attr-defined]
        return method

    return mark


def create_handlers(context: HandlerContext) -> Mapping[str, Handler]:
    """Create the handlers of all operations; return them by the name of the operation."""
    package = __name__.rpartition(".")[0]
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{module.name}")
    methods = [
        method
        for group in HandlerGroup.__subclasses__()
        for _, method in inspect.getmembers(group(context), lambda member: hasattr(member, "handled_operation"))
    ]
    return {method.handled_operation: method for method in methods}
