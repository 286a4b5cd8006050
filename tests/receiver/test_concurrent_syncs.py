"""The receiver and four processes that sync; `python -m tests.receiver.concurrent_syncs` does it many times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.receiver import concurrent_syncs

pytestmark = pytest.mark.long


def test_together_they_come_to_equal_the_service(tmp_path: Path) -> None:
    did = concurrent_syncs.run(tmp_path, seed=1, rounds=2, builds=40)
    assert min(did["passed"], did["lost"], did["twice"]) > 0
    assert did["versions"] > 8
