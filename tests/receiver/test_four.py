"""The receiver and four processes that sync; `python -m tests.receiver.four` does it many times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.receiver import four

pytestmark = pytest.mark.slow


def test_together_they_come_to_equal_the_service(tmp_path: Path) -> None:
    did = four.run(tmp_path, seed=1, rounds=2, builds=40)
    assert min(did["passed"], did["lost"], did["twice"]) > 0
    assert did["versions"] > 8
