"""Types of the public API as type checkers infer them. Checked by mypy and pyright; Python does not run it."""

from __future__ import annotations

from typing import Any, assert_type

import pandas as pd

import buildframe as bf
from buildframe import metrics, spec
from buildframe.store.imports import ImportResult
from buildframe.store.sync import SyncResult
from buildframe.workspace import PipelineWorkspace, Workspace
from buildframe.workspace.build_queries import History
from buildframe.workspace.jobs import Log

ws = bf.connect("acme")
assert_type(ws, Workspace)
assert_type(ws.builds(state=["passed", "failed"], branch="main", created_from="30d"), pd.DataFrame)
assert_type(ws.history(meta_data={"release": "1"}), History)
builds, jobs = ws.history()
assert_type(jobs, pd.DataFrame)
assert_type(ws.pipeline("web"), PipelineWorkspace)
build = ws.pipeline("web").build(41, include_retried_jobs=False)
assert_type(build, spec.Build)
assert_type(build.created_at, spec.Moment | None)
assert_type(build.number, int | None)
assert_type(ws.pipeline("web").get(), spec.Pipeline)
assert_type(metrics.percentiles(jobs, of=metrics.queue_time, by="step_key"), pd.DataFrame)
web = ws.pipeline("web")
assert_type(web.create_build(commit="HEAD", branch="main", author={"name": "Ada"}), spec.Build)
assert_type(web.cancel(41), spec.Build)
assert_type(web.rebuild(41), spec.Build)
assert_type(web.update(cluster_id=None, provider_settings={"build_tags": True}), spec.Pipeline)
assert_type(web.archive(), spec.Pipeline)
assert_type(ws.create_pipeline(name="Web", cluster_id=None, repository="r", steps=[{"type": "waiter"}]), spec.Pipeline)
assert_type(ws.team_pipeline("t", "p"), spec.TeamPipeline)
assert_type(ws.create_team_pipeline("t", pipeline_id="p", access_level="read_only"), spec.TeamPipeline)
assert_type(ws.member("u"), spec.Member)
assert_type(ws.flaky_tests("rspec", branch="main"), pd.DataFrame)
assert_type(ws.graphql("{ viewer { id } }"), dict[str, Any])
assert_type(ws.log(jobs.iloc[0]), Log)
assert_type(web.log(jobs.iloc[0]).raw, str)
ws.set_team(web, "t", "build_and_read")
store = bf.Store("ci-history", as_of=3)
assert_type(store.sync(ws.pipeline("web"), since="90d", suites=["rspec"]), SyncResult)
assert_type(store.import_exports("exports", personal=True), ImportResult)
assert_type(store.jobs(created_from="7d", pipeline="web", columns=["step"]), pd.DataFrame)
assert_type(store.covers["acme"], tuple[spec.Moment, spec.Moment])
assert_type(store.clean("30d"), int)

ws.builds(brnach="main")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
ws.builds(state="pased")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
ws.builds(include_retried_jobs="yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
ws.pipeline("web").build("41")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
web.create_build(commit="HEAD")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
web.create_build(commit="HEAD", branch=7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
web.update(description=None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
web.update(teams=[])  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
ws.set_team(web, "t", "admin")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
ws.flaky_tests("rspec", brnach="main")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
