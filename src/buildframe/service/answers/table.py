"""Who answers which operation."""

from __future__ import annotations

from buildframe.service.answers.beyond import Beyond
from buildframe.service.answers.builds import BuildAnswers
from buildframe.service.answers.directory import Directory
from buildframe.service.answers.emojis import Emojis
from buildframe.service.answers.exchange import Operations
from buildframe.service.answers.graph import Graph
from buildframe.service.answers.pipelines import PipelineAnswers
from buildframe.service.answers.suites import Suites
from buildframe.service.answers.told_pipelines import Pipelines
from buildframe.service.data.database import Data
from buildframe.service.life.engine import Engine


class Answers:
    """Answers every route from the data."""

    def __init__(self, data: Data, engine: Engine, deepest: int) -> None:
        pipelines = Pipelines(data)
        self.of: Operations = {
            **BuildAnswers(data, engine, pipelines, deepest).of,
            **PipelineAnswers(data, engine, pipelines).of,
            **Directory(data).of,
            **Suites(data).of,
            **Emojis(data).of,
            **Graph(data).of,
            **Beyond(data).of,
        }
