"""A process that syncs a store. It loads everything that it needs before it starts."""

from __future__ import annotations

import os

import duckdb  # noqa: F401

import buildframe as bf
from buildframe.store.store import Store

SUITES = ["rspec"]


def sync(folder: str, url: str, token: str, since: str, pipeline: str | None) -> None:
    """What a child does; it ends with 3 where it was incomplete and with 4 where the service failed it."""
    with bf.connect("acme", base_url=url, token=token) as ci:
        try:
            of = ci if pipeline is None else ci.pipeline(pipeline)
            done = Store(folder).sync(of, since=since, suites=[] if pipeline else SUITES, progress=False)
        except (bf.ServiceError, bf.Unreachable, bf.Malformed) as why:
            print(type(why).__name__, why, flush=True)
            os._exit(4)
    os._exit(0 if done.complete else 3)
