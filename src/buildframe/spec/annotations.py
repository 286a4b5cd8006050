"""Declare annotations: texts that jobs attach to their build, such as a list of failed tests."""

from __future__ import annotations

from typing import Annotated

from buildframe.spec.declare import KEY, PLAIN, Resource, table
from buildframe.spec.operations import Name, Slug, endpoint
from buildframe.spec.pipelines import PIPELINE
from buildframe.spec.times import Moment


@table("annotations")
class Annotation(Resource):
    """A text that a job attached to its build."""

    id: Annotated[str | None, "UUID of the annotation", PLAIN, KEY] = None
    context: Annotated[str | None, "name that is unique among the annotations of the build or job", PLAIN] = None
    style: Annotated[str | None, "`success`, `info`, `warning` or `error`", PLAIN] = None
    scope: Annotated[str | None, "whether it is shown at the `build` or at the `job`", PLAIN] = None
    job_id: Annotated[str | None, "UUID of the job, of an annotation of a job", PLAIN] = None
    priority: Annotated[int | None, "annotations with higher numbers are shown first", PLAIN] = None
    body_html: Annotated[str | None, "text as HTML (untrusted)", PLAIN] = None
    created_at: Annotated[Moment | None, "when it was created", PLAIN] = None
    updated_at: Annotated[Moment | None, "when it was last changed", PLAIN] = None


@endpoint(
    f"GET {PIPELINE}/builds/{{number}}/annotations",
    returns=Annotation,
    scope="read_builds",
    paginated=True,
    documented=False,
)
def list_annotations(org: Name, pipeline: Slug, number: int, /) -> None:
    """Annotations of a build."""
