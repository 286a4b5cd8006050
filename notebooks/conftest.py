"""All notebooks but one run in the second lane of tests, `pytest -m long`."""

import pytest

FIRST_LANE = "06_a_dashboard.ipynb"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.suffix == ".ipynb" and item.path.name != FIRST_LANE:
            item.add_marker("long")
