"""Say how far off the predictions of a replay are. Knows its table of errors, but no figures."""

from __future__ import annotations

import pandas as pd


def format_replay_error(errors: pd.DataFrame, of: dict[str, str]) -> str:
    """Return the recorded and the predicted p95 of a queue or pipeline, as part of a note."""
    return ""
