"""The engines on which a rule of metrics is tested: those of this process together, and Spark apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from tests.metrics.any_frame import LIBRARIES, in_spark

Engines = dict[str, Callable[[pd.DataFrame], Any]]
"""How a frame of pandas becomes one of an engine, by its name."""

LOCAL: Engines = {"pandas": lambda frame: frame} | {name: LIBRARIES[name] for name in ("polars, lazy", "duckdb")}
"""All frames of Polars have one engine."""

on_each_engine = pytest.mark.parametrize("engines", [LOCAL, {"spark": in_spark}], ids=["local", "spark"])
