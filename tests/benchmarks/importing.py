"""Measure `import buildframe` and `import pandas` in fresh processes, in turn."""

from __future__ import annotations

import functools
import subprocess
import sys

from tests.benchmarks import reporting
from tests.benchmarks.reporting import Stopwatch, median

STATEMENTS = {
    "nothing": "pass",
    "import pandas": "import pandas",
    "import buildframe": "import buildframe",
    "import and connect": "import buildframe as bf; bf.connect('acme', token='an-invented-token')",
}


def _fresh(statement: str) -> Stopwatch:
    watch = Stopwatch()
    with watch.running():
        subprocess.run([sys.executable, "-c", statement], check=True)
    return watch


def main(quick: bool) -> None:
    for statement in STATEMENTS.values():
        _fresh(statement)  # compiles, and fills the cache of files
    candidates = {name: functools.partial(_fresh, statement) for name, statement in STATEMENTS.items()}
    measured = reporting.in_turn(2 if quick else 15, candidates)
    reporting.show_times(measured)
    _, pandas, alone, connected = map(median, measured.values())
    reporting.judge("import buildframe / import pandas", alone / pandas, at_most=1.3)
    print(f"import and connect / import pandas: {connected / pandas:.3f} (no target: what is imported at first use)")


if __name__ == "__main__":
    reporting.run(main)
