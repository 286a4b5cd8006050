"""What type checkers see of the public face; run by mypy and pyright, not by Python."""

from __future__ import annotations

from typing import assert_type

import pandas as pd

import buildframe as bf
from buildframe import metrics, spec
from buildframe.workspace import History, Pipeline, Workspace

ws = bf.connect("acme")
assert_type(ws, Workspace)
assert_type(ws.builds(state=["passed", "failed"], branch="main", created_from="30d"), pd.DataFrame)
assert_type(ws.history(meta_data={"release": "1"}), History)
builds, jobs = ws.history()
assert_type(jobs, pd.DataFrame)
assert_type(ws.pipeline("web"), Pipeline)
build = ws.pipeline("web").build(41, include_retried_jobs=False)
assert_type(build, spec.Build)
assert_type(build.created_at, spec.Moment | None)
assert_type(build.number, int | None)
assert_type(ws.pipeline("web").get(), spec.Pipeline)
assert_type(metrics.percentiles(jobs, of=metrics.queue_time, by="step_key"), pd.DataFrame)

ws.builds(brnach="main")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
ws.builds(state="pased")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
ws.builds(include_retried_jobs="yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
ws.pipeline("web").build("41")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
