"""Cells of the tables of calibration: how often intervals contain the truth, beside a naive interval and a target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tests.metrics.simulated_worlds import Coverage

SEED = 500
Table = Iterator[Sequence[str]]
"""Rows of texts; the first are the names of the columns."""


class Cell(NamedTuple):
    """Coverage of intervals, that of the peer, and the target."""

    ours: Coverage
    naive: float
    least: float | None = 0.92

    def text(self) -> str:
        covered = mark(self.ours.covered, self.least is not None and self.ours.covered < self.least)
        return f"{covered} / {self.naive:.2f} / {self.ours.missing:.2f}"


def mark(value: float, is_missed: bool) -> str:
    if np.isnan(value):
        return "–"
    return f"**{value:.2f}**" if is_missed else f"{value:.2f}"
