"""Every summary runs on executors that share no memory with the driver."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests import spark_session
from tests.metrics.engine_frames import PER_BUILD, one_of_each_function


@pytest.mark.long
def test_two_executors_in_two_processes_give_the_same() -> None:
    spark_session.require_spark()
    command = [sys.executable, "-m", "tests.metrics.spark_cluster"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stderr[-4_000:]
    assert {*result.stdout.split()} == {*one_of_each_function(), *PER_BUILD}
