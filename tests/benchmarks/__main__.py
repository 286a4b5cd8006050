"""Run all benchmarks one after the other, each in its own process; `--quick` checks that they work."""

from __future__ import annotations

import subprocess
import sys

from tests.benchmarks.reporting import ROOT

NAMES = (
    "starting", "decoding", "memory", "listing", "quota", "sync_requests", "peers", "summaries", "searches", "ledger",
    "explanations", "what_if", "reruns", "contention_ranking", "calibration", "looks", "storing", "first_sync",
    "receiving", "busy_day", "two_receivers", "object_requests", "recovery",
)  # fmt: skip

if __name__ == "__main__":
    runs = [
        subprocess.run([sys.executable, "-m", f"tests.benchmarks.{name}", *sys.argv[1:]], cwd=ROOT) for name in NAMES
    ]
    sys.exit(max(run.returncode for run in runs))
