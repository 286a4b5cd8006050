"""Benchmarks, started manually by `python -m tests.benchmarks`; docs/performance.md says what they measure."""
