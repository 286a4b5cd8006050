"""A stand-in for the CI service on this machine: a real HTTP server over a simulated world of builds.

with Sandbox() as sandbox:
    sandbox.url                    # http://127.0.0.1:41234
    sandbox.token()                # can read builds and pipelines
    sandbox.truth.slower_steps     # planted anomalies, to verify an analysis
    sandbox.clock.advance(timedelta(hours=1))
"""

from buildframe.sandbox_server.db.outbox import Delivery, Hook
from buildframe.sandbox_server.db.tokens import SCOPES
from buildframe.sandbox_server.http.faults import Fault
from buildframe.sandbox_server.http.rate_limit import Quota
from buildframe.sandbox_server.http.webhook_sender import Patience
from buildframe.sandbox_server.sandbox import Sandbox
from buildframe.sandbox_server.simulation.clock import Clock
from buildframe.sandbox_server.world.fleets import EphemeralAgents
from buildframe.sandbox_server.world.ground_truth import (
    BrokenBranch,
    FailingStep,
    FlakyStep,
    RepeatedBuilds,
    ShortQueue,
    SlowerStep,
    Storm,
    Truth,
    UnstableTest,
)

__all__ = [
    "SCOPES", "BrokenBranch", "Clock", "Delivery", "EphemeralAgents", "FailingStep", "Fault", "FlakyStep", "Hook",
    "Patience", "Quota", "RepeatedBuilds", "Sandbox", "ShortQueue", "SlowerStep", "Storm", "Truth", "UnstableTest",
]  # fmt: skip
