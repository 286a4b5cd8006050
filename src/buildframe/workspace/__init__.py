"""Workspace and Pipeline: the methods for an organization and for one pipeline."""

from buildframe.workspace.pipeline import Pipeline
from buildframe.workspace.workspace import Workspace

__all__ = ["Pipeline", "Workspace"]
