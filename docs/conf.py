"""Settings of the documentation site. `python -m sphinx -W docs FOLDER` builds it."""

from __future__ import annotations

import inspect
import shutil
import sys
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

project = "buildframe"
author = "the buildframe authors"
copyright = author
release = version = installed_version(project)

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]
myst_heading_anchors = 3
default_role = "code"
nb_execution_mode = "off"  # tests run the notebooks and compare their saved outputs
nb_ipywidgets_js = {}  # no scripts from elsewhere: the site works without a network
autodoc_typehints = "none"  # docstrings have the types
numpydoc_show_class_members = False  # the template of a class lists them
smartquotes_action = "qe"  # no dashes: options of commands have two hyphens

numpydoc_xref_param_type = True
numpydoc_xref_aliases = {
    "Workspace": "buildframe.workspace.Workspace",
    "PipelineWorkspace": "buildframe.workspace.PipelineWorkspace",
    "Sandbox": "buildframe.sandbox_server.Sandbox",
    "Store": "buildframe.Store",
    "DataFrame": "pandas.DataFrame",
    "Series": "pandas.Series",
    "Timestamp": "pandas.Timestamp",
    "Timedelta": "pandas.Timedelta",
    "Axes": "matplotlib.axes.Axes",
    "Figure": "matplotlib.figure.Figure",
    "datetime": "datetime.datetime",
    "timedelta": "datetime.timedelta",
    "tzinfo": "datetime.tzinfo",
    "Path": "pathlib.Path",
    "bool": "bool",
    "True": "bool",
    "False": "bool",
    "sequence": "collections.abc.Sequence",
    "iterable": "collections.abc.Iterable",
    "mapping": "collections.abc.Mapping",
    "array_like": "numpy.ndarray",
}
numpydoc_xref_ignore = {
    *(
        "optional",
        "default",
        "of",
        "or",
        "callable",
        "row",
        "metric",
        "metrics",
        "function",
        "functions",
        "these",
        "list",
    ),
    *("sequence", "iterable", "mapping", "to", "path", "like", "date", "time"),
}
intersphinx_mapping = {
    name: (address, str(HERE / "_inventories" / f"{name}.inv"))
    for name, address in {
        "python": "https://docs.python.org/3",
        "pandas": "https://pandas.pydata.org/docs",
        "pyarrow": "https://arrow.apache.org/docs",
        "httpx": "https://www.python-httpx.org",
        "matplotlib": "https://matplotlib.org/stable",
    }.items()
}

# For `python -m sphinx -b linkcheck docs site-links`: invented and local hosts, and pages whose anchors scripts make
linkcheck_ignore = [r"https?://(127\.0\.0\.1|localhost|[\w.-]*\bexample\.(com|org))\b"]
linkcheck_anchors_ignore_for_url = [r"https://github\.com/"]
linkcheck_timeout = 20

html_theme = "pydata_sphinx_theme"
html_title = project
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": [],
    "footer_end": [],
}
html_sidebars = {
    page: [] for page in ("index", "changelog", "gallery/index", "where-it-runs")
}  # pages without others beside them
html_search_scorer = str(HERE / "_static" / "scorer.js")
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sphinx = html_show_copyright = False
templates_path = ["_templates"]


def make_pages(app: Any) -> None:
    """Copy the notebooks, and write the pages that come from declarations and examples."""
    shutil.copytree(HERE.parent / "notebooks", HERE / "tutorials", dirs_exist_ok=True)
    sys.path.insert(0, str(HERE))
    import make_architecture
    import make_gallery
    import make_reference
    import search_words

    make_reference.write()
    app.config.autosummary_context = {
        "members_by_class": make_reference.members(),
        "most_on_the_page": make_reference.MOST_ON_THE_PAGE,
    }
    make_gallery.write()
    make_architecture.write()
    app.connect("source-read", search_words.add_entries)


def show_image(_: Any, kind: str, name: str, __: Any, ___: Any, lines: list[str]) -> None:
    """Show the image of a plot below the examples of its docstring."""
    image = HERE / "gallery" / f"{name.rpartition('.')[2]}.png"
    if kind == "function" and name.startswith("buildframe.plots.") and image.exists():
        lines += ["", f".. image:: /gallery/{image.name}", ""]


def show_init(_: Any, kind: str, __: str, documented: Any, *___: Any) -> tuple[str, None] | None:
    """Show the signature of `__init__` for widgets, as that of their base class has only `*args, **kwargs`."""
    if kind != "class" or not documented.__module__.startswith("buildframe.widgets."):
        return None
    signature = inspect.signature(documented.__init__)
    parameters = [each.replace(annotation=each.empty) for each in signature.parameters.values()][1:]
    return str(signature.replace(parameters=parameters, return_annotation=signature.empty)), None


def setup(app: Any) -> None:
    """Make pages before Sphinx reads them."""
    app.connect("config-inited", lambda app, _: make_pages(app))
    app.connect("autodoc-process-signature", show_init, priority=900)
    app.connect("autodoc-process-docstring", show_image, priority=900)  # after numpydoc
