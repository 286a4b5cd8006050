"""Plot the steps of a pipeline in layers, with their dependencies and how often each is on the critical chain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.path import Path
from matplotlib.text import Text

from buildframe import metrics
from buildframe.errors import BadInput
from buildframe.formatting import format_count, format_duration, label_steps
from buildframe.guards.arguments import checked_frames
from buildframe.metrics.columns import column, timestamps
from buildframe.plots import theme
from buildframe.plots.layout import apply_layout, character_width, count_rows_that_fit, font_points, plot_area
from buildframe.plots.names import wrap_label
from buildframe.plots.scope import describe_scope
from buildframe.terminal import show

_POINTS_PER_STEP = 27  # height of a box with two lines of text
_BOX_WIDTH, _BOX_HEIGHT = 0.8, 0.78  # of the distance between layers, and between rows
_LEAST_CHARACTERS = 8
_TIGHT = 0.82
"""Size of names in boxes with fewer characters, as a multiple of the usual one."""

_MARGIN = 0.02
"""Distance between the sides of a box and its text."""

Places = dict[Any, tuple[int, float]]
"""Layer and row of each step, from the bottom up."""


@checked_frames
def step_graph(
    builds: pd.DataFrame,
    jobs: pd.DataFrame,
    ax: Axes | None = None,
    pipeline: str | None = None,
    title: str | None = None,
    tz: str = "UTC",
) -> Axes:
    """
    Plot the steps of a pipeline in layers, with their dependencies and how often each is on the critical chain.

    Parameters
    ----------
    builds : pandas.DataFrame
        Builds with the columns that `metrics.time_ledger` needs.
    jobs : pandas.DataFrame
        Jobs of these builds with the columns that `metrics.time_ledger` needs.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default a new figure is created.
    pipeline : str, optional
        Slug of the pipeline to draw. You can omit it if the builds are of one pipeline.
    title : str, optional
        Title. By default it says what is shown.
    tz : str, default "UTC"
        Time zone of the days in the title.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on.

    Raises
    ------
    BadInput
        As for `metrics.time_ledger`, or if `pipeline` is not one of the builds' pipelines or is missing.

    See Also
    --------
    time_spent : Steps by total machine time.
    buildframe.metrics.step_graph : The dependencies.
    buildframe.metrics.time_ledger : The critical chains.

    Notes
    -----
    A box is a step. It is filled by the share of builds in which the step is on the critical chain; the text shows this
    share, and the time that the step adds to the wall time of a build on average, including its waits. A line is a
    binding dependency. It is orange, and wider, the more often the critical chain leads along it. It passes steps of
    other layers between their boxes. A step without a line stands where others start at the same time.

    If a layer has more steps than fit, those that are least often on the critical chain are not shown.

    Examples
    --------
    >>> ax = plots.step_graph(*ci.history(created_from="14d"), pipeline="docs")
    >>> sorted(text.get_text() for text in ax.texts if text.get_text().isalpha())
    ['links', 'prose', 'site', 'upload']
    """
    builds, jobs = (_of_pipeline(frame, builds, pipeline) for frame in (builds, jobs))
    ledger = metrics.time_ledger(builds, jobs)
    steps = _measure_steps(jobs, ledger) if len(ledger) else pd.DataFrame()
    if steps.empty:
        with theme.themed_axes(ax, 7, 3) as ax:
            scope = describe_scope(builds, tz) if title is None else ""
            return theme.show_message(ax, "No build with jobs has ended.", title or "Critical chains of builds", scope)
    edges = _find_edges(jobs, ledger, steps)
    layers = _find_layers(steps, edges)
    size = int(layers.value_counts().max())
    wide = np.clip(max(map(len, steps.index)) / 12, 1.75, 2.6) * (layers.max() + 1)
    with theme.themed_axes(ax, float(np.clip(wide, 7, 18)), max(_POINTS_PER_STEP / 72 * size + 2.4, 3)) as ax:
        rows = count_rows_that_fit(ax, size, _POINTS_PER_STEP)
        shown = steps[layers.groupby(layers).cumcount() < rows]
        texts = _draw(ax, shown, edges, layers)
        hidden = theme.count_note(len(steps) - len(shown), "step", "not shown")
        explained = "box: share of builds with the step on their critical chain, and its time per build"
        slug = theme.drawable(str(builds["pipeline"].iloc[0]), 40)
        heading = f"Critical chains of {format_count(ledger.attrs['n_builds'], 'build')} of {slug}"
        scope = describe_scope(builds.drop(columns="pipeline"), tz) if title is None else ""
        ax.set(xlabel="layer: steps depend on steps of layers to their left", yticks=[])
        theme.decorate(ax, title or heading, theme.join_notes(explained, hidden), scope=scope)
        ax.spines[:].set_visible(False)
        apply_layout(ax)
        _shrink_texts(ax, texts)
    return ax


def _of_pipeline(frame: pd.DataFrame, builds: pd.DataFrame, pipeline: str | None) -> pd.DataFrame:
    """Return the rows of the pipeline, or of the only one of the builds; raise BadInput if it is not clear which."""
    slugs = sorted(column(builds, "pipeline").dropna().unique())
    if (pipeline is None and len(slugs) > 1) or (pipeline is not None and pipeline not in slugs):
        raise BadInput(f"pipeline={show(pipeline)}: choose one of the pipelines of the builds: {', '.join(slugs)}.")
    return frame[column(frame, "pipeline").isin(slugs if pipeline is None else [pipeline])]


def _measure_steps(jobs: pd.DataFrame, ledger: pd.DataFrame) -> pd.DataFrame:
    """Return by step the share of builds with it on the chain, its seconds per build, and when it is usually ready.

    The most often critical come first.
    """
    names = metrics.step(jobs)
    names = names.fillna(jobs["label"]) if "label" in jobs else names
    at = timestamps(jobs, "runnable_at").fillna(timestamps(jobs, "unblocked_at"))
    created = jobs["build_id"].map(ledger.groupby("build_id")["build_created_at"].first())
    usual = (at - created).dt.total_seconds().groupby(names).median().dropna().to_frame("ready_s")
    sums = ledger.groupby("step").agg(share=("build_id", "nunique"), seconds=("duration_s", "sum"))
    on_chain = sums / ledger.attrs["n_builds"]
    steps = usual.join(on_chain).fillna({"share": 0.0, "seconds": 0.0}).rename_axis("step").reset_index()
    order = steps.sort_values(["share", "seconds", "step"], ascending=[False, False, True])
    return order.set_index("step")


def _find_edges(jobs: pd.DataFrame, ledger: pd.DataFrame, steps: pd.DataFrame) -> pd.Series[float]:
    """Return the share of builds whose chain leads along each pair of steps, 0 for other binding dependencies.

    Pairs that would make steps depend on each other in a circle are left out, the least frequent first.
    """
    chain = ledger.dropna(subset=["step"])
    chain = chain[chain["job_id"] != chain["job_id"].shift()]
    after = chain["step"].where(chain["build_id"] == chain["build_id"].shift())
    passed = pd.DataFrame({"before": chain["step"].shift(), "after": after}).dropna().value_counts()
    graph = metrics.step_graph(jobs)
    binding = graph[graph["status"] == "binding"].set_index(["before", "after"])["binding"] * 0.0
    edges = (passed / ledger.attrs["n_builds"]).add(binding.astype("float64"), fill_value=0)
    shares = edges[[all(step in steps.index for step in pair) for pair in edges.index]]
    reached = {step: {step} for step in steps.index}  # from each step, along the edges so far
    for before, after in shares.sort_index().sort_values(ascending=False, kind="stable").index:
        if before in reached[after]:
            shares = shares.drop((before, after))
            continue
        for steps_of_one in reached.values():
            if before in steps_of_one:
                steps_of_one |= reached[after]
    in_order: pd.Series[float] = shares.sort_values(kind="stable")
    return in_order


def _find_layers(steps: pd.DataFrame, edges: pd.Series[float]) -> pd.Series[int]:
    """Return the layer of each step: after all that it depends on, or that of the step that is ready at its time."""
    layers = dict.fromkeys((step for pair in edges.index for step in pair), 0)
    is_settled = False
    while not is_settled:
        is_settled = True
        for before, after in edges.index:
            if layers[after] <= layers[before]:
                layers[after], is_settled = layers[before] + 1, False
    ready = steps["ready_s"]
    known = ready[list(layers)].sort_index()
    for step in steps.index.difference(list(layers)):
        layers[step] = layers[(known - ready[step]).abs().idxmin()] if len(known) else 0
    return pd.Series(layers, dtype="int64").reindex(steps.index)


def _place_steps(shown: pd.DataFrame, edges: pd.Series[float], layers: pd.Series[int]) -> Places:
    """Return layer and row of each step; a step is near those that it depends on."""
    places: Places = {}
    ready = shown["ready_s"].to_dict()
    for layer, steps in shown.groupby(layers.reindex(shown.index)):
        rows = {}
        for step in steps.index:
            pairs = edges.index[edges.index.get_level_values("after") == step]
            own = [places[one][1] for one, _ in pairs if one in places]
            rows[step] = (-float(np.mean(own)) if own else 0.0, ready[step], str(step))
        ordered = sorted(rows, key=rows.__getitem__)
        places |= {step: (int(layer), (len(ordered) - 1) / 2 - i) for i, step in enumerate(ordered)}
    return places


def _draw(ax: Axes, shown: pd.DataFrame, edges: pd.Series[float], layers: pd.Series[int]) -> list[Text]:
    """Draw boxes and lines, and return the texts in the boxes."""
    places = _place_steps(shown, edges, layers)
    n_layers = int(layers.max()) + 1
    _draw_lines(ax, places, edges)
    x, y = (np.array([places[step][i] for step in shown.index]) for i in (0, 1))
    filled = x + _BOX_WIDTH * shown["share"].to_numpy(np.float64)
    theme.draw_bars(
        ax, y, x, x + _BOX_WIDTH, _BOX_HEIGHT, facecolor=theme.background(ax), edgecolor=theme.GRAY, zorder=2
    )
    theme.draw_bars(ax, y, x, filled, _BOX_HEIGHT, facecolor=theme.SKY, alpha=0.6, linewidth=0, zorder=3)
    wide = _BOX_WIDTH * plot_area(ax)[0] / n_layers
    room = wide / (character_width() * 0.92) - 1
    is_tight = room < _LEAST_CHARACTERS  # names have two lines, and there is no room for values
    size = font_points(8) * (_TIGHT if is_tight else 1)
    characters = max(int(wide / (0.47 * size)), 4) if is_tight else int(min(room, 40))
    names = dict(zip(map(str, shown.index), label_steps(pd.Series(shown.index, dtype="str")), strict=True))
    labels = theme.unique_labels(names.values(), characters * (1 + is_tight))
    style: dict[str, Any] = {"va": "center", "zorder": 4, "in_layout": False}
    texts = []
    for step, share, seconds in zip(shown.index, shown["share"], shown["seconds"], strict=True):
        at, row = places[step]
        value = f"{_percent(share)}, {format_duration(seconds)}" if share else "0 %"
        name = wrap_label(labels[names[str(step)]], characters)
        height = 0.0 if is_tight else 0.17
        texts.append(ax.text(at + _MARGIN, row + height, name, fontsize=size, parse_math=False, **style))
        if len(value) <= characters + 1 and not is_tight:
            texts.append(ax.text(at + _MARGIN, row - 0.2, value, fontsize=0.94 * size, alpha=0.8, **style))
    ax.set_xticks(np.arange(n_layers) + _BOX_WIDTH / 2, [str(layer + 1) for layer in range(n_layers)])
    reach = max(y.max(), 1.0) + 0.6
    ax.set(xlim=(-0.08, n_layers - 1 + _BOX_WIDTH + 0.08), ylim=(-reach, reach))
    return texts


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.005 else "< 1 %"


def _shrink_texts(ax: Axes, texts: list[Text]) -> None:
    """Shrink texts that are wider than their boxes, and all texts if two lines are higher than a box."""
    width, height = ax.transData.transform((_BOX_WIDTH - 2 * _MARGIN, _BOX_HEIGHT)) - ax.transData.transform((0, 0))
    extents = [text.get_window_extent() for text in texts]
    common = min(1, height / 2 / max(extent.height for extent in extents))
    for text, extent in zip(texts, extents, strict=True):
        share = min(common, width / max(extent.width, 1))
        if share < 1:
            # widths are not exactly proportional (hinting)
            text.set_fontsize(0.95 * share * float(text.get_fontsize()))


def _draw_lines(ax: Axes, places: Places, edges: pd.Series[float]) -> None:
    """Draw curves from the right sides of boxes to the left sides of others; frequent ones are on top."""
    drawn = edges[[all(step in places for step in pair) for pair in edges.index]]
    share = drawn.to_numpy(np.float64)
    colors = np.where(share > 0, theme.ORANGE, theme.GRAY)
    widths = np.where(share > 0, 0.8 + 4 * share, 0.5)
    lines = PathCollection(_route_lines(places, list(drawn.index)), facecolors="none", edgecolors=colors,
                           linewidths=widths, zorder=1)  # fmt: skip
    ax.add_collection(lines, autolim=False)


def _route_lines(places: Places, pairs: list[tuple[Any, Any]]) -> list[Path]:
    """Return the curve of each pair of steps; it leads through the nearest gap between the boxes of a passed layer."""
    passed = [
        (number, layer, before_row + (after_row - before_row) * (layer - before) / (after - before))
        for number, ((before, before_row), (after, after_row)) in enumerate(
            (places[one], places[other]) for one, other in pairs
        )
        for layer in range(before + 1, after)
    ]
    ways = pd.DataFrame(passed, columns=["line", "layer", "row"])
    half = ways["layer"].map(pd.Series([layer for layer, _ in places.values()]).value_counts()).fillna(0) / 2
    gap = ((ways["row"] - half).round() + half).clip(-half, half)
    in_gap = ways.groupby([ways["layer"], gap])["row"]
    apart = in_gap.rank(method="first") / (in_gap.transform("size") + 1) - 0.5
    rows = (gap + (1 - _BOX_HEIGHT) * apart).groupby(ways["line"]).agg(list).to_dict()
    return [_path_through(places[one], rows.get(k, []), places[other]) for k, (one, other) in enumerate(pairs)]


def _path_through(before: tuple[int, float], rows: list[float], after: tuple[int, float]) -> Path:
    """Return a curve that is level beside the boxes of each layer, and bends between the layers."""
    (x, y), points, codes = before, [], [Path.MOVETO]
    points.append((x + _BOX_WIDTH, y))
    for layer, row in enumerate([*rows, after[1]], before[0] + 1):
        start, middle = layer - 1 + _BOX_WIDTH, layer - (1 - _BOX_WIDTH) / 2
        if layer - 1 > x:
            points.append((start, y))
            codes.append(Path.LINETO)
        points += [(middle, y), (middle, row), (layer, row)]
        codes += [Path.CURVE4] * 3
        y = row
    return Path(points, codes)
