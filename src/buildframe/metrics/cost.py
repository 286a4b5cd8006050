"""Price the machine time of jobs, and its wasted part."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import Floats
from buildframe.metrics.grouping import By, as_key_list, key_name
from buildframe.metrics.input_frames import Frame, column_names
from buildframe.metrics.queues import KnownQueue, find_queues, list_queues
from buildframe.metrics.waste import waste
from buildframe.terminal import show

OTHERS = "*"
"""Name of the rate for all queues without their own."""

_WASTED = ("retried", "canceled", "after_failure", "repeated")
_COUNTS = ["n", "n_no_rate", "n_running", "n_no_end", "n_negative"]
_SUMS = ["machine_s", "no_rate_s", "cost", *(f"{name}_cost" for name in _WASTED)]
_COLUMNS = [
    "n",
    "n_no_rate",
    *_SUMS,
    "wasted_cost",
    "wasted_share",
    "n_running",
    "n_no_end",
    "n_negative",
]


@checked_names
def cost(jobs: Frame, rates: Mapping[str, float], by: By = None) -> pd.DataFrame:
    """
    Compute what machine time costs, and which share of it is wasted.

    Each minute of run time costs the rate of the job's queue, in every attempt. The wasted share is
    that of `waste`.

    Parameters
    ----------
    jobs : DataFrame
        Jobs of pandas, Polars (eager or lazy), DuckDB or PySpark with `queue` and the columns that
        `waste` needs, fetched with `include_retried_jobs=True` and with unique ids.
    rates : mapping of str to float
        Price of a minute by `queue_id`, name or key of a queue, in any currency. If several are
        given, the first of these counts. In each organization, at most one queue of a key may lack
        a rate by its id or name. The rate `"*"` is that of all other queues, and of jobs without a
        queue.
    by : str, function or list of these, optional
        Keys that define the groups, as in `percentiles`. By default all rows form one group.

    Returns
    -------
    pandas.DataFrame
        One row per group, ordered by key. An empty frame gives no rows. After the keys:

        ================== ======= ====================================================================
        n                  Int64   script jobs that ran and ended
        n_no_rate          Int64   jobs of these in queues without a rate; not in the cost
        machine_s          float64 seconds of run time of every attempt
        no_rate_s          float64 seconds of these in queues without a rate; not in the cost
        cost               float64 price of the other seconds; NaN if jobs ran, but none has a rate
        retried_cost       float64 part of the cost for attempts that a retry superseded
        canceled_cost      float64 part for jobs that were canceled while they ran
        after_failure_cost float64 part for work after the first hard failure of a build
        repeated_cost      float64 part for builds that repeated the outcome of their commit
        wasted_cost        float64 sum of these four parts
        wasted_share       float64 `wasted_cost / cost`; NaN if the cost is not above 0
        n_running          Int64   jobs that started and are not over; in none of the sums
        n_no_end           Int64   jobs that started and are over, but whose end is unknown; in none of
                                   the sums
        n_negative         Int64   run times below zero, from clocks that disagree; included
        ================== ======= ====================================================================

        `attrs["unused_rates"]` lists the queues with a rate in which no job ran: check their names.

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, a column of states holds an unknown
        spelling, or `rates` is empty, holds a rate that is not a number of at least 0, or a key of
        queues in several clusters.

    See Also
    --------
    waste : The classes of waste in seconds.
    machine_time : Run time per build.

    Notes
    -----
    The price is that of the time in which jobs run. Idle agents cost, too, if they are paid for by
    the hour: multiply the hours of the fleet for that. The parts are upper bounds of what can be
    saved, as in `waste`.

    Examples
    --------
    >>> prices = metrics.cost(jobs, {"macos": 0.08, "*": 0.01}, by="pipeline")
    >>> columns = ["pipeline", "machine_s", "cost", "wasted_cost", "wasted_share"]
    >>> prices[columns].nlargest(3, "cost").round(2)
      pipeline  machine_s    cost  wasted_cost  wasted_share
    4   mobile  135681.44  168.89         0.27          0.00
    7      web   91336.46   15.22         1.60          0.11
    0      api   71575.51   11.93         1.03          0.09
    """
    prices = _check_rates(rates)
    keys = as_key_list(by)
    key_names = [key_name(key) for key in keys]
    available = column_names(jobs)
    optional = [name for name in ("queue_id", "cluster_id") if name in available]
    of_queue = [name for name in ("organization", "queue", *optional) if name not in key_names]
    spent = waste(jobs, [*keys, *of_queue])
    names = [str(name) for name in spent][: len(keys)]
    queues = list_queues(spent)
    rate_of = _find_rates(list(dict.fromkeys(queues)), prices)
    rate_of_others = prices.get(OTHERS, np.nan)
    rate = np.array([rate_of.get(queue, rate_of_others) for queue in queues], np.float64)
    priced = spent.assign(**_price(spent, rate))
    summary = _sum_groups(priced, names)
    unused = {*prices} - {OTHERS}
    for queue, n in zip(queues, priced["n"], strict=True):
        if n > 0:
            unused.difference_update((queue.name, queue.key, queue.id))
    summary.attrs["unused_rates"] = sorted(unused)
    return summary


def _find_rates(queues: list[KnownQueue], rates: Mapping[str, float]) -> dict[KnownQueue, float]:
    """Return the rates of queues that have one: by the id, else by the name, else by the key."""
    rate_of = {queue: rates[queue.name] for queue in queues if queue.name in rates}
    for queue in queues:
        if queue.id is not None and queue.id in rates:
            rate_of[queue] = rates[queue.id]
    others = [queue for queue in queues if queue not in rate_of]
    for key, rate in rates.items():
        for position in find_queues(key, others, "rates"):
            rate_of[others[position]] = rate
    return rate_of


def _check_rates(rates: Mapping[str, float]) -> dict[str, float]:
    if not isinstance(rates, Mapping) or not rates:
        hint = "Pass the price of a minute by queue, such as {'*': 0.01}."
        raise BadInput(f"rates={show(rates)} has no rates. {hint}")
    for queue, rate in rates.items():
        is_number = isinstance(rate, int | float | np.number) and not isinstance(rate, bool)
        if not isinstance(queue, str) or not is_number or not 0 <= rate < math.inf:
            hint = "Pass the price of a minute by the name of the queue, at least 0."
            raise BadInput(f"rates[{queue!r}] is {rate!r}. {hint}")
    return {queue: float(rate) for queue, rate in rates.items()}


def _price(spent: pd.DataFrame, rate: Floats) -> dict[str, Any]:
    """Return the counts and prices of each row, 0 if its queue has no rate."""
    has_rate = ~np.isnan(rate)
    of_minute = np.where(has_rate, rate, 0.0) / 60
    prices = {"cost": "machine_s"} | {f"{name}_cost": f"{name}_s" for name in _WASTED}
    return {
        "n_no_rate": spent["n"].where(~has_rate, 0),
        "no_rate_s": spent["machine_s"].where(~has_rate, 0.0),
        **{name: spent[seconds] * of_minute for name, seconds in prices.items()},
    }


def _sum_groups(priced: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Sum the rows of each group in the order of rows, null keys last."""
    if names:
        groups = priced.groupby(names, dropna=False, sort=False)
        sums = groups[[*_COUNTS, *_SUMS]].sum().reset_index()
        sums = sums.astype(priced.dtypes[names].to_dict())
    else:
        sums = priced[[*_COUNTS, *_SUMS]].sum().to_frame().T.iloc[: len(priced)]
    sums = sums.astype(dict.fromkeys(_COUNTS, "Int64") | dict.fromkeys(_SUMS, "float64"))
    is_unknown = (sums["n"] > 0) & (sums["n"] == sums["n_no_rate"])
    parts = [f"{name}_cost" for name in _WASTED]
    sums[["cost", *parts]] = sums[["cost", *parts]].mask(is_unknown.astype(bool))
    sums["wasted_cost"] = sums[parts].sum(axis=1, skipna=False)
    sums["wasted_share"] = (sums["wasted_cost"] / sums["cost"]).where(sums["cost"] > 0)
    return sums[[*names, *_COLUMNS]]
