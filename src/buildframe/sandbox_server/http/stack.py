"""Assemble the HTTP server of a sandbox: API, faults, control routes and webhooks."""

from __future__ import annotations

from buildframe.sandbox_server.db.database import Database
from buildframe.sandbox_server.db.outbox import Outbox
from buildframe.sandbox_server.http.app import ServiceApp
from buildframe.sandbox_server.http.control_api import ControlApp
from buildframe.sandbox_server.http.fault_injection import FaultMiddleware
from buildframe.sandbox_server.http.faults import FaultInjector, WorldChanges
from buildframe.sandbox_server.http.host_check import HostCheck
from buildframe.sandbox_server.http.rate_limit import Quota, RequestCounter
from buildframe.sandbox_server.http.server import HttpServer, bind, format_url
from buildframe.sandbox_server.http.webhook_sender import Patience, WebhookSender
from buildframe.sandbox_server.simulation.clock import Clock
from buildframe.sandbox_server.simulation.simulator import Simulator


class SandboxServer:
    """Serves a sandbox until it is stopped."""

    def __init__(
        self,
        db: Database,
        outbox: Outbox,
        simulator: Simulator,
        clock: Clock,
        faults: FaultInjector,
        *,
        quota: Quota,
        patience: Patience,
        deepest: int,
        host: str,
        port: int,
    ) -> None:
        listening = bind(host, port)
        self.url = format_url(listening)
        service = ServiceApp(db, simulator, RequestCounter(quota), deepest, self.url)
        faulty = FaultMiddleware(service.app, faults, WorldChanges(simulator, db, clock))
        control = ControlApp(db, clock, faults, outbox, self.url, faulty)
        self._server = HttpServer(HostCheck(control.app, host, listening.getsockname()[1]), listening)
        self._sender = WebhookSender(outbox, self.url, patience)
        self._server.start()
        self._sender.start()

    def stop(self) -> None:
        """Stop the server and the deliveries; pending deliveries stay stored."""
        self._sender.stop()
        self._server.stop()
