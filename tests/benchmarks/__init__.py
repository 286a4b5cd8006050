"""Benchmarks, run by hand: `python -m tests.benchmarks` from a checkout; docs/performance.md says what they measure."""
