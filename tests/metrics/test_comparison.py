from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import false_discovery_control, lognorm, ranksums

from buildframe import metrics
from buildframe.errors import BadInput
from buildframe.metrics.clustering import Segments, Spread, effective_sizes
from buildframe.metrics.comparison import newcombe
from buildframe.metrics.rates import wilson
from tests.metrics.each_case import for_each
from tests.metrics.metric_frames import START, UTC, at
from tests.refusals import wrong_messages

# Most worlds below have both periods at the same time.
percentile_change, build_success_change, job_failure_change = (
    functools.partial(summary, allow_reversed=True)
    for summary in (metrics.percentile_change, metrics.build_success_change, metrics.job_failure_change)
)


NEWCOMBE = {
    ((56, 70), (48, 80)): (0.0524, 0.3339),
    ((9, 10), (3, 10)): (0.1705, 0.8090),
    ((6, 7), (2, 7)): (0.0582, 0.8062),
    ((5, 56), (0, 29)): (-0.0381, 0.1926),
    ((0, 10), (0, 20)): (-0.1611, 0.2775),
    ((0, 10), (0, 10)): (-0.2775, 0.2775),
    ((10, 10), (0, 20)): (0.6791, 1.0000),
    ((10, 10), (0, 10)): (0.6075, 1.0000),
}
"""Statistics in Medicine 17 (1998), 873-890, table II, method 10."""


def test_newcombe_by_himself():
    found = {}
    for now, before in NEWCOMBE:
        change, *limits = newcombe(*now, *before)
        assert change == pytest.approx(now[0] / now[1] - before[0] / before[1])
        found[now, before] = tuple(np.round(limits, 4).tolist())
    assert found == NEWCOMBE


def test_newcombe_of_nothing():
    assert all(np.isnan(newcombe(0, 0, 3, 4)))


counted = st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(counted, counted, st.floats(0.1, 0.99))
def test_newcombe_holds_the_difference_and_turns_round(now, before, confidence):
    change, low, high = newcombe(*now, *before, confidence)
    assert -1 - 1e-12 <= low <= change <= high <= 1 + 1e-12
    np.testing.assert_allclose(newcombe(*before, *now, confidence), [-change, -high, -low], atol=1e-12)


def on_days(days: list[int] | np.ndarray) -> pd.Series:
    return pd.Series(START + pd.to_timedelta(np.array(days), unit="D"), dtype=UTC)


def builds(day: int = 0, **states: int) -> pd.DataFrame:
    whole = [state for state, many in states.items() for _ in range(many)]
    return pd.DataFrame({"state": pd.Series(whole, dtype="str"), "created_at": on_days([day] * len(whole))}).assign(
        blocked=pd.array([False] * len(whole), "boolean")
    )


Days = tuple[list[int], list[int]]


def measure_spread(hits: npt.ArrayLike, sizes: npt.ArrayLike) -> tuple[float, float, float]:
    """Return rows, days and ratio of a group with these hits and rows of each day."""
    sizes = np.asarray(sizes, np.float64)
    segments = Segments(np.zeros(len(sizes), np.int64), sizes, np.asarray(hits, np.float64), 1)
    rows, days, ratio = (float(value[0]) for value in segments.spread())
    return rows, days, ratio


def effective_size_of(now: Days, before: Days, confidence: float = 0.95) -> tuple[float, float]:
    """Return the effective sizes of a group that is alone."""
    sides = [Spread(*(np.array([value]) for value in measure_spread(*days))) for days in (now, before)]
    one, other, _ = effective_sizes(*sides, confidence)
    return float(one[0]), float(other[0])


def test_effective_sizes_of_an_example():
    """Four days of ten builds, of which all pass or none: the variance is 13 1/3 times that of single builds."""
    uneven, even = ([10, 0, 10, 0], [10] * 4), ([5] * 4, [10] * 4)
    assert measure_spread(*uneven) == (40, 4, pytest.approx(40 / 3))
    assert effective_size_of(uneven, uneven)[0] == pytest.approx(
        40 / (40 / 3) * (2.022691 / 2.446912) ** 2, rel=1e-5
    )  # t 39, 6
    assert effective_size_of(even, even)[0] == pytest.approx(40 * (2.022691 / 2.446912) ** 2, rel=1e-5)  # as they are
    assert effective_size_of(uneven, even)[0] == pytest.approx(
        40 / (20 / 3) * (2.022691 / 2.446912) ** 2, rel=1e-5
    )  # both count
    assert np.isnan(effective_size_of(([5], [10]), uneven)).tolist() == [True, False]  # too few days for a single one
    assert 0 < effective_size_of(([5], [10]), ([5, 6, 4] * 3, [10] * 9))[0] <= 10
    assert np.isnan(measure_spread([0, 0], [10, 10])[2])  # that never any failed says nothing of days
    assert effective_size_of(([0, 0], [10, 10]), ([0, 0], [10, 10]))[0] < 20


