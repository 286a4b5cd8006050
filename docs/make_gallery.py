"""Draw the examples of the docstrings of all plots, for the gallery and for the reference."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

import buildframe as bf
from buildframe import metrics, plots

HERE = Path(__file__).parent
FOLDER = HERE / "gallery"
NOT_DRAWN = {"explore", "shortened"}
"""Functions that return a widget or a text."""


def write() -> None:
    """Write a PNG file for each plot, and a page with all of them."""
    FOLDER.mkdir(exist_ok=True)
    names = [name for name in plots.__all__ if name not in NOT_DRAWN]
    with bf.sandbox(progress=False) as ci, mpl.rc_context({"backend": "agg"}):
        for name in names:
            draw(name, ci)
    parts = [part(name) for name in sorted(names)]
    (FOLDER / "index.md").write_text("\n\n".join([HEAD, *parts]) + "\n", encoding="utf-8")


def draw(name: str, ci: Any) -> None:
    """Save what the example of a plot draws."""
    known = {"bf": bf, "ci": ci, "metrics": metrics, "plots": plots, "pd": pd}
    for line in statements(name):
        exec(line, known)  # noqa: S102  examples of this package
    axes = known.get("ax", known.get("axes"))
    figure = getattr(axes, "figure", None) or axes.flat[0].figure
    assert isinstance(figure, Figure)
    figure.savefig(FOLDER / f"{name}.png", dpi=110)
    plt.close("all")


def statements(name: str) -> list[str]:
    """Return the statements of an example that draw: those before the last one, which shows a value."""
    examples = doctest.DocTestParser().get_examples(getattr(plots, name).__doc__)
    return [example.source for example in examples if not example.want]


def part(name: str) -> str:
    """Return the part of a plot in the gallery."""
    summary = next(line for line in getattr(plots, name).__doc__.strip().splitlines() if line)
    code = "".join(statements(name))
    target = f"../reference/api/buildframe.plots.{name}.rst"
    return f"## {name}\n\n{summary} [Reference]({target}).\n\n![{name}]({name}.png)\n\n```python\n{code}```"


HEAD = """# Gallery

Every plot, with the code that draws it from a month of the sandbox:

```python
import buildframe as bf
import pandas as pd
from buildframe import metrics, plots

ci = bf.sandbox()
```"""
