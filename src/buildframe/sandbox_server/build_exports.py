"""Write builds to files as the hosted service exports builds past retention. Knows the database; does not know HTTP."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from buildframe.sandbox_server.db.database import Database
from buildframe.sandbox_server.db.pipeline_serializer import PipelineSerializer
from buildframe.sandbox_server.db.serializers import ORIGIN, format_time

_EMPTY_LISTS = ("annotations.json.gz", "artifacts.json.gz", "step-uploads.json.gz")  # a sandbox has none of these


def write_exports(db: Database, folder: Path, before: int, organization: str, origin: str) -> int:
    """Write the builds of an organization that were created before a timestamp; return how many there are.

    Bodies are those of lists of builds. URLs in them begin with `origin`.
    """
    pipelines = PipelineSerializer(db)
    org = folder / f"org={db.serializer.random.uuid('organization', organization)}"
    with db.transaction():  # the builds of one time
        of_builds = "FROM builds WHERE organization = ? AND created < ? ORDER BY seq"
        rows = db.query(f"SELECT seq, id, pipeline_key, created, body {of_builds}", (organization, before))
        for seq, id, key, created, body in rows:
            pipeline = pipelines.serialize_embedded(db.pipelines[key])
            place = org / f"date={(format_time(created) or '')[:10]}" / f"pipeline={pipeline['id']}" / f"build={id}"
            jobs = [msgspec.json.decode(job) for _, job in db.load_job_bodies([seq])]
            files = {"build.json.gz": msgspec.json.decode(body) | {"pipeline": pipeline}}
            files |= {f"jobs/job-{job['id']}.json.gz": job for job in jobs}
            _write(place, files | {name: [] for name in _EMPTY_LISTS}, origin)
    return len(rows)


def _write(place: Path, files: Mapping[str, Any], origin: str) -> None:
    (place / "jobs").mkdir(parents=True, exist_ok=True)
    for name, document in files.items():
        body = msgspec.json.encode(document).replace(ORIGIN.encode(), origin.encode())
        (place / name).write_bytes(gzip.compress(body, mtime=0))
