"""Properties of every plot."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import colors
from matplotlib import pyplot as plt

from buildframe import metrics, plots
from buildframe.plots import theme
from buildframe.plots.names import shortened, wrap_label
from tests.metrics.each_case import for_each
from tests.plots.plot_frames import (
    ALL,
    UGLY,
    at,
    builds,
    busy_jobs,
    concurrency,
    drawn,
    explain,
    flaky_tests,
    flipping,
    heading,
    jobs,
    labels,
    laid_out,
    legend,
    overlaps,
    pixels,
    queue_depth,
    ticks,
    title,
    trend,
)
from tests.refusals import refusal, wrong_messages

STAMPS = ("_at",)
DURATIONS = {
    "agents_needed", "contention", "distribution", "duration_trend", "explain", "leverage", "queue_times_by_hour",
    "step_times", "survival", "time_ledger", "time_spent", "timeline", "trend",
}  # fmt: skip
UNITS = {"s", "min", "h", "d", "seconds", "minutes", "hours"}


def test_every_public_plot_is_tested():
    """Except `explore`, which returns a widget and draws on no Axes: test_explore.py."""
    assert {plot.__name__ for plot, _ in ALL} == set(plots.__all__) - {"shortened", "explore"}


@for_each({"trend": (trend, builds), "contention": (plots.contention, busy_jobs)})
def test_ink_stands_out_from_white_if_the_figure_is_transparent(case):
    plot, frame = case
    _, ax = plt.subplots(facecolor="none")
    assert stands_out(plot(frame(), ax=ax), luminance("white"))


IN_OTHER_FIGURES = ("flips", "success_trend", "time_spent", "timeline", "trend")
"""Plots that are drawn in the figures of users on every change: a matrix, rates, bars, a build, and lines."""


REPLAYED = ("agents_needed", "leverage")
"""Plots of replays, which take longer than all else; test_plot_what_if.py draws them on every change."""


@pytest.mark.parametrize(
    ("plot", "frame"),
    [pytest.param(*one, id=one[0].__name__, marks=[pytest.mark.long] * (one[0].__name__ in REPLAYED)) for one in ALL],
)
def test_rules_of_each_plot(plot, frame):
    """Each is a function below, which says the rule."""
    same, seen = frame(), drawn(plot, frame)
    says_units_and_numbers(plot, seen.ax)
    nothing_overlaps_or_lies_outside(seen.ax)
    pd.testing.assert_frame_equal(seen.frame, same)
    assert seen.pixels == pixels(plot(same.iloc[::-1].reset_index(drop=True))), "the order of rows matters"
    says_in_words_that_there_are_no_rows(plot, same)
    names_a_missing_column_and_a_naive_time(plot, same)


@pytest.mark.parametrize(
    ("plot", "frame"),
    [
        pytest.param(*one, id=one[0].__name__, marks=[pytest.mark.long] * (one[0].__name__ not in IN_OTHER_FIGURES))
        for one in ALL
    ],
)
def test_rules_of_each_plot_in_figures_of_users_and_of_frames_of_nulls(plot, frame):
    draws_into_the_axes_given_in_legible_ink_and_leaves_settings_alone(plot, frame())
    draws_one_row_in_a_dark_notebook(plot, frame())
    says_in_words_that_all_is_null(plot, frame())


def says_units_and_numbers(plot, ax):
    said = " ".join([ax.get_xlabel(), ax.get_ylabel(), title(ax), *(text.get_text() for text in ax.texts)])
    ends = {text.get_text().split(" ")[-1] for text in ticks(ax)} | set(said.replace(",", "").split())
    assert bool(ends & UNITS) or plot.__name__ not in DURATIONS
    assert any(sign.isdigit() for sign in said + " ".join(legend(ax) if ax.get_legend() else []))


def nothing_overlaps_or_lies_outside(ax):
    texts = [heading(ax), *ax.texts, *ticks(ax), ax.xaxis.label, ax.yaxis.label]
    if ax.get_legend():
        texts += ax.get_legend().get_texts()
        assert ax.get_legend().get_window_extent().y0 >= ax.get_window_extent().y1 - 1
    assert overlaps(texts) == []
    whole, shown = ax.figure.bbox, ax.get_tightbbox()
    assert whole.x0 - 1 <= shown.x0
    assert whole.y0 - 1 <= shown.y0
    assert shown.x1 <= whole.x1 + 1
    assert shown.y1 <= whole.y1 + 1


def says_in_words_that_there_are_no_rows(plot, whole):
    ax = laid_out(plot(whole.iloc[:0]))
    assert [text.get_text()[-1] for text in ax.texts] == ["."]
    assert not ax.axison
    assert title(ax)


def says_in_words_that_all_is_null(plot, whole):
    if plot not in (explain, plots.flaky_board, plots.time_ledger):  # whose bars need no times
        nulls = {name: at(*[None] * len(whole)) for name in whole if name.endswith(STAMPS)}
        assert not plot(whole.assign(**nulls, state=None)).axison
        assert not plot(pd.DataFrame({name: [None, None] for name in whole})).axison


def names_a_missing_column_and_a_naive_time(plot, whole):
    name = {
        plots.flaky_board: "latest_occurrence_at",
        plots.success_trend: "created_at",
        plots.calendar: "created_at",
        plots.time_ledger: "build_created_at",
        explain: "build_created_at",
    }.get(plot)
    name = name or ("started_at" if plot in (concurrency, plots.queue_times_by_hour, plots.survival) else "finished_at")
    assert name in refusal(plot, whole.drop(columns=name))
    assert "no time zone" in refusal(plot, whole.assign(**{name: whole[name].dt.tz_localize(None)}))


def draws_into_the_axes_given_in_legible_ink_and_leaves_settings_alone(plot, whole):
    figure, axes = plt.subplots(1, 2, facecolor="black")
    before = dict(mpl.rcParams)
    assert plot(whole, ax=axes[1]) is axes[1]
    assert dict(mpl.rcParams) == before
    assert not axes[0].has_data()
    assert plt.get_fignums() == [figure.number]
    assert stands_out(laid_out(axes[1]), luminance("black"))


def draws_one_row_in_a_dark_notebook(plot, whole):
    with plt.style.context("dark_background"):
        ax = laid_out(plot(whole.iloc[:1]))
        assert title(ax)
        assert ax.axison or ax.texts[0].get_text().endswith(".")
        assert luminance(ax.figure.get_facecolor()) == luminance(ax.get_facecolor()) == 0
        assert min(luminance(text.get_color()) for text in (heading(ax), *ax.texts)) > 0.7
        assert not ax.axison or luminance(ax.get_xticklabels()[0].get_color()) > 0.7


def luminance(color: object) -> float:
    return float(np.dot(colors.to_rgb(color), (0.2126, 0.7152, 0.0722)))


def stands_out(ax: plt.Axes, behind: float) -> bool:
    """Whether all texts contrast with the luminance behind them."""
    texts = [heading(ax), ax.xaxis.label, ax.yaxis.label, *ax.get_xticklabels(), *ax.get_yticklabels()]
    texts += ax.get_legend().get_texts() if ax.get_legend() else []
    return all(abs(luminance(text.get_color()) - behind) > 0.5 for text in texts)


def test_settings_of_the_user_win_unless_text_would_be_illegible():
    style = {
        "figure.facecolor": "#002b36", "text.color": "#93a1a1", "grid.color": "#335566", "axes.titlesize": 17,
        "font.size": 14, "figure.figsize": (5, 3), "figure.dpi": 150,
    }  # fmt: skip
    with mpl.rc_context(style):
        ax = plots.time_spent(jobs())
        assert ax.figure.get_size_inches().tolist() == [5, 3]
        assert ax.figure.dpi == 150
        assert heading(ax).get_color() == "#93a1a1"
        assert heading(ax).get_fontsize() == 17
        assert ax.xaxis.get_gridlines()[0].get_color() == "#335566"
    with mpl.rc_context({"text.color": "#ffffee"}):
        ax = plots.time_spent(jobs())
        assert luminance(heading(ax).get_color()) < 0.3


def ugly_frame(plot):
    names = UGLY * 2
    if plot is plots.flaky_board:
        return flaky_tests(len(names), name=names, scope=names, location=names)
    if plot is plots.flips:
        return pd.concat([flipping(1).assign(name=name) for name in names[::2]], ignore_index=True)
    return jobs(len(names), name=names, queue=names, pipeline="$\\frac{")


NAMED = {
    "concurrency": concurrency, "flaky_board": plots.flaky_board, "flips": plots.flips, "queue_depth": queue_depth,
    "step_times": plots.step_times, "timeline": plots.timeline,
}  # fmt: skip


def draws_names_as_they_are(plot):
    ax = plot(ugly_frame(plot))
    texts = [*ax.get_yticklabels(), heading(ax), *(ax.get_legend().get_texts() if ax.get_legend() else [])]
    assert not any(text.get_parse_math() for text in texts if set(text.get_text()) - set("0123456789.,%"))
    laid_out(ax)
    assert max(len(line) for label in labels(ax) for line in label.split("\n")) <= 56


def test_names_are_drawn_as_they_are():
    draws_names_as_they_are(plots.time_spent)


@pytest.mark.long
@for_each(NAMED)
def test_names_are_drawn_as_they_are_by_other_plots(plot):
    draws_names_as_they_are(plot)


def test_a_queue_whose_name_begins_with_a_low_line_is_in_the_legend():
    frame = jobs(60, queue=["_under", "over"] * 30)
    ax = plots.trend(frame, of=metrics.queue_time, by="queue")
    assert "_under" in [label.strip() for label in legend(ax)]


def test_long_names_lose_their_middle():
    assert shortened("a" * 20 + "b" * 20, 11) == "aaaaa…bbbbb"
    assert shortened("a" * 20 + "b" * 20, 10) == "aaaaa…bbbb"
    assert shortened("a" * 11, 11) == "a" * 11
    assert shortened("テスト" * 20, 11) == "テス…スト"
    for width in range(1, 40):
        assert len(shortened("abc" * 30, width)) == width


@given(st.lists(st.text(st.sampled_from("ab x\n…‹2›"), max_size=30), unique=True, max_size=30), st.integers(8, 14))
def test_two_names_never_become_the_same_label(names, width):
    found = theme.unique_labels(names, width)
    assert sorted(found) == sorted(names)
    assert len(set(found.values())) == len(names)
    assert all(len(label) <= width for label in found.values())


def test_labels_do_not_depend_on_the_order_of_names():
    names = ["a" * k + "x" + "a" * (30 - k) for k in range(30)]
    assert theme.unique_labels(names, 10) == theme.unique_labels(names[::-1], 10)
    assert len(set(theme.unique_labels(names, 10).values())) == 30


def test_labels_keep_the_part_in_which_names_differ():
    names = [f"integration tests of the billing service, shard {k} of 12 on linux x86" for k in range(12)]
    labels = theme.unique_labels([*names, "unit"], 24)
    assert labels["unit"] == "unit"
    assert [f" {k} of" in labels[name] for k, name in enumerate(names)] == [True] * 12


_LONG = [
    f"payments-platform-{pipeline}-service-eu-west-1-production / integration-tests-{step}-with-postgres-and-redis"
    for pipeline in ("api", "web", "mobile")
    for step in ("e2e", "unit-a", "unit-b", "race-a")
]


def test_a_label_keeps_what_distinguishes_its_pipeline_and_its_step():
    for width, kind in ((36, ""), (24, ""), (44, " (run)"), (26, " (run)")):
        names = [name + kind for name in _LONG]
        for name, label in theme.unique_labels([*names, names[0].replace("api", "platform")], width).items():
            pipeline, step = label.split(" / ")
            assert name.split("-")[2] in pipeline
            assert name.split("tests-")[1].split("-")[0] in step
            assert label.endswith(kind)
            assert "‹" not in label


def test_a_label_of_one_row_keeps_what_distinguishes_it_from_rows_that_are_not_shown():
    assert theme.unique_labels(_LONG[:1], 36, among=_LONG) == {_LONG[0]: theme.unique_labels(_LONG, 36)[_LONG[0]]}
    assert "e2e" in theme.unique_labels(_LONG[:1], 36, among=_LONG)[_LONG[0]]


def test_a_label_is_wrapped_between_pipeline_and_step_and_within_a_word_only_if_none_ends_near_its_middle():
    assert wrap_label("pipeline-one / a-step", 16) == "pipeline-one /\na-step"
    assert wrap_label("pipeline-one / a-step", 21) == "pipeline-one / a-step"
    assert wrap_label("integrat…tests-bundle-wit…", 13) == "integrat…tests-\nbundle-wit…"
    assert wrap_label("x" * 30, 15) == "x" * 15 + "\n" + "x" * 15


@pytest.mark.long
def test_rows_of_long_names_have_two_lines():
    jobs_of_two = pd.concat([flipping(4).assign(pipeline=name.split(" / ")[0]) for name in _LONG[::4]])
    frame = jobs_of_two.assign(step_key=[f"integration-tests-{name[5:]}-with-postgres" for name in jobs_of_two["name"]])
    for plot in (plots.commit_grid, plots.flips, plots.flake_scores, plots.time_spent):
        named = [label for label in labels(plot(frame)) if " /\n" in label]
        assert len(named) == 12, plot
        assert {word for label in named for word in ("api", "web", "mobile") if word in label} == {
            "api",
            "web",
            "mobile",
        }


@pytest.mark.long
def test_names_of_steps_are_whole_in_cells_of_a_wide_figure():
    frame = pd.concat(
        [flipping(1).assign(name=f"step {k}", pipeline=f"p{k}", step_key="integration") for k in range(3)]
    )
    assert {label.split("  (")[0] for ax in plots.commit_grid(frame, col="pipeline") for label in labels(ax)} == {
        "all steps",
        "integration",
    }


def test_an_error_suggests_what_is_meant():
    assert wrong_messages([
        ("of='wall_time'", lambda: plots.trend(builds(), of="wall_time")),
        ("Did you mean metrics.wall_time", lambda: plots.trend(builds(), of="wall_time")),
        ("Did you mean metrics.queue_time", lambda: plots.survival(jobs(), of="queu_time")),
        ("Did you mean 'took'", lambda: plots.distribution(builds().assign(took=1.0), of="tok")),
        ("Pass a ledger from metrics.time_ledger", lambda: plots.time_ledger(builds())),
        ("Pass a ledger from metrics.time_ledger", lambda: plots.time_ledger(jobs())),
        ("freq='daily' is not a frequency of pandas. Use one such as '1h', '1D'",
         lambda: plots.trend(builds(), freq="daily")),
    ]) == {}  # fmt: skip


def test_a_branch_without_builds_is_named_with_the_nearest_one():
    shown = [plots.success_trend(builds(), branch=branch).texts[0].get_text() for branch in ("mainn", "x")]
    assert [text.replace("\n", " ") for text in shown] == [
        "No build of the branch mainn passed or failed. Did you mean main?",
        "No build of the branch x passed or failed.",
    ]


@pytest.mark.long
def test_the_threshold_of_flake_scores_does_not_lead_through_a_label():
    ax = laid_out(plots.flake_scores(flipping(8, 70), threshold=0.3))
    at_line = ax.transData.transform((30, 0))[0]
    percents = [text.get_window_extent() for text in ax.texts if text.get_text().endswith(" %")]
    assert len(percents) == 8
    assert not any(box.x0 <= at_line <= box.x1 for box in percents)
