from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.transforms import Bbox

from buildframe import plots
from buildframe.plots import theme
from tests.metrics.each_case import for_each
from tests.plots.plot_frames import UGLY, at, chains, jobs, laid_out, note, step_graph, title
from tests.refusals import wrong_messages


def texts(ax: plt.Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def lines(ax: plt.Axes) -> list[tuple[float, float, bool]]:
    """Begin, end and whether a chain leads along it, of each line."""
    colors = [plt.matplotlib.colors.to_hex(color) for color in drawn_lines(ax).get_edgecolor()]
    ends = [(path.vertices[0, 0], path.vertices[-1, 0]) for path in drawn_lines(ax).get_paths()]
    return [(*pair, color == theme.ORANGE.lower()) for pair, color in zip(ends, colors, strict=True)]


def drawn_lines(ax: plt.Axes) -> PathCollection:
    (found,) = (one for one in ax.collections if isinstance(one, PathCollection))
    return found


def boxes(ax: plt.Axes) -> list[Bbox]:
    """The box of each step."""
    outlines = next(one for one in ax.collections if isinstance(one, PolyCollection))
    return [path.get_extents() for path in outlines.get_paths()]


def test_steps_stand_in_layers_with_their_share_and_time():
    ax = step_graph(chains())
    assert title(ax) == "Critical chains of 6 builds of web"
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "2", "3"]
    at = {text.get_text(): text.get_position() for text in ax.texts}
    assert {name: int(x) for name, (x, _) in at.items() if name.split()[0] in ("upload", "lint", "test", "deploy")} == {
        "upload": 0, "lint": 1, "test 0": 1, "test 1": 1, "test 2": 1, "deploy": 2,
    }  # fmt: skip
    assert texts(ax).count("33 %, 4 min 20 s") == 3  # 13 of the 21 minutes of two builds in six
    assert "100 %, 2 min" in texts(ax)
    assert "0 %" in texts(ax)
    assert sorted(lines(ax)) == [(0.8, 1, True)] * 3 + [(1.8, 2, True)] * 3


def test_a_dependency_that_is_never_on_a_chain_is_gray():
    jobs = chains()
    slow = jobs["name"].eq("deploy")
    beside = jobs[slow].assign(id=jobs["id"] + " beside", name="notes")
    beside = beside.assign(finished_at=beside["started_at"] + pd.Timedelta(10, "s"))
    ax = step_graph(pd.concat([jobs, beside], ignore_index=True))
    assert sorted(lines(ax))[3:] == [(1.8, 2, False)] * 3 + [(1.8, 2, True)] * 3


def test_steps_that_do_not_fit_are_counted():
    _, ax = plt.subplots(figsize=(4, 2))
    step_graph(chains(), ax)
    laid_out(ax)
    assert "lint" not in texts(ax)
    _, ax = plt.subplots(figsize=(7, 3))
    step_graph(chains(), ax)
    assert note(ax).endswith("not shown") == ("lint" not in texts(ax))


def test_names_are_drawn_as_they_are():
    names = dict(zip(["upload", "lint", "test 0", "test 1", "test 2", "deploy"], UGLY[5:11], strict=True))
    ax = step_graph(chains().assign(name=lambda jobs: jobs["name"].map(names)))
    laid_out(ax)
    assert not any(text.get_parse_math() for text in ax.texts if "$" in text.get_text())


def test_steps_that_seem_to_depend_on_each_other_are_drawn():
    jobs = chains()
    is_odd = jobs["build_id"].isin(["b1", "b3", "b5"])
    names = {"upload": "deploy", "deploy": "upload"}
    ax = step_graph(jobs.assign(name=jobs["name"].mask(is_odd, jobs["name"].replace(names))))
    laid_out(ax)
    assert {"upload", "deploy"} <= set(texts(ax))