def test_groups_share_how_days_spread():
    """Many that spread as chance makes them leave a group's own few days less to be guessed; one bad day stays one."""
    random = np.random.default_rng(1)
    days, many = 7, 50
    sides = []
    for _ in range(2):
        result = [measure_spread(random.binomial(20, 0.4, days), [20] * days) for _ in range(many)]
        result[-1] = measure_spread([0] * (days - 1) + [20], [20] * days)
        sides.append(Spread(*(np.array(column) for column in zip(*result, strict=True))))
    sizes, _, _ = effective_sizes(*sides, 0.9995)
    alone = effective_sizes(*(Spread(*(column[:1] for column in (s.rows, s.days, s.ratio))) for s in sides), 0.9995)
    assert sizes[0] > 1.3 * alone[0][0]
    assert np.median(sizes[:-1]) > 100
    assert sizes[-1] < 10


@pytest.mark.long
@given(st.lists(counted, min_size=2, max_size=20), st.floats(0.5, 0.999))
def test_effective_sizes_never_exceed_the_rows(days, confidence):
    hits, sizes = zip(*days, strict=True)
    result, _ = effective_size_of((hits, sizes), (hits, sizes), confidence)
    assert np.isnan(result) or 0 < result <= sum(sizes) + 1e-6


def test_days_are_those_of_a_zone():
    """In Berlin the second and third time are one day, in UTC the first and second; no time is a day of its own."""
    frame = pd.DataFrame({"created_at": at(*[23 * 60 - 1] * 4, *[23 * 60] * 4, *[25 * 60] * 4, *[None] * 4)})
    passes = [*[True] * 4, *[False] * 4, *[True, False] * 4]
    frame["state"] = pd.Series(np.where(passes, "passed", "failed"), dtype="str")
    frame["blocked"] = pd.array([False] * len(frame), "boolean")
    days = {"UTC": ([4, 2, 2], [8, 4, 4]), "Europe/Berlin": ([4, 2, 2], [4, 8, 4])}
    sizes = {tz: effective_size_of(of_zone, of_zone)[0] for tz, of_zone in days.items()}
    assert sizes["UTC"] > 1.5 * sizes["Europe/Berlin"]
    for tz, size in sizes.items():
        (row,) = build_success_change(frame, frame, tz=tz).to_dict("records")
        expected = [float(end) for end in wilson(size / 2, size)]
        assert [row["rate_low"], row["rate_high"]] == pytest.approx(expected), tz


def test_success_of_two_periods():
    days = [builds(day, passed=14, failed=4, canceled=3) for day in range(4)]
    now = pd.concat([*days, builds(passed=3).assign(pipeline="new")]).fillna({"pipeline": "web"})
    before = pd.concat(
        [builds(0, passed=30, failed=2, running=2), builds(1, passed=18, failed=30)], ignore_index=True
    ).assign(pipeline="web")
    before = pd.concat([before, builds(failed=4).assign(pipeline="old")])
    result = build_success_change(before, now, by="pipeline").set_index("pipeline")
    assert result.index.tolist() == ["new", "old", "web"]
    assert result.loc["web", ["passed", "n", "passed_before", "n_before"]].tolist() == [56, 72, 48, 80]
    sizes = effective_size_of(([14] * 4, [18] * 4), ([30, 18], [32, 48]))
    assert sizes[1] < 10  # two days that differ hold next to no information
    change, low, high = newcombe(56 / 72 * sizes[0], sizes[0], 48 / 80 * sizes[1], sizes[1])
    assert result.loc["web", ["change", "low", "high"]].tolist() == pytest.approx([change, low, high])
    assert result.loc["web", ["rate", "rate_before"]].tolist() == pytest.approx([56 / 72, 0.6])
    own = [float(end) for end in wilson(56 / 72 * sizes[0], sizes[0])]
    assert result.loc["web", ["rate_low", "rate_high"]].tolist() == pytest.approx(own)
    assert result["n_before"].tolist() == [0, 4, 80]
    assert result.loc[["new", "old"], ["change", "low", "high"]].isna().all(axis=None)
    assert build_success_change(before, now)["n"].tolist() == [75]


