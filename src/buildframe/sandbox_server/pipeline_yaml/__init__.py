"""Configurations of pipelines: parsing and formatting of YAML and visual steps."""
