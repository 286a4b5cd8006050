"""Predict how much time builds would save if one step took less time, for the steps where that matters most."""

from __future__ import annotations

import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_names
from buildframe.metrics.paired_savings import estimate_saving


@checked_names
def leverage(
    builds: pd.DataFrame, jobs: pd.DataFrame, by: float = 0.1, pipeline: str | None = None, top: int = 20
) -> pd.DataFrame:
    """
    Predict how much wall time builds would save if one step took less time, and rank steps by it.

    The recorded builds are replayed once per step with shorter run times of this step, and compared with a replay
    without changes: a virtual speed-up [1]_. This is done with enough agents for all jobs, so that only the critical
    path counts, and with the recorded agents, which a faster step leaves to other jobs sooner.

    Parameters
    ----------
    builds : pandas.DataFrame
        Builds with the columns that `replay` needs.
    jobs : pandas.DataFrame
        All jobs of these builds, fetched with `include_retried_jobs=True`, with the columns that `replay` needs.
    by : float, default 0.1
        Share of its run time that a step saves, in (0, 1].
    pipeline : str, optional
        Slug of the pipeline whose steps are tried. By default those of all pipelines. All builds are replayed in any
        case, because pipelines share agents.
    top : int, default 20
        Number of steps to try, at least 1: those with the largest share of machine time and of the critical chains of
        builds.

    Returns
    -------
    pandas.DataFrame
        One row per step that was tried, ordered by `hours_saved`, the largest first. If both frames have `organization`, it
        is not a column: names of pipelines should differ.

        ========================== ======= ============================================================
        pipeline, step             str     step that takes less time
        machine_h                  float64 hours that its jobs ran
        mean_saved_s_unlimited     float64 mean seconds saved per build of the pipeline, with enough
                                           agents for all jobs
        mean_saved_s               float64 the same with the recorded agents
        hours_saved                float64 hours saved in all builds of all pipelines, with the recorded
                                           agents
        clear                      boolean the interval of `hours_saved` lies above 0
        mean_saved_low_s_unlimited, float64 95 % interval of `mean_saved_s_unlimited`
        mean_saved_high_s_unlimited
        ========================== ======= ============================================================
    """
    raise NotImplementedError
