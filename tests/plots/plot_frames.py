"""Frames to draw, and what a plot shows of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.collections import PolyCollection
from matplotlib.transforms import Bbox

from buildframe import metrics, plots
from buildframe.plots.scope import SEPARATOR

mpl.use("Agg")

UTC = "datetime64[us, UTC]"
START = pd.Timestamp("2026-03-10", tz="UTC")
DAY = START.timestamp() / 86400  # as Matplotlib counts

UGLY = [
    r"$\frac{x$ y_{", "_^{}$$", "$", "\\", "%s {0} {", "<script>alert('x')</script>", "new\nline\ttab\x07bell",
    "\u202eright to left", "日本語テスト" * 20, "שלום עולם", "\N{FIRE} fire", "a" * 500, "  ", ":fire:", "_under", None,
]  # fmt: skip


def at(*minutes: float | None) -> pd.Series:
    after = pd.to_timedelta(np.array(minutes, np.float64), unit="min")
    return pd.Series(START + after, dtype=UTC)


def builds(days: int = 3, each: int = 20, fetched: float | None = None, **columns: object) -> pd.DataFrame:
    """`each` builds a day that take 1, 2, 3, ... minutes; the last two of a day fail."""
    created = [day * 1440 + k for day in range(days) for k in range(each)]
    ended = [start + k % each + 1 for k, start in enumerate(created)]
    now = days * 1440 if fetched is None else fetched
    n = len(created)
    return pd.DataFrame(
        {
            "organization": "acme",
            "pipeline": "web",
            "branch": "main",
            "number": pd.array(range(1, n + 1), "Int64"),
            "state": ["failed" if k % each >= each - 2 else "passed" for k in range(n)],
            "blocked": False,
            "created_at": at(*created),
            "finished_at": at(*ended),
            "fetched_at": at(*[now] * n),
            **columns,
        }
    )


def jobs(n: int = 4, **columns: object) -> pd.DataFrame:
    """Jobs of one build, one after another: runnable at k, started at k + 1, finished at k + 3 minutes."""
    frame = pd.DataFrame(
        {
            "id": [f"j{k}" for k in range(n)],
            "organization": "acme",
            "build_id": "b",
            "build_number": 41,
            "pipeline": "web",
            "commit": "c",
            "build_created_at": at(*[0] * n),
            "created_at": at(*[0] * n),
            "type": "script",
            "name": [f"job {k}" for k in range(n)],
            "step_key": None,
            "state": "passed",
            "soft_failed": False,
            "exit_status": 0,
            "signal": None,
            "matrix": None,
            "parallel_group_index": None,
            "queue": "default",
            "agent_id": [f"a{k}" for k in range(n)],
            "retried": False,
            "retried_in_job_id": None,
            "retry_type": None,
            "runnable_at": at(*range(n)),
            "started_at": at(*[k + 1 for k in range(n)]),
            "finished_at": at(*[k + 3 for k in range(n)]),
            "unblocked_at": at(*[None] * n),
            "fetched_at": at(*[n + 10] * n),
            **columns,
        }
    )
    return frame if "step_id" in frame else frame.assign(step_id=frame["name"])  # one step for each name


def flipping(steps: int = 3, commits: int = 6) -> pd.DataFrame:
    """Each step runs twice on each commit and passes; step k fails the first time on every (k + 1)-th commit."""
    runs = [(s, c, t) for s in range(steps) for c in range(commits) for t in range(2)]
    fails = [t == 0 and c % (s + 1) == 0 for s, c, t in runs]
    return jobs(
        len(runs),
        build_id=[f"b{c} {t}" for _, c, t in runs],
        name=[f"step {s}" for s, _, _ in runs],
        commit=[f"{c:07x}" + "0" * 33 for _, c, _ in runs],
        state=["failed" if fail else "passed" for fail in fails],
        exit_status=[int(fail) for fail in fails],
    )


def flaky_tests(n: int = 5, **columns: object) -> pd.DataFrame:
    """Flaky tests with n, n - 1, ... instances, seen 1, 2, ... hours ago."""
    return pd.DataFrame(
        {
            "id": [f"t{k}" for k in range(n)],
            "scope": "Cart",
            "name": [f"adds {k} items" for k in range(n)],
            "location": [f"spec/cart_spec.rb:{k}" for k in range(n)],
            "instances": pd.array(range(n, 0, -1), "Int64"),
            "latest_occurrence_at": at(*[10_000 - 60 * (k + 1) for k in range(n)]),
            "last_resolved_at": at(*[None] * n),
            "fetched_at": at(*[10_000] * n),
            **columns,
        }
    )


def segments(n: int = 60, **columns: object) -> pd.DataFrame:
    """The ledger of n builds, one every 4 hours: two steps each, whose first is slower in every other build."""
    build = np.repeat(np.arange(n), 2)
    step = np.tile([0, 1], n)
    return pd.DataFrame(
        {
            "build_id": build.astype(str), "pipeline": "api", "branch": "main", "kind": "run", "queue": "default",
            "step": pd.array([f"step {k}" for k in step], "str"), "build_created_at": at(*(240.0 * build)),
            "duration_s": 300.0 + 60 * (build % 2) * (step == 0) + build % 7, **columns,
        }
    )  # fmt: skip


def explain(ledger: pd.DataFrame, ax: plt.Axes | None = None, **options: object) -> plt.Axes:
    """Draw the difference between every other build and the others."""
    if "build_id" not in ledger:
        return plots.explain(ledger, ledger, ax, allow_reversed=True)
    is_odd = ledger["build_id"].isin([str(number) for number in range(1, 9999, 2)])
    return plots.explain(ledger[~is_odd], ledger[is_odd], ax, allow_reversed=True, **options)


def chains(n: int = 6, **columns: object) -> pd.DataFrame:
    """Jobs of n builds: an upload, then lint and three tests, then a deployment; every test is the slowest at times."""
    steps = ["upload", "lint", *(f"test {k}" for k in range(3)), "deploy"]
    build, step = np.repeat(np.arange(n), len(steps)), np.tile(np.arange(len(steps)), n)
    slow = 5 * (step - 2 == build % 3)
    runnable = np.select([step == 0, step < 5], [0, 2], 15) + 60.0 * build
    ended = runnable + np.select([step == 0, step == 1, step < 5], [3, 4, 8 + slow], 6)
    return jobs(
        len(step),
        id=[f"j{k}" for k in range(len(step))],
        build_id=[f"b{k}" for k in build],
        name=[steps[k] for k in step],
        build_created_at=at(*(60.0 * build)),
        created_at=at(*(60.0 * build + np.where(step == 0, 0, 2))),
        runnable_at=at(*runnable),
        started_at=at(*(runnable + 0.5)),
        finished_at=at(*ended),
        **columns,
    )


def chain_of_each_kind() -> pd.DataFrame:
    """Jobs of one build: an upload, a step that a person repeated, a block step, a trigger, and a step beside these."""
    n = 7
    return jobs(
        n,
        name=["upload", "unit", "unit", "ship?", "deploy", "smoke", "lint"],
        type=["script", "script", "script", "manual", "trigger", "script", "script"],
        state=["passed", "failed", "passed", "unblocked", "passed", "passed", "passed"],
        retried=[k == 1 for k in range(n)],
        retried_in_job_id=[None, "j2", *[None] * 5],
        retry_type=[None, "manual", *[None] * 5],
        created_at=at(0, 3, 14, 0, 0, 0, 3),
        runnable_at=at(1, 3, 14, None, 30, 40, 3),
        started_at=at(2, 5, 15, None, None, 40, 5),
        finished_at=at(3.5, 9, 20, None, 40, 50, 6),
        unblocked_at=at(None, None, None, 30, None, None, None),
        fetched_at=at(*[60] * n),
    )


def step_graph(
    rows: pd.DataFrame, ax: plt.Axes | None = None, others: pd.DataFrame | None = None, **options: object
) -> plt.Axes:
    """Draw the graph of jobs whose builds end with their last job, given with other jobs."""
    names = {"build_id": "id", "pipeline": "pipeline", "build_number": "number", "build_created_at": "created_at"}
    if "finished_at" not in rows:
        return plots.step_graph(builds(id=[f"b{k}" for k in range(60)]), rows, ax, **options)
    ended = rows.groupby("build_id", dropna=False)["finished_at"].transform("max")
    of_builds = rows.assign(finished_at=ended)[[*names, "finished_at"]].rename(columns=names).drop_duplicates("id")
    of_builds = of_builds.assign(state="passed", branch="main").sort_values("id", ignore_index=True)
    return plots.step_graph(of_builds, pd.concat([rows, others]), ax, **options)


def concurrency(rows: pd.DataFrame, ax: plt.Axes | None = None, **options: object) -> plt.Axes:
    """Draw the running jobs of all queues on one Axes."""
    return plots.concurrency(rows, ax, by=None, **options)


def queue_depth(rows: pd.DataFrame, ax: plt.Axes | None = None, **options: object) -> plt.Axes:
    """Draw the waiting jobs of all queues on one Axes."""
    return plots.queue_depth(rows, ax, by=None, **options)


def trend(rows: pd.DataFrame, ax: plt.Axes | None = None, **options: object) -> plt.Axes:
    """Draw the median wall time of each pipeline."""
    return plots.trend(rows, ax, **{"by": "pipeline"} | options)


def builds_of(rows: pd.DataFrame) -> pd.DataFrame:
    """The builds of these jobs, which end with their last job, and have a time of creation, as replays need.

    Others would be refused.
    """
    names = {"build_id": "id", "pipeline": "pipeline", "build_created_at": "created_at"}
    ended = rows.groupby("build_id", dropna=False)["finished_at"].transform("max")
    created = rows["build_created_at"].astype(UTC).fillna(START)
    of_builds = rows.assign(finished_at=ended, build_created_at=created)[[*names, "finished_at"]].rename(columns=names)
    return of_builds.sort_values("created_at").drop_duplicates("id").assign(state="passed", branch="main")


def agents_needed(rows: pd.DataFrame, ax: plt.Axes | None = None, **options: object) -> plt.Axes:
    """Draw how jobs would wait with other numbers of agents, from the jobs of builds that end with their last job."""
    known = builds_of(rows) if "finished_at" in rows else builds(id=[f"b{k}" for k in range(60)])
    return plots.agents_needed(known, rows, ax, **{"queue": "default", "target": 0.9} | options)


def leverage(rows: pd.DataFrame, ax: plt.Axes | None = None, **options: object) -> plt.Axes:
    """Draw what faster steps would save, from the jobs of builds that end with their last job."""
    known = builds_of(rows) if "finished_at" in rows else builds(id=[f"b{k}" for k in range(60)])
    return plots.leverage(known, rows, ax, **options)


def objective(rows: pd.DataFrame, ax: plt.Axes | None = None, **options: object) -> plt.Axes:
    """Draw the promise that nine of ten builds take at most 15 minutes."""
    return plots.objective(rows, ax, **{"of": metrics.wall_time, "within": "15m", "target": 0.9} | options)


def queued(n: int = 60, agents: int = 2) -> pd.DataFrame:
    """Jobs of builds of their own that take three minutes, one every minute on average, and share two agents."""
    random, free, started, agent = np.random.default_rng(8), [0.0] * agents, [], []
    up = np.sort(random.uniform(0, n, n).round(2)) + np.arange(n) // 15 * 1440
    for at_ in up:
        agent.append(free.index(min(free)))
        started.append(max(at_, free[agent[-1]]))
        free[agent[-1]] = started[-1] + 3
    return jobs(n, build_id=[f"b{k}" for k in range(n)], agent_id=[f"a{k}" for k in agent], created_at=at(*up),
                name=[f"step {k % 4}" for k in range(n)], build_created_at=at(*up), runnable_at=at(*up),
                started_at=at(*started), finished_at=at(*[one + 3 for one in started]),
                fetched_at=at(*[9000] * n))  # fmt: skip


def busy_jobs(n: int = 40, pipelines: int = 4) -> pd.DataFrame:
    """Jobs of several pipelines that wait for two agents; the second pipeline has jobs that are three times as long."""
    pipeline = [k * 7 % 11 % pipelines for k in range(n)]
    free, started, ran = [0.0, 0.0], [], [3.0 if p == 1 else 1.0 for p in pipeline]
    for k in range(n):
        agent = free.index(min(free))
        started.append(max(k * 0.7, free[agent]))
        free[agent] = started[-1] + ran[k]
    ends = [start + long for start, long in zip(started, ran, strict=True)]
    up = [k * 0.7 for k in range(n)]
    return jobs(n, pipeline=[f"pipeline {p}" for p in pipeline], runnable_at=at(*up), started_at=at(*started),
                finished_at=at(*ends), fetched_at=at(*[999] * n))  # fmt: skip


ALL = [
    (agents_needed, queued),
    (plots.calendar, builds),
    (plots.commit_grid, flipping),
    (concurrency, jobs),
    (plots.contention, busy_jobs),
    (plots.distribution, builds),
    (plots.duration_trend, builds),
    (explain, segments),
    (plots.flake_scores, flipping),
    (plots.flaky_board, flaky_tests),
    (plots.flips, flipping),
    (leverage, queued),
    (objective, builds),
    (queue_depth, jobs),
    (plots.queue_times_by_hour, lambda: jobs(40)),
    (step_graph, chains),
    (plots.step_times, lambda: pd.concat([jobs()] * 20, ignore_index=True)),
    (plots.success_trend, builds),
    (plots.survival, jobs),
    (plots.time_ledger, segments),
    (plots.time_spent, jobs),
    (plots.timeline, jobs),
    (trend, builds),
]
"""Each plot with a frame that it can draw."""


def laid_out(ax: plt.Axes) -> plt.Axes:
    """The Axes after a layout that measures all texts, which takes half as long as drawing pixels."""
    ax.figure.draw_without_rendering()
    return ax


def pixels(ax: plt.Axes) -> bytes:
    ax.figure.canvas.draw()
    return bytes(ax.figure.canvas.buffer_rgba())


class Drawn(NamedTuple):
    """A plot of its own, with the frame that it was given, and its pixels."""

    ax: plt.Axes
    frame: pd.DataFrame
    pixels: bytes


@functools.cache
def drawn(plot: Callable[..., plt.Axes], frame: Callable[[], pd.DataFrame]) -> Drawn:
    """Draw a frame once for all tests that only look at the plot."""
    made = frame()
    ax = plot(made)
    return Drawn(ax, made, pixels(ax))


def heading(ax: plt.Axes) -> plt.Text:
    """The title of a plot, which begins at the left."""
    _, left, _ = (one for one in ax.get_children() if isinstance(one, plt.Text) and one not in [*ax.texts])
    return left


def title(ax: plt.Axes) -> str:
    """The title without what the frame contains."""
    return _on_one_line(_split_title(ax)[0])


def scope(ax: plt.Axes) -> list[str]:
    """What the frame contains, by the title: pipeline, branch and period."""
    return [_on_one_line(part) for part in _split_title(ax)[1:]]


def _split_title(ax: plt.Axes) -> list[str]:
    """The heading, and the parts of the scope, which begins a line if both do not fit into one."""
    first, *others = ax.get_title(loc="left").split(SEPARATOR)
    return [*first.rsplit("\n", 1), *others] if others else [first]


def _on_one_line(text: str) -> str:
    return text.replace("\n", " ").replace("\N{NO-BREAK SPACE}", " ")


def note(ax: plt.Axes) -> str:
    """The line below the title."""
    return next((_on_one_line(text.get_text()) for text in ax.texts if getattr(text, "xy", None) == (0, 1)), "")


def legend(ax: plt.Axes) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def labels(ax: plt.Axes) -> list[str]:
    return [text.get_text() for text in ax.get_yticklabels()]


def ticks(ax: plt.Axes) -> list[plt.Text]:
    """The labels of both axes that are in sight."""
    found = []
    for axis, (low, high) in ((ax.xaxis, sorted(ax.get_xlim())), (ax.yaxis, sorted(ax.get_ylim()))):
        places = axis.get_majorticklocs()
        texts = axis.get_ticklabels() or [plt.Text()] * len(places)  # none in inner cells
        found += [text for text, place in zip(texts, places, strict=True) if low <= place <= high]
    return found


def bars(ax: plt.Axes, label: str) -> list[tuple[float, float, int]]:
    """From and to in minutes, and row, of the bars of one kind in a timeline."""
    boxes = [path.get_extents() for path in kinds(ax)[label].get_paths()] if label in kinds(ax) else []
    return [(box.x0 / 60, box.x1 / 60, round((box.y0 + box.y1) / 2)) for box in boxes]


def kinds(ax: plt.Axes) -> dict[str, PolyCollection]:
    """The bars of a timeline, or outages, by label."""
    return {one.get_label(): one for one in ax.collections if isinstance(one, PolyCollection)}


def marks(ax: plt.Axes, label: str) -> list[tuple[float, float]]:
    (line,) = (line for line in ax.lines if line.get_label() == label)
    return [(float(x), float(y)) for x, y in zip(line.get_xdata(orig=False), line.get_ydata(orig=False), strict=True)]


def overlaps(texts: list[plt.Text]) -> list[tuple[str, str]]:
    """Which of the texts that show anything lie over each other."""
    return overlapping(boxes_of(texts))


def boxes_of(texts: list[plt.Text]) -> list[tuple[str, Bbox]]:
    """The extents of the texts that show anything."""
    return [(text.get_text(), text.get_window_extent()) for text in texts if text.get_text() and text.get_visible()]


def overlapping(shown: list[tuple[str, Bbox]]) -> list[tuple[str, str]]:
    boxes = np.array([[box.x0, box.y0, box.x1, box.y1] for _, box in shown]).reshape(-1, 4)
    found = []
    for k, (x0, y0, x1, y1) in enumerate(boxes):
        meets = (boxes[:, 0] < x1 - 1) & (x0 < boxes[:, 2] - 1) & (boxes[:, 1] < y1 - 1) & (y0 < boxes[:, 3] - 1)
        found += [(shown[k][0], shown[m][0]) for m in np.flatnonzero(meets) if m > k]
    return found
