"""Workspace and PipelineWorkspace: the methods for an organization and for one pipeline."""

from buildframe.workspace.pipeline import PipelineWorkspace
from buildframe.workspace.workspace import Workspace

__all__ = ["PipelineWorkspace", "Workspace"]
