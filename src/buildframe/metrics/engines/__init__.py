"""Find the engine of a frame: pandas, Polars, DuckDB or PySpark. The only place that knows all of them."""

from __future__ import annotations

import narwhals as nw
import pandas as pd

from buildframe.errors import BadInput
from buildframe.metrics.engines.duckdb import DuckDBEngine
from buildframe.metrics.engines.pandas import PandasEngine
from buildframe.metrics.engines.polars import PolarsEngine
from buildframe.metrics.engines.protocol import Engine
from buildframe.metrics.engines.rows import Frame
from buildframe.metrics.engines.spark import SparkEngine

_ENGINES: dict[nw.Implementation, Engine] = {
    nw.Implementation.PANDAS: PandasEngine(),
    nw.Implementation.POLARS: PolarsEngine(),
    nw.Implementation.DUCKDB: DuckDBEngine(),
    **dict.fromkeys((nw.Implementation.PYSPARK, nw.Implementation.PYSPARK_CONNECT), SparkEngine()),
}


def engine_of(frame: Frame) -> Engine:
    """Return the engine of a frame; raise BadInput if it is not a frame."""
    if isinstance(frame, pd.DataFrame):  # even one with two columns of one name, which narwhals refuses
        return _ENGINES[nw.Implementation.PANDAS]
    try:
        return _ENGINES[nw.from_native(frame).implementation]
    except (TypeError, AttributeError, KeyError):
        known = "pandas, Polars, DuckDB or PySpark, or one with the Arrow interface `__arrow_c_stream__`"
        message = f"A {type(frame).__name__} is not a frame. Pass one of {known}."
        raise BadInput(message) from None
