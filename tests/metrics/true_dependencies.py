"""The true dependencies of the sandbox's pipelines, and how well inferred ones agree with them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from buildframe import metrics
from buildframe.metrics.pipeline_jobs import GROUP, read_jobs
from buildframe.metrics.step_graph import find_predecessors
from buildframe.sandbox_server.world.model import ORGANIZATIONS
from buildframe.sandbox_server.world.steps import Plan
from tests import worlds

STAMPS = ["created_at", "runnable_at", "started_at", "finished_at", "unblocked_at"]
PLANS = {
    (organization.slug, pipeline.slug): Plan(pipeline.steps)
    for organization in ORGANIZATIONS
    for pipeline in organization.pipelines
}


class Agreement(NamedTuple):
    """Counts: jobs, those whose predecessor is right; binding pairs, true ones; pairs that bind, those found."""

    jobs: int
    right: int
    binding: int
    binding_true: int
    bind: int
    bind_found: int


@functools.cache
def month(seed: int, builds: int = 700) -> tuple[pd.DataFrame, pd.DataFrame]:
    with worlds.sandbox(seed=seed, builds=builds, days=30) as ci:
        frames: tuple[pd.DataFrame, pd.DataFrame] = ci.history(include_retried_jobs=True)
    return frames


def with_errors(jobs: pd.DataFrame, share: float = 0.01, seconds: float = 2) -> pd.DataFrame:
    """Shift a share of the timestamps by some seconds, forward or back."""
    random = np.random.default_rng(0)
    shifted = {}
    for name in STAMPS:
        seconds_of_rows = random.choice([-seconds, seconds], len(jobs)) * (random.random(len(jobs)) < share)
        shifted[name] = jobs[name] + pd.to_timedelta(seconds_of_rows, unit="s")
    return jobs.assign(**shifted)


def agreement_of_single_builds(builds: pd.DataFrame, jobs: pd.DataFrame) -> tuple[float, float]:
    """Return the share of builds, and of seconds, whose chain is the same if it is inferred from the build alone."""
    whole = metrics.time_ledger(builds, jobs)
    alone = metrics.time_ledger(builds.assign(pipeline=builds["id"]), jobs.assign(pipeline=jobs["build_id"]))
    chains = [of.groupby("build_id")["job_id"].agg(lambda ids: tuple(ids.dropna())) for of in (whole, alone)]
    keys = ["build_id", "kind", "job_id", "started_at", "finished_at"]
    same = whole.merge(alone[keys], on=keys)
    return float((chains[0] == chains[1]).mean()), same["duration_s"].sum() / whole["duration_s"].sum()


@functools.cache
def true_needs(organization: str, pipeline: str) -> dict[str, set[str]]:
    """Return the steps that each step directly needs, with wait steps replaced by what these wait for."""
    plan = PLANS[organization, pipeline]
    kinds = {step.key: step.kind for step in plan.steps}
    needs = {slot.split("#")[0]: {need.split("#")[0] for need in of} for slot, of in plan.needs.items()}

    def expand(keys: set[str]) -> Iterator[str]:
        for key in keys:
            if kinds[key] == "waiter":
                yield from expand(needs[key])
            else:
                yield key

    return {key: set(expand(of)) for key, of in needs.items() if kinds[key] != "waiter"}


def true_predecessors(jobs: pd.DataFrame) -> pd.Series[str]:
    """Return the step that released each first attempt of a script or trigger step, by the id of the job.

    It is the uploading step for jobs that need no other, and "" for the jobs that a build begins with.
    """
    real = jobs[jobs["type"].isin(["script", "trigger", "manual"])]
    ended = real["unblocked_at"].where(real["type"] == "manual", real["finished_at"].where(real["state"] == "passed"))
    ended = ended.mask(real["soft_failed"].fillna(False), real["finished_at"])
    shard = [real[name].astype("str").fillna("") for name in ("build_id", "step_key", "parallel_group_index", "matrix")]
    released = ended.groupby(shard).min().groupby(level=[0, 1]).max()
    times: dict[str, dict[str, pd.Timestamp]] = {}
    for (build, key), time in released.dropna().items():
        times.setdefault(build, {})[key] = time
    is_first = (real["type"] != "manual") & real["runnable_at"].notna() & ~real["id"].isin(real["retried_in_job_id"])
    found = {}
    for job in real.loc[is_first, ["id", "organization", "pipeline", "build_id", "step_key"]].itertuples():
        plan, own = PLANS[job.organization, job.pipeline], times.get(job.build_id, {})
        needs = true_needs(job.organization, job.pipeline).get(job.step_key, set()) & own.keys()
        uploader = "upload" if plan.uploads and job.step_key != "upload" else ""
        found[job.id] = max(needs, key=lambda key, own=own: own[key]) if needs else uploader
    return pd.Series(found, dtype="str")


def compare(jobs: pd.DataFrame, truth: pd.Series[str]) -> Agreement:
    """Compare what is inferred from these jobs with their true predecessors."""
    codes, _ = pd.factorize(jobs["organization"] + "/" + jobs["pipeline"])
    read = read_jobs(jobs.assign(step=metrics.step, **{GROUP: codes}))
    before, _ = find_predecessors(read)
    steps = read.steps.take(np.where(before.row >= 0, read.step[before.row], 0)).to_numpy(object)
    found = pd.Series(np.where(before.row >= 0, steps, ""), index=read.rows["id"]).reindex(truth.index)
    pairs = {tuple(pair) for pair in jobs.merge(truth.rename("before"), left_on="id", right_index=True)
             [["organization", "pipeline", "before", "step_key"]].itertuples(index=False)}  # fmt: skip
    bind = {pair for pair in pairs if pair[2] in true_needs(*pair[:2]).get(pair[3], ())}
    binding = set()
    for organization, own in jobs.groupby("organization"):
        graph = metrics.step_graph(own)
        chosen = graph[graph["status"] == "binding"][["pipeline", "before", "after"]]
        binding |= {(organization, *pair) for pair in chosen.itertuples(index=False)}
    right = [pair for pair in binding if pair[2] in true_needs(*pair[:2]).get(pair[3], ())]
    return Agreement(
        len(truth), int((found == truth).sum()), len(binding), len(right), len(bind), len(bind & binding)
    )  # fmt: skip


def total(agreements: list[Agreement]) -> tuple[float, float, float]:
    """Return the share of right predecessors, and the precision and recall of binding pairs."""
    jobs, right, binding, binding_true, bind, bind_found = np.sum(agreements, axis=0)
    return right / jobs, binding_true / binding, bind_found / bind
