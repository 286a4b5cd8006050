"""Who answers which operation."""

from __future__ import annotations

from buildframe.service.beyond import Beyond
from buildframe.service.build_answers import BuildAnswers
from buildframe.service.data import Data
from buildframe.service.directory import Directory
from buildframe.service.emojis import Emojis
from buildframe.service.engine import Engine
from buildframe.service.exchange import Operations
from buildframe.service.graph import Graph
from buildframe.service.pipeline_answers import PipelineAnswers
from buildframe.service.pipelines import Pipelines
from buildframe.service.suites import Suites
from buildframe.spec import Endpoint


class Answers:
    """Answers every declared operation from the data, and those `beyond` what the service's document lists."""

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
        self.beyond: tuple[Endpoint, ...] = (*BuildAnswers.beyond, *Directory.beyond, *Graph.beyond, *Beyond.beyond)
