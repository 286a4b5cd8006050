"""Compare all summaries between pandas and a Spark cluster of two executors, each in a process of its own.

Prints how results differ, by the name of the summary. Tasks of `local[2]` would run in the process
that plans them. Here everything that they use has to be sent to them, or imported there. A program,
because a process has one Spark session.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pyspark

from tests import spark_session
from tests.metrics.any_frame import SUMMARIES, differences

EXECUTORS = 2
SETTINGS = {
    "spark.master": f"local-cluster[{EXECUTORS},1,1024]",
    "spark.executor.extraJavaOptions": f"{spark_session.QUICK_JAVA} -Xmn256m",
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SPARK_HOME"] = folder  # into which executors write, beside the programs of Spark
        for part in Path(pyspark.__file__).parent.iterdir():
            Path(folder, part.name).symlink_to(part)
        session = spark_session.get_session(**spark_session.QUICK, **SETTINGS, **{"spark.local.dir": folder})
        found = differences((name, "spark", "many") for name in SUMMARIES)
        with_driver = session._jsc.sc().getExecutorMemoryStatus().size()
        assert with_driver == 1 + EXECUTORS, f"{with_driver - 1} executors"
        session.stop()
    print(json.dumps({name: found.get((name, "spark", "many"), "") for name in SUMMARIES}))


if __name__ == "__main__":
    main()
