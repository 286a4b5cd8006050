"""The handlers of all operations, by name."""

from __future__ import annotations

from buildframe.sandbox_server.db.database import Database
from buildframe.sandbox_server.handlers.builds import BuildHandlers
from buildframe.sandbox_server.handlers.emojis import EmojiHandlers
from buildframe.sandbox_server.handlers.flaky_tests import FlakyTestHandlers
from buildframe.sandbox_server.handlers.graphql import GraphQLHandlers
from buildframe.sandbox_server.handlers.members_and_teams import TeamHandlers
from buildframe.sandbox_server.handlers.messages import Handlers
from buildframe.sandbox_server.handlers.pipeline_serializer import PipelineSerializer
from buildframe.sandbox_server.handlers.pipelines import PipelineHandlers
from buildframe.sandbox_server.handlers.undocumented import UndocumentedHandlers
from buildframe.sandbox_server.simulation.simulator import Simulator


class ApiHandlers:
    """Collects the handlers of all operations."""

    def __init__(self, db: Database, simulator: Simulator, deepest: int) -> None:
        pipelines = PipelineSerializer(db)
        self.handlers: Handlers = {
            **BuildHandlers(db, simulator, pipelines, deepest).handlers,
            **PipelineHandlers(db, simulator, pipelines).handlers,
            **TeamHandlers(db).handlers,
            **FlakyTestHandlers(db).handlers,
            **EmojiHandlers(db).handlers,
            **GraphQLHandlers(db).handlers,
            **UndocumentedHandlers(db).handlers,
        }
