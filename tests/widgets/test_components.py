"""Composite widgets, status lines and buttons."""

from __future__ import annotations

import ipywidgets
import pytest

from buildframe import widgets
from buildframe.widgets.components import CompositeWidget, StatusLine
from buildframe.widgets.data_table import DataTable
from buildframe.workspace import Workspace
from tests.report.untrusted import UNTRUSTED
from tests.widgets.widget_helpers import html_tags, parts


def test_errors_in_callbacks_are_shown() -> None:
    status = StatusLine()
    status.create_button("Press", "", lambda: 1 / 0).click()
    assert "ZeroDivisionError: division by zero" in status.value
    assert 'role="alert"' in status.value


def test_messages_are_escaped() -> None:
    status, pages = StatusLine(), []
    for hostile in UNTRUSTED:
        for show in (status.show, status.show_error):
            show(hostile)
            pages.append(status.value)
    assert [page for page in pages if not {tag for tag, _ in html_tags(page)} <= {"div", "br"}] == []


@pytest.mark.long
def test_no_name_of_ipywidgets_is_overridden(ci: Workspace) -> None:
    """A method such as `_send` or an attribute such as `log` would break it without an error."""
    boxes = [widgets.BuildBrowser(ci), widgets.BuildMonitor(ci), widgets.FlakyBoard(ci, "rspec")]
    tested = [
        part for box in boxes for part in parts(box) if isinstance(part, CompositeWidget | StatusLine | DataTable)
    ]
    assert {"BuildDetails", "StatusLine", "DataTable"} < {type(part).__name__ for part in tested}
    bookkeeping = {"_trait_values", "_trait_default_generators", "_all_trait_default_generators", "_traits",
                   "_descriptors", "_instance_inits", "_static_immutable_initial_values", "_anywidget_id",
                   "_anywidget_commands"}  # fmt: skip
    meant = {"close", "closables", "_esm", "_css", "_holding_sync"}
    plain = ipywidgets.VBox()
    for part in tested:
        base = next(each for each in type(part).__mro__[1:] if not each.__module__.startswith("buildframe"))
        own = {name for kind in type(part).__mro__ if kind.__module__.startswith("buildframe") for name in vars(kind)}
        added = (own | set(vars(part)) - set(vars(plain))) - meant - bookkeeping
        assert {name for name in added if not name.startswith("__") and hasattr(base, name)} == set()
    for box in boxes:
        box.close()


def test_marimo_shows_where_a_widget_works() -> None:
    """It calls `_mime_`; without it, marimo advises to rewrite the widget."""
    kind, text = CompositeWidget()._mime_()
    assert kind == "text/plain"
    assert text.startswith("CompositeWidget consists of Jupyter widgets, which marimo does not show.")
