"""Configurations of pipelines: from YAML and from visual steps, and back."""
