"""The table of widgets keeps what a user selected, as long as it is there."""

from __future__ import annotations

from buildframe.widgets.data_table import DataTable


def test_a_row_stays_selected_only_while_it_is_the_same() -> None:
    table = DataTable("Builds", [])
    table.set_rows([["a", 1], ["b", 2]], selected=1)
    table.set_rows([["a", 3], ["b", 4], ["c", 5]])
    assert table.selected == 1
    for others in ([["a", 1], ["c", 2]], [["b", 2]], []):
        table.set_rows([["a", 1], ["b", 2]], selected=1)
        table.set_rows(others)
        assert table.selected == -1, others
