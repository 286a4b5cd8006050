"""Random actions of users on a sandbox while it is synced."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable

import httpx
import pandas as pd

from buildframe.errors import BadInput, BuildframeError
from buildframe.workspace import Workspace

_STEPS = [
    {"type": "script", "name": "Make", "command": "make"},
    {"type": "waiter"},
    {"type": "manual", "label": "Ship?"},
    {"type": "script", "name": "Ship", "command": "make ship"},
    {"type": "manual", "label": "Announce?"},
]


class People:
    """Users of a service; `did` counts their actions."""

    def __init__(self, ci: Workspace, chance: random.Random) -> None:
        self._ci, self._chance = ci, chance
        self._http = httpx.Client(headers={"Authorization": f"Bearer {ci.sandbox.token(['write_builds'])}"})
        self._own: list[str] = []
        self._names = 0
        self.did: Counter[str] = Counter()
        self._deeds: dict[Callable[[], bool], float] = {
            self.create: 4,
            self.cancel: 4,
            self.rebuild: 3,
            self.retry: 6,
            self.unblock: 4,
            self.forget: 2,
            self.push: 3,
            self.found: 0.6,
            self.rename: 1,
            self.swap: 0.3,
            self.delete: 0.4,
        }

    def act(self) -> None:
        """Perform a random action; the service may fail or refuse it."""
        self._do(self._deeds)

    def use(self) -> None:
        """Perform a random action that changes no pipeline."""
        changes = (self.found, self.rename, self.swap, self.delete)
        self._do({deed: often for deed, often in self._deeds.items() if deed not in changes})

    def _do(self, deeds: dict[Callable[[], bool], float]) -> None:
        (deed,) = self._chance.choices(list(deeds), list(deeds.values()))
        try:
            if deed():
                self.did[deed.__name__] += 1
        except (BuildframeError, httpx.HTTPError):
            self.did["failed"] += 1

    def pipeline(self) -> str | None:
        """Return the slug of a random pipeline."""
        try:
            return str(self._chance.choice(list(self._ci.pipelines(progress=False)["slug"])))
        except BuildframeError:
            return None

    # --- builds

    def _some(self, **filters: object) -> pd.Series | None:
        """Return one of the newest builds."""
        found = self._ci.builds(columns=["pipeline", "number"], max_requests=1, progress=False, **filters)
        return None if found.empty else found.iloc[self._chance.randrange(len(found))]

    def create(self) -> bool:
        slug = self._chance.choice(self._own) if self._own and self._chance.random() < 0.5 else self.pipeline()
        return slug is not None and bool(self._ci.pipeline(slug).create_build(commit="HEAD", branch="main"))

    def push(self) -> bool:
        slug = self.pipeline()
        return slug is not None and bool(self._ci.sandbox.push(slug, self._chance.randint(1, 3)))

    def cancel(self) -> bool:
        build = self._some(state=["scheduled", "running", "failing"])
        return build is not None and bool(self._ci.pipeline(build["pipeline"]).cancel(int(build["number"])))

    def rebuild(self) -> bool:
        build = self._some(state="finished")
        return build is not None and bool(self._ci.pipeline(build["pipeline"]).rebuild(int(build["number"])))

    def retry(self) -> bool:
        """Retry the failed jobs of a build of any age."""
        before = self._ci.sandbox.clock.now() - dt.timedelta(days=self._chance.randrange(14))
        build = self._some(state="failed", created_to=before)
        if build is None:
            return False
        jobs = self._ci.pipeline(build["pipeline"]).history_of(int(build["number"])).jobs
        can = jobs.loc[jobs["state"].isin(["failed", "timed_out"]) & ~jobs["retried"].fillna(True), "id"]
        try:
            for job in can:
                self._ci.sandbox.retry(build["pipeline"], int(build["number"]), job)
        except BadInput:
            return False
        return len(can) > 0

    def unblock(self) -> bool:
        build = self._some(state="blocked")
        if build is None:
            return False
        jobs = self._ci.pipeline(build["pipeline"]).history_of(int(build["number"])).jobs
        urls = jobs.loc[jobs["unblockable"].fillna(False), "unblock_url"]
        return len(urls) > 0 and self._http.put(urls.iloc[0]).is_success

    def forget(self) -> bool:
        """Delete a build as retention does, in any state."""
        build = self._some() if self._chance.random() < 0.5 else self._some(state=["running", "scheduled", "failing"])
        if build is None:
            return False
        self._ci.sandbox.forget(build["pipeline"], [int(build["number"])])
        return True

    # --- pipelines

    def _name(self) -> str:
        self._names += 1
        return f"Line {self._names}"

    def found(self) -> bool:
        """Create a pipeline that has two block steps and ends in one."""
        cluster = self._ci.pipeline("web").get().cluster_id
        made = self._ci.create_pipeline(
            name=self._name(), repository="git@example.com:acme/line.git", cluster_id=cluster, steps=_STEPS
        )
        self._own.append(str(made.slug))
        return True

    def rename(self) -> bool:
        slug = self.pipeline()
        if slug is None or slug == "web":
            return False
        renamed = str(self._ci.pipeline(slug).update(name=self._name()).slug)
        self._own = [renamed if own == slug else own for own in self._own]
        return True

    def swap(self) -> bool:
        """Give one pipeline the slug of another one."""
        if len(self._own) < 2:
            return False
        one, other = self._chance.sample(self._own, 2)
        self._own.remove(other)
        self._own.append(str(self._ci.pipeline(one).update(name=self._name()).slug))
        self._ci.pipeline(other).update(name=f"As {one}", slug=one)
        return True

    def delete(self) -> bool:
        if len(self._own) < 3:
            return False
        self._ci.pipeline(self._own.pop(self._chance.randrange(len(self._own)))).delete()
        return True
