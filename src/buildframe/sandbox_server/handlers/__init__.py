"""Handlers of the API operations."""
