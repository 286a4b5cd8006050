"""Save frames to files, and keep an incremental history of a service as Delta tables."""
