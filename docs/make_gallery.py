"""Draw the examples of the docstrings of all plots, for the gallery and for the reference, and list the widgets.

Images of widgets need a browser, so they are files of the project: `python -m tests.widget_images` takes them again.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import matplotlib as mpl
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

import buildframe as bf
from buildframe import metrics, plots, widgets

HERE = Path(__file__).parent
FOLDER = HERE / "gallery"
WIDGET_IMAGES = HERE / "widget_images"
NOT_DRAWN = {"explore"}
"""Functions that return a widget or a text."""

WIDGETS: dict[str, Callable[..., Any]] = {
    "plots.explore": plots.explore,
    **{f"widgets.{name}": getattr(widgets, name) for name in widgets.__all__},
}


def write() -> None:
    """Write a PNG file for each plot, and a page with all of them."""
    FOLDER.mkdir(exist_ok=True)
    names = [name for name in plots.__all__ if name not in NOT_DRAWN]
    with bf.sandbox(progress=False) as ci, mpl.rc_context({"backend": "agg"}):
        fetched: dict[str, dict[str, Any]] = {}
        for name in names:
            draw(name, ci, fetched)
        draw_first_example(ci)
    page = [HEAD, *sections(names), WIDGETS_HEAD, *map(widget_part, WIDGETS)]
    (FOLDER / "index.md").write_text("\n\n".join(page) + "\n", encoding="utf-8")


def sections(names: list[str]) -> Iterator[str]:
    """Yield the parts of plots by question, in the order of the page about plots."""
    table = (HERE / "plots.md").read_text(encoding="utf-8").partition("## Choose a plot")[2].partition("\n## ")[0]
    left = set(names)
    for question, answer in re.findall(r"^\| (.*?) \| (.*) \|$", table, re.M):
        plots_of_question = [name for name in dict.fromkeys(re.findall(r"`(\w+)", answer)) if name in left]
        left -= {*plots_of_question}
        if plots_of_question:
            yield f"## {question}"
            yield from map(part, plots_of_question)
    assert not left, f"docs/plots.md answers no question with {left}"


def draw_first_example(ci: Any) -> None:
    """Save what the first example of the first page prints and draws."""
    code = (HERE / "index.md").read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    with contextlib.redirect_stdout(io.StringIO()) as printed, patch.object(bf, "sandbox", lambda: ci):
        exec(code.replace("plt.show()", ""), {})  # noqa: S102  an example of this project
    (FOLDER / "first.txt").write_text(printed.getvalue(), encoding="utf-8")
    plt.gcf().savefig(FOLDER / "first.png", dpi=110)
    plt.close("all")


def draw(name: str, ci: Any, fetched: dict[str, dict[str, Any]]) -> None:
    """Save what the example of a plot draws. Frames that several examples fetch are fetched once."""
    known = {"bf": bf, "ci": ci, "metrics": metrics, "plots": plots, "pd": pd}
    for line in statements(getattr(plots, name)):
        if " = ci." in line:
            if line not in fetched:
                exec(line, {"ci": ci}, fetched.setdefault(line, {}))  # noqa: S102  examples of this package
            known |= fetched[line]
        else:
            exec(line, known)  # noqa: S102
    axes = known.get("ax", known.get("axes"))
    figure = getattr(axes, "figure", None) or axes.flat[0].figure
    assert isinstance(figure, Figure)
    figure.savefig(FOLDER / f"{name}.png", dpi=110)
    plt.close("all")


def statements(documented: Callable[..., Any]) -> list[str]:
    """Return the statements of an example that draw: those that print nothing."""
    examples = doctest.DocTestParser().get_examples(documented.__doc__ or "")
    return [example.source for example in examples if not example.want]


def summary_of(documented: Callable[..., Any]) -> str:
    return next(line for line in (documented.__doc__ or "").strip().splitlines() if line)


def part(name: str) -> str:
    """Return the part of a plot in the gallery."""
    plot = getattr(plots, name)
    heading = f"### {name}\n\n{summary_of(plot)} [Reference](../reference/api/buildframe.plots.{name}.rst)."
    return f"{heading}\n\n![{name}]({name}.png)\n\n```python\n{''.join(statements(plot))}```"


def widget_code(name: str) -> str:
    """Return the code that shows a widget: the statements of its example, and the variable with the widget."""
    lines = [line for line in statements(WIDGETS[name]) if ".close()" not in line]
    shown = next(line.partition(" = ")[0] for line in lines if f" = {name}(" in line)
    return f"{''.join(lines)}{shown}\n"


def widget_part(name: str) -> str:
    """Return the part of a widget in the gallery, with an image for each theme."""
    short = name.rpartition(".")[2]
    heading = f"### {short}\n\n{summary_of(WIDGETS[name])} [Reference](../reference/api/buildframe.{name}.rst)."
    images = (
        f"```{{image}} ../{WIDGET_IMAGES.name}/{short}-{theme}.webp\n:class: only-{theme}\n:alt: {short}\n```"
        for theme in ("light", "dark")
    )
    return "\n\n".join([heading, *images, f"```python\n{widget_code(name)}```"])


HEAD = """# Gallery

Every plot and [widget](#widgets), with the code that draws it from a month of the sandbox:

```python
import buildframe as bf
import pandas as pd
from buildframe import metrics, plots, widgets

ci = bf.sandbox()
```

A notebook shows a plot below the cell. In a script, `plt.show()` opens a window, and `plt.savefig("waits.png")` writes
a file (`from matplotlib import pyplot as plt`)."""

WIDGETS_HEAD = """## Widgets

They need JupyterLab, Voila or another front end of Jupyter. [Widgets](../widgets.md) says what each shows, and which
scopes its token needs."""
