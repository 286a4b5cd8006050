"""Builds in small walks, so that rows show while others are still being read, and stopping takes effect soon."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from buildframe.errors import Incomplete
from buildframe.pipeline import Pipeline
from buildframe.widgets.tasks import Piece
from buildframe.workspace import Workspace

COLUMNS = [
    "id", "number", "pipeline", "state", "blocked", "branch", "commit", "message", "creator", "creator_id",
    "created_at", "started_at", "finished_at", "web_url", "fetched_at",
]  # fmt: skip

_FIRST, _MOST = 8, 20
"""Requests of the first walk, and of any: each is twice the one before. Enough that a server that is not there shows
as that (5 tries), not as a limit that is used up."""
_PATIENCE = "30s"


def load(
    of: Workspace | Pipeline, filters: Mapping[str, Any], piece: Piece, got: Callable[[pd.DataFrame], None]
) -> str | None:
    """All builds that match, newest first, handed to `got` as they come; what is to be noted of them, if anything.

    Ends early where the piece is stopped. Raises Incomplete where a walk brings nothing and is not complete.
    """
    windows, size, note = [dict(filters)], _FIRST, None
    while windows and not piece.stopped:
        asked = {**filters, **windows.pop(0)}
        frame = of.builds(
            **asked, columns=COLUMNS, max_requests=size, deadline=_PATIENCE, workers=1, progress=False, partial=True
        )
        told, size = frame.attrs, min(2 * size, _MOST)
        if not (told["complete"] or len(frame)):
            raise Incomplete(f"No more could be read: {told['why']}.")
        windows, note = [*told["left"], *windows], note or told["note"]
        if not piece.stopped:
            got(frame)
    return note