def test_the_pipeline_must_be_clear():
    jobs = chains()
    several = jobs.assign(pipeline=["web" if build < "b3" else "api" for build in jobs["build_id"]])
    assert wrong_messages([
        ("pipeline=None: choose one of the pipelines of the builds: api, web", lambda: step_graph(several)),
        ("pipeline='docs': choose one", lambda: step_graph(several, pipeline="docs")),
        ("no column 'pipeline'", lambda: plots.step_graph(jobs.drop(columns="pipeline"), jobs)),
    ]) == {}  # fmt: skip
    assert title(step_graph(several, pipeline="api")) == "Critical chains of 3 builds of api"


@pytest.mark.long
def test_jobs_of_other_pipelines_do_not_count():
    web = chains()
    api = web.assign(pipeline="api", build_id=web["build_id"] + "x", id=web["id"] + "x", name=web["name"] + " of api")
    assert texts(step_graph(web, others=api)) == texts(step_graph(web))


def with_long_dependencies() -> pd.DataFrame:
    """Jobs of 12 builds: a to e in a row, others beside b to d, and an end that waits for e or for x beside these."""
    rows = [("a", 0, 1)]
    for k, name in enumerate("bcd"):
        rows += [(name, 1 + 4 * k, 5 + 4 * k), *((f"{name}{i}", 1 + 4 * k, 2 + 4 * k) for i in range(3))]
    frames = []
    for build in range(12):
        x_ends = 20 if build % 2 else 12
        last = [("x", 1, x_ends), ("e", 13, 14), ("end", max(14, x_ends), 30)]
        names, begins, ends = zip(*rows, *last, strict=True)
        begins, ends = (np.array(times) + 60.0 * build for times in (begins, ends))
        frames.append(
            jobs(
                len(names), id=[f"{build}-{name}" for name in names], build_id=f"b{build}", name=list(names),
                build_created_at=at(60.0 * build), created_at=at(*[60.0 * build] * len(names)),
                runnable_at=at(*begins), started_at=at(*begins), finished_at=at(*ends),
            )
        )  # fmt: skip
    return pd.concat(frames, ignore_index=True)


@pytest.mark.long
def test_no_line_crosses_a_box():
    ax = step_graph(with_long_dependencies())
    paths = drawn_lines(ax).get_paths()
    assert max(path.vertices[-1, 0] - path.vertices[0, 0] for path in paths) > 2  # passes layers
    points = np.concatenate([np.concatenate(path.to_polygons(width=1e9, closed_only=False)) for path in paths])
    for box in boxes(ax):
        within = (points > box.min + 1e-6) & (points < box.max - 1e-6)
        assert not within.all(axis=1).any()


@for_each({"small": (4, 2.5), "middle": (6, 3), "large": (12, 6)})
def test_texts_lie_in_their_boxes(size):
    _, ax = plt.subplots(figsize=size)
    step_graph(chains().assign(name=lambda jobs: "MATRIX " + jobs["name"] + " WITH WIDE NAMES"), ax)
    laid_out(ax)
    outlines = [Bbox(ax.transData.transform(box)) for box in boxes(ax)]
    inside = [text.get_window_extent() for text in ax.texts if text.get_transform() == ax.transData]
    assert len(inside) >= len(outlines)
    for text in inside:
        assert any(box.x0 <= text.x0 and text.x1 <= box.x1 and box.y0 - 1 <= text.y0 and text.y1 <= box.y1 + 1
                   for box in outlines)  # fmt: skip


def test_names_in_a_small_figure_have_two_lines_of_a_legible_size():
    frame = chains().assign(
        name=lambda rows: rows["name"].replace({"upload": "upload-artifact", "deploy": "production"})
    )
    with mpl.rc_context({"figure.figsize": (1.8, 2.4)}):
        ax = laid_out(step_graph(frame))
    names = [
        text
        for text in ax.texts
        if text.get_fontsize() > 0 and "%" not in text.get_text() and "box" not in text.get_text()
    ]
    assert min(text.get_fontsize() for text in names) > 5
    assert any("\n" in text.get_text() for text in names)
