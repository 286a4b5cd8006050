"""Only `metrics/engines` knows engines: each implements one protocol, and summaries do not ask which they have."""

from __future__ import annotations

import ast
from pathlib import Path

import buildframe.metrics

METRICS = Path(buildframe.metrics.__file__).parent
OUTSIDE = sorted(METRICS.glob("*.py"))
SHARED = {"attribution", "dtypes", "expressions", "intervals", "normal_scores", "protocol", "rows", "storms"}
"""Modules of engines that hold for all of them."""
OF_ONE_ENGINE = {"implementation", "Implementation", "is_duckdb", "is_pandas", "is_polars", "to_native"}


def mentions(source: str) -> list[str]:
    """Names in code, not in texts, by which a module could branch on the engine."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found += [name.name for name in names if name.name.split(".")[0] in ("duckdb", "polars", "pyspark")]
            case ast.ImportFrom(module=str(module), names=names) if module.startswith("buildframe.metrics.engines"):
                own = [name.name for name in names] if module.count(".") == 2 else [module.split(".")[3]]
                found += [name for name in own if name not in SHARED | {"engine_of"}]
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in OF_ONE_ENGINE:
                found.append(name)
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, kind]) if "DataFrame" in ast.unparse(kind):
                found.append(ast.unparse(node))
    return found


def test_no_summary_knows_an_engine() -> None:
    found = {module.stem: mentions(module.read_text()) for module in OUTSIDE}
    assert {name: mentioned for name, mentioned in found.items() if mentioned} == {
        "columns": ["isinstance(frame, pd.DataFrame)"],  # to refuse other frames
    }


def test_a_branch_would_be_noticed() -> None:
    sources = [
        "import duckdb",
        "from buildframe.metrics.engines import spark",
        "from buildframe.metrics.engines.pandas import PandasEngine",
        "isinstance(frame, pd.DataFrame)",
        "rows.implementation.is_duckdb()",
    ]
    assert [source for source in sources if not mentions(source)] == []
