"""Describe the replay that predictions come from: its fleets, and how far off it is."""

from __future__ import annotations

from typing import Any

from buildframe.metrics.replaying.blind_error import blind_error
from buildframe.metrics.replaying.prepared import PreparedReplay, describe_fleets


def describe_replay(prepared: PreparedReplay) -> dict[str, Any]:
    """Return the `attrs` of results that come from replays of this record."""
    return {
        "error": blind_error(prepared),
        "fleet": describe_fleets(prepared, prepared.fleets),
        "gap_share": prepared.gap_share,
        "n_no_queue": prepared.n_no_queue,
    }
