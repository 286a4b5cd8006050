"""All of a sandbox that faces outwards: its door, what may go wrong there, its own controls, webhooks out."""

from __future__ import annotations

from buildframe.service.answers.told_pipelines import Pipelines
from buildframe.service.data.access import Access
from buildframe.service.data.database import Data
from buildframe.service.data.outbox import Outbox
from buildframe.service.door.app import Door
from buildframe.service.door.control import Control
from buildframe.service.door.courier import Courier, Patience
from buildframe.service.door.faults import Changes, Faults
from buildframe.service.door.faulty import FaultyDoor
from buildframe.service.door.hosts import HostCheck
from buildframe.service.door.quota import Meter, Quota
from buildframe.service.door.server import Server, address, bind
from buildframe.service.life.clock import Clock
from buildframe.service.life.engine import Engine
from buildframe.service.world.runs import User

_ANYONE = Access(User("", "", "", 0), (), ())
"""A receiver of webhooks sees of a pipeline what someone without any permission sees."""


class Front:
    """Serves until it is stopped."""

    def __init__(
        self,
        data: Data,
        engine: Engine,
        clock: Clock,
        faults: Faults,
        *,
        quota: Quota,
        patience: Patience,
        deepest: int,
        host: str,
        port: int,
    ) -> None:
        listening = bind(host, port)
        self.url = address(listening)
        pipelines = Pipelines(data)
        self.outbox = data.outbox = Outbox(data, lambda key: pipelines.embedded(data.lines[key], _ANYONE))
        door = Door(data, engine, Meter(quota), deepest, self.url)
        faulty = FaultyDoor(door.app, faults, Changes(engine, data, clock))
        control = Control(data, clock, faults, self.outbox, self.url, faulty)
        self._server = Server(HostCheck(control.app, host, listening.getsockname()[1]), listening)
        self._courier = Courier(self.outbox, self.url, patience)
        self._server.start()
        self._courier.start()

    def stop(self) -> None:
        """End the server and the deliveries; what is not delivered stays in the data."""
        self._courier.stop()
        self._server.stop()
