"""Save frames to files, and keep an incremental history of a service as Delta tables."""

__all__ = ["STORED_TABLES"]

STORED_TABLES = ("builds", "jobs", "pipelines", "members", "flaky_tests")
