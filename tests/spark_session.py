"""Start a local Spark session for tests: one per process, on loopback, in UTC, stopped when the process ends."""

from __future__ import annotations

import atexit
import os
import sys
import warnings
from functools import cache
from typing import TYPE_CHECKING

from tests import xdist_scopes
from tests.programs import require_module, require_program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIGURATION = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""Java compiles less, collects garbage in one thread, and does not verify the classes of Spark, 1.3 s a process."""
QUICK = {
    "spark.driver.extraJavaOptions": f"{QUICK_JAVA} "
    "-Xms1g -Xmn512m -XX:MetaspaceSize=256m",  # else the heap grows by one full garbage collection after the other
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.shuffle.compress": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
"""A third of the CPU time for many small queries: they are planned in one step, interpreted, and never printed.

Large queries would take longer.
"""


def require_spark() -> None:
    """Skip the test if Spark cannot run here; in `.ci/run` it fails."""
    require_module("pyspark", "spark")
    if "JAVA_HOME" not in os.environ:
        require_program("java", package="openjdk-17-jre-headless")


def get_session(**settings: str) -> SparkSession:
    """Return the session of this process; benchmarks pass settings of their own."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    is_placed = "PYTEST_XDIST_WORKER" not in os.environ or xdist_scopes.scope_of(test) == "spark"
    assert is_placed, f"put Spark in its name: {test}"
    return _start_session(**settings)


@cache
def _start_session(**settings: str) -> SparkSession:
    require_spark()
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas >= 3", FutureWarning)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("buildframe's tests")
    for name, value in {**CONFIGURATION, **(settings or QUICK)}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    atexit.register(session.stop)
    return session