def test_failures_of_two_periods():
    def ran(day: int, **states: int) -> pd.DataFrame:
        jobs = builds(day, **states).rename(columns={"created_at": "finished_at"})
        jobs = jobs.assign(type="script", soft_failed=pd.array([False] * len(jobs), "boolean"))
        others = jobs.assign(type="manual"), jobs[jobs["state"] == "failed"].assign(soft_failed=True)
        return pd.concat([jobs, *others], ignore_index=True).assign(step="rspec")

    now = pd.concat([ran(0, failed=30, passed=7, canceled=5), ran(1, timed_out=26, passed=7)])
    before = pd.concat([ran(0, failed=24, passed=16, running=2), ran(1, failed=24, passed=16)])
    result = job_failure_change(before, now, by="step").iloc[0]
    assert result[["failed", "n", "failed_before", "n_before"]].tolist() == [56, 70, 48, 80]
    assert result[["rate", "rate_before"]].tolist() == [0.8, 0.6]
    assert result["low"] < 0.2 < result["high"]
    only_canceled = job_failure_change(before, ran(0, canceled=3), by="step").iloc[0]
    assert only_canceled["n"] == 0
    assert np.isnan(only_canceled["rate"])


def test_a_rate_that_fell_on_every_day_is_found():
    now = pd.concat([builds(day, passed=14, failed=6) for day in range(7)])
    before = pd.concat([builds(day, passed=18 + day % 3, failed=2 - day % 3) for day in range(7)])
    result = build_success_change(before, now).iloc[0]
    assert result["high"] < 0
    one_bad_day = pd.concat([builds(day, passed=19, failed=1) for day in range(6)] + [builds(6, failed=40)])
    result = build_success_change(before, one_bad_day).iloc[0]
    assert result["change"] < -0.2
    assert result["high"] > 0


def seconds(*values: float, days: int = 10, **more: object) -> pd.DataFrame:
    """Values that take turns on so many days."""
    return pd.DataFrame({"x_s": np.array(values, float), "created_at": on_days(np.arange(len(values)) % days), **more})


