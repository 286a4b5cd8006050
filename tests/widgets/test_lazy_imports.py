"""Widgets load at first use, and name the extra to install if a package is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from buildframe import widgets
from buildframe.errors import MissingExtra
from tests.test_architecture import imported_by

WITHOUT = """
import sys
sys.modules[{package!r}] = None
from buildframe import widgets
for name in widgets.__all__:
    try:
        getattr(widgets, name)
    except Exception as why:
        print(name, type(why).__name__, why)
    else:
        print(name)
"""


def errors_without(package: str) -> dict[str, str]:
    """Return what each widget raises without a package."""
    run = [sys.executable, "-c", WITHOUT.format(package=package)]
    lines = subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()
    return {name: error for name, _, error in (line.partition(" ") for line in lines)}


@pytest.mark.long
def test_widgets_load_at_first_use() -> None:
    heavy = {"ipywidgets", "anywidget", "matplotlib", "deltalake", "pandas"}
    assert not imported_by("import buildframe.widgets") & heavy
    assert not imported_by("from buildframe import widgets; dir(widgets)") & heavy
    assert {"ipywidgets", "anywidget"} <= imported_by("from buildframe import widgets; widgets.BuildBrowser")


def test_only_public_names_are_offered() -> None:
    assert "BuildBrowser" in dir(widgets)
    assert all(getattr(widgets, name).__doc__ for name in widgets.__all__)
    with pytest.raises(AttributeError, match="'Browser'"):
        _ = widgets.Browser


@pytest.mark.long
def test_a_missing_package_is_named() -> None:
    message = f"MissingExtra {MissingExtra('This widget', 'widgets')}"
    assert errors_without("anywidget") == dict.fromkeys(widgets.__all__, message)


@pytest.mark.long
def test_a_store_is_not_needed() -> None:
    assert errors_without("deltalake") == dict.fromkeys(widgets.__all__, "")