def test_percentiles_of_two_periods_by_hand():
    """Medians of 0 to 100 and of 20 to 60, which lie alike on ten days."""
    now, before = seconds(*range(101)), seconds(*range(20, 61))
    result = percentile_change(before, now, of="x_s").iloc[0]
    assert result[["n", "n_before", "p50_s", "p50_before_s", "p50_change_s"]].tolist() == [101, 41, 50, 40, 10]

    def up_to_the_middle(values: range) -> Days:
        n = len(values)
        return tuple(np.bincount(np.arange(m) % 10, minlength=10) for m in (n // 2 + 1, n))

    def ends(values: range, size: float) -> tuple[int, int]:
        """Ranks at the ends of Wilson's interval, of the effective size."""
        n, middle = len(values), len(values) // 2
        low, high = wilson(size / 2, size)
        return middle - (int(np.floor(low * n)) - 1), int(np.ceil(high * n)) - middle

    sizes = effective_size_of(up_to_the_middle(range(101)), up_to_the_middle(range(20, 61)))
    (down, up), (down_before, up_before) = ends(range(101), sizes[0]), ends(range(20, 61), sizes[1])
    assert (down, up) == (11, 11)
    assert result["p50_change_low_s"] == pytest.approx(10 - np.hypot(down, up_before))
    assert result["p50_change_high_s"] == pytest.approx(10 + np.hypot(up, down_before))


def test_too_few_rows_for_a_percentile_have_no_interval():
    rows = seconds(*range(19))
    result = percentile_change(rows, rows, of="x_s", q=(0.5, 0.95)).iloc[0]
    assert result.filter(like="p95").drop("p95_notable").isna().all()
    assert not result["p95_notable"]
    bounds = [f"p50{end}_at_least_s" for end in ("", "_before")]
    assert result.filter(like="p50").drop(bounds).notna().all()
    assert result[bounds].isna().all()


def test_groups_of_one_period_only():
    now = seconds(1, 2, 3, queue=pd.Series(["a", "a", None], dtype="str"))
    before = seconds(4, queue=pd.Series(["b"], dtype="str"))
    result = percentile_change(before, now, of="x_s", by="queue", q=(0.5, 0.95))
    assert result["queue"].isna().tolist() == [False, False, True]
    assert result["n"].tolist() == [2, 0, 1]
    assert result["n_before"].tolist() == [0, 1, 0]
    assert result.filter(like="change").isna().all(axis=None)
    nothing = percentile_change(before.iloc[:0], now.iloc[:0], of="x_s", by="queue")
    assert nothing.empty
    assert list(nothing) == list(percentile_change(before, now, of="x_s", by="queue"))


def of_busy_days(shape: str, spread: float, random: np.random.Generator, groups: int = 300) -> pd.DataFrame:
    """Weeks of 20 to 60 rows a day, which are longer on some days than on others."""
    sizes = random.integers(20, 60, (groups, 7))
    day = np.repeat(np.tile(np.arange(7), groups), sizes.ravel())
    group = np.repeat(np.repeat(np.arange(groups), 7), sizes.ravel())
    busy = np.exp(random.normal(0, spread, (groups, 7)))[group, day]
    values = {"lognormal": random.lognormal(3, 0.8, len(day)), "uniform": random.random(len(day))}[shape] * busy
    return pd.DataFrame({"x_s": values, "created_at": on_days(day), "g": group})


@pytest.mark.parametrize(
    ("shape", "spread"),
    [
        ("lognormal", 0.3),
        *(pytest.param(*one, marks=pytest.mark.long) for one in (("lognormal", 0.0), ("uniform", 0.0))),
        pytest.param("uniform", 0.3, marks=pytest.mark.long),
    ],
)
def test_as_many_intervals_hold_no_change_as_they_promise(shape, spread):
    """Of 300 pairs of weeks of one kind; 3.5 standard deviations below the promise would be a lie."""
    random = np.random.default_rng(5)
    now, before = (of_busy_days(shape, spread, random) for _ in range(2))
    for confidence in (0.8, 0.95, 0.995):
        result = percentile_change(before, now, of="x_s", by="g", q=(0.5, 0.9), confidence=confidence)
        for p in ("p50", "p90"):
            low, high = result[f"{p}_change_low_s"], result[f"{p}_change_high_s"]
            outside = (low > 0) | (high < 0)
            assert 1 - outside.mean() >= confidence - 3.5 * np.sqrt(confidence * (1 - confidence) / 300), confidence
            assert (low.notna() & high.notna()).mean() > 0.5 or (p, confidence) == ("p90", 0.995)


@pytest.mark.long
def test_rows_that_were_taken_as_independent_would_find_changes_by_chance():
    random = np.random.default_rng(5)
    frames = [of_busy_days("lognormal", 0.5, random) for _ in range(2)]
    values = [[own["x_s"] for _, own in frame.groupby("g")] for frame in frames]
    naive = [ranksums(one, other).pvalue for one, other in zip(*values, strict=True)]
    assert np.mean(np.array(naive) < 0.05) > 0.5
    result = percentile_change(*frames, of="x_s", by="g")
    assert (result["p50_change_p"] < 0.05).mean() < 0.08


def test_a_change_is_found_and_signed():
    random = np.random.default_rng(6)
    now, before = seconds(*random.lognormal(0.5, 0.5, 300)), seconds(*random.lognormal(0, 0.5, 300))
    slower, faster = (percentile_change(*pair, of="x_s").iloc[0] for pair in ((before, now), (now, before)))
    assert slower["p50_change_low_s"] > 0
    assert faster["p50_change_high_s"] < 0
    assert faster["p50_change_low_s"] == pytest.approx(-slower["p50_change_high_s"])


@pytest.mark.long
def test_a_p_value_belongs_to_its_interval():
    random = np.random.default_rng(8)
    now, before = (of_busy_days("lognormal", 0.3, random, 60) for _ in range(2))
    now.loc[now["g"] < 10, "x_s"] *= 2.5
    result = percentile_change(before, now, of="x_s", by="g")
    p, low, high = (result[f"p50_change_{end}"] for end in ("p", "low_s", "high_s"))
    excludes = (low > 0) | (high < 0)
    assert 5 < excludes.sum() < 20
    assert (excludes == (p < 0.05)).all()
    wider = percentile_change(before, now, of="x_s", by="g", confidence=0.99)
    np.testing.assert_allclose(np.log(wider["p50_change_p"]), np.log(p), rtol=0.6)
    notable = result["p50_notable"].to_numpy(bool)
    by_definition = false_discovery_control(p) <= 0.05
    assert (notable == by_definition).all()
    assert notable.sum() < excludes.sum()


def test_few_days_have_no_interval():
    result = percentile_change(seconds(*range(50), days=3), seconds(*range(50), days=1), of="x_s").iloc[0]
    assert result["p50_change_s"] == 0
    assert result[["p50_change_low_s", "p50_change_high_s", "p50_change_p"]].isna().all()
    assert not result["p50_notable"]


def with_day_effects(days: int, groups: int, random: np.random.Generator, rate: float = 0.8) -> pd.DataFrame:
    """Builds of groups, 15 a day, of which on each day another share passes."""
    share = random.beta(15 * rate, 15 * (1 - rate), (groups, days))
    group, day, _ = (axis.ravel() for axis in np.indices((groups, days, 15)))
    state = np.where(random.random(len(group)) < share[group, day], "passed", "failed")
    frame = pd.DataFrame({"state": pd.Series(state, dtype="str"), "created_at": on_days(day), "g": group})
    return frame.assign(blocked=pd.array([False] * len(frame), "boolean"), x_s=random.lognormal(3, 0.5, len(frame)))


@pytest.mark.long
@pytest.mark.parametrize(("days", "days_before"), [(1, 28), (7, 7), (28, 28)])
def test_p_values_are_as_small_by_chance_as_they_say(days, days_before):
    """Of 400 comparisons with day effects; 3.5 standard deviations above the level would be a lie."""
    random = np.random.default_rng(9)
    now, before = (with_day_effects(each, 400, random) for each in (days, days_before))
    p = build_success_change(before, now, by="g")["p"]
    q = percentile_change(before, now, "x_s", by="g")["p50_change_p"]
    for values in (p, q):
        assert values.isna().mean() < 0.05
        for level in (0.01, 0.05):
            assert (values < level).mean() < level + 3.5 * np.sqrt(level * (1 - level) / 400)


def test_one_day_is_compared_with_the_weeks_before():
    random = np.random.default_rng(10)
    day, before = with_day_effects(1, 50, random, rate=0.35), with_day_effects(28, 50, random, rate=0.9)
    result = build_success_change(before, day, by="g")
    assert result["notable"].mean() > 0.8
    assert (result["change"] < 0).all()


def test_a_fall_that_a_week_does_not_show_is_seen_in_four():
    random = np.random.default_rng(11)
    weeks = [with_day_effects(28, 60, random, rate) for rate in (0.88, 0.68)]
    last = [frame[frame["created_at"] >= START + pd.Timedelta(21, "D")] for frame in weeks]
    found = [(build_success_change(*pair, by="g")["p"] < 0.05).mean() for pair in (last, weeks)]
    assert found[0] < 0.9 < found[1]


def as_jobs(rows: pd.DataFrame, limits: np.ndarray) -> pd.DataFrame:
    """Jobs that become runnable at `created_at` and wait for `x_s`, seen to wait no longer than these limits."""
    ended = rows["x_s"].where(rows["x_s"] <= limits)
    stamps = {"started_at": ended, "fetched_at": ended.fillna(pd.Series(limits, rows.index))}
    times = {name: rows["created_at"] + pd.to_timedelta(own, unit="s").dt.floor("us") for name, own in stamps.items()}
    frame = rows.drop(columns="x_s").assign(type="script", runnable_at=rows["created_at"], **times)
    return frame.astype(dict.fromkeys(("runnable_at", *times), UTC))


def censored(rows: pd.DataFrame, share: float, random: np.random.Generator) -> pd.DataFrame:
    """Jobs of which this share is not seen to start, in each group."""
    return as_jobs(rows, random.exponential(rows["x_s"].mean() / share, len(rows)))


@pytest.mark.parametrize(
    ("spread", "factor"),
    [(0.3, 1.0), *(pytest.param(*one, marks=pytest.mark.long) for one in ((0.0, 1.0), (0.0, 1.5), (0.3, 1.5)))],
)
def test_intervals_of_censored_rows_hold_the_change_as_often_as_they_promise(spread, factor):
    """Of 400 pairs of weeks with a tenth of the jobs censored; 3.5 standard deviations would be a lie."""
    random = np.random.default_rng(12)
    weeks = [of_busy_days("lognormal", spread, random, 400) for _ in range(2)]
    now = censored(weeks[0].assign(x_s=factor * weeks[0]["x_s"]), 0.1, random)
    before = censored(weeks[1], 0.1, random)
    assert now["started_at"].isna().mean() == pytest.approx(0.09, abs=0.02)
    result = percentile_change(before, now, metrics.queue_time, by="g", q=(0.5, 0.9))
    for p in ("p50", "p90"):
        low, high, p_value = (result[f"{p}_change_{end}"] for end in ("low_s", "high_s", "p"))
        is_known = low.notna() & high.notna()
        assert is_known.mean() > 0.9
        change = (factor - 1) * lognorm.ppf(int(p[1:]) / 100, np.hypot(0.8, spread), scale=np.exp(3))
        assert ((low <= change) & (change <= high))[is_known].mean() >= 0.92
        for level in (0.01, 0.05) if factor == 1 else ():
            assert (p_value < level).mean() < level + 3.5 * np.sqrt(level * (1 - level) / 400)


def test_censored_rows_neither_hide_nor_make_a_change():
    """Waits double; of the later ones, as many are cut short that the median of those that started is too low."""
    random = np.random.default_rng(13)
    rows = of_busy_days("lognormal", 0.1, random, 100)
    before, same = censored(rows, 0.05, random), censored(of_busy_days("lognormal", 0.1, random, 100), 0.5, random)
    slower = censored(rows.assign(x_s=2 * rows["x_s"]), 0.5, random)
    result = [percentile_change(before, now, metrics.queue_time, by="g") for now in (same, slower)]
    assert [each["p50_notable"].mean() for each in result] == [pytest.approx(0, abs=0.02), pytest.approx(1, abs=0.02)]
    truth = np.exp(3)
    assert result[1]["p50_s"].median() == pytest.approx(2 * truth, rel=0.06)
    started = slower[slower["started_at"].notna()].drop(columns="fetched_at")
    assert metrics.percentiles(started, by="g", q=0.5)["p50_s"].median() < 1.8 * truth


OPEN = as_jobs(seconds(*[60] * 100, *[1e6] * 30), np.array([1e6] * 100 + [7200] * 30))
"""100 jobs that waited a minute, and 30 that have waited for two hours."""


def test_of_a_percentile_that_is_censored_a_lower_bound_is_known():
    now, before = OPEN, as_jobs(seconds(*[60] * 90, *[600] * 40), np.full(130, 1e6))
    for one, other, end in ((before, now, ""), (now, before, "_before")):
        result = percentile_change(one, other, metrics.queue_time, q=(0.5, 0.95)).iloc[0]
        assert result[[f"n{end}", f"n_censored{end}", f"p50{end}_s"]].tolist() == [100, 30, 60]
        assert result[f"p95{end}_at_least_s"] == 7200
        unknown = [f"p95{end}_s", "p95_change_s", "p95_change_low_s", "p95_change_high_s", "p95_change_p"]
        assert result[unknown].isna().all()
        assert not result["p95_notable"]
        others = {"", "_before"} - {end}
        assert result[[f"p50{end}_at_least_s", *(f"p95{other}_at_least_s" for other in others)]].isna().all()


def test_rows_that_are_not_censored_count_as_before():
    """With an end of every row, Kaplan and Meier's curve is the share of rows."""
    random = np.random.default_rng(14)
    rows = [of_busy_days("lognormal", 0.3, random, 20) for _ in range(2)]
    jobs = [as_jobs(each.assign(x_s=each["x_s"].round(6)), np.full(len(each), 1e6)) for each in rows]
    q = (0.1, 0.5, 0.9)
    result = percentile_change(*jobs, metrics.queue_time, by="g", q=q)
    plain = percentile_change(*(each.assign(x_s=each["x_s"].round(6)) for each in rows), "x_s", by="g", q=q)
    pd.testing.assert_frame_equal(result, plain.assign(n_censored=0, n_censored_before=0), check_dtype=False, atol=2e-6)


def test_times_of_builds():
    now = pd.DataFrame({"created_at": at(0, 1, 2), "finished_at": at(10, None, 12)})
    result = percentile_change(now.assign(finished_at=at(5, 6, 7)), now).iloc[0]
    assert result[["n", "n_censored", "p50_s", "p50_before_s", "p50_change_s"]].tolist() == [2, 1, 600, 300, 300]


def test_bad_input():
    frame, one = seconds(1, 2), builds(passed=1)
    assert wrong_messages([
        ("confidence=1", lambda: percentile_change(frame, frame, of="x_s", confidence=1.0)),
        ("q=2", lambda: percentile_change(frame, frame, of="x_s", q=2)),
        ("no column 'y_s'", lambda: percentile_change(frame, frame, of="y_s")),
        ("tz='Mars'", lambda: percentile_change(frame, frame, of="x_s", tz="Mars")),
        ("confidence=2", lambda: build_success_change(one, one, confidence=2)),
        ("confidence=2", lambda: newcombe(1, 2, 1, 2, confidence=2)),
    ]) == {}  # fmt: skip


COMPARISONS = {
    "percentile_change": metrics.percentile_change,
    "build_success_change": metrics.build_success_change,
    "job_failure_change": functools.partial(metrics.job_failure_change, at="created_at"),
    "explain": metrics.explain,
}


def three_days(*days: int) -> pd.DataFrame:
    """One row a day that every comparison accepts: a build, a job and a segment of a ledger."""
    return pd.DataFrame(
        {
            "id": [str(day) for day in days], "build_id": [str(day) for day in days], "type": "script",
            "state": "passed", "soft_failed": False, "blocked": False, "created_at": on_days(list(days)),
            "build_created_at": on_days(list(days)), "finished_at": on_days([9] * len(days)), "kind": "run",
            "pipeline": "web", "step": "test", "queue": "default", "duration_s": 60.0,
        }
    )  # fmt: skip


@for_each({name: name for name in COMPARISONS})
def test_periods_in_the_other_order_are_refused(name):
    compare = COMPARISONS[name]
    early, late, both = three_days(1, 2), three_days(3, 4), three_days(0, 3)
    if name == "percentile_change":
        compare = functools.partial(compare, of="duration_s")
    compare(early, late)
    with pytest.raises(BadInput, match="swap the frames"):
        compare(late, early)
    with pytest.raises(BadInput, match="overlap"):
        compare(early, both)
    compare(late, early, allow_reversed=True)


def test_a_time_that_one_frame_lacks_does_not_hide_that_the_frames_are_swapped():
    """No build of days 3 and 4 has ended, so its end says nothing; its creation is later than days 1 and 2."""
    early, late = three_days(1, 2), three_days(3, 4)
    late["finished_at"] = pd.Series(pd.NaT, late.index, dtype=early["finished_at"].dtype)
    with pytest.raises(BadInput, match="swap the frames"):
        metrics.build_success_change(late, early)
    assert metrics.build_success_change(early, late)["n"].tolist() == [2]


def test_one_late_end_does_not_hide_that_the_frames_are_swapped():
    """`late` was created and ended after `early` was created; but one build of `early` ended on day 9."""
    early = three_days(1, 2).assign(finished_at=pd.to_datetime([START + pd.Timedelta("9D"), None]))
    late = three_days(5, 6).assign(finished_at=on_days([7, 8]))
    with pytest.raises(BadInput, match="`after`, by 'created_at'"):
        metrics.build_success_change(late, early)


def test_jobs_that_are_split_by_the_creation_of_their_builds_may_overlap_by_their_ends():
    """The last job of the earlier period ends on day 5, after one of the later period that ends on day 4."""
    early = three_days(1, 2).assign(finished_at=on_days([1, 5]))
    late = three_days(3, 4).assign(finished_at=on_days([4, 4]))
    assert metrics.job_failure_change(early, late)["n"].tolist() == [2]
