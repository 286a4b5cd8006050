"""Name what a 404 is about, from the path that was requested and the server's message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import unquote

_NOUNS = {"suites": "test suite", "members": "member", "flaky-tests": "flaky test"}
_ADVICE = {
    "organization": "Check its slug in the URL of its page, and that the token is authorized for it.",
    "pipeline": "Workspace.pipelines() lists slugs and ids.",
    "build": "Pipeline.builds() lists the numbers.",
    "job": "Pipeline.build(number).jobs lists the jobs of a build.",
    "test suite": "Check its slug in the URL of the suite's page.",
    "team": "Check its UUID. Teams have no slug in the API.",
    "member": "Workspace.members() lists the ids.",
}


class _NamedResource(NamedTuple):
    noun: str
    id: str

    def __str__(self) -> str:
        return f"{self.noun} {self.id if self.noun == 'build' else repr(self.id)}"


def describe(path: str, message: str) -> str:
    """Return what is missing and how to find it, or "" if the path names no resource. `message` is the server's.

    A path names several resources, and any of them may be missing: the one that the message names, else the last.
    """
    if path.split("?")[0].strip("/") in message:  # as in "No route matches": the path is wrong, not a name in it
        return ""
    resources = list(_resources_in([unquote(segment) for segment in path.split("?")[0].split("/")]))
    if not resources:
        return ""
    mentioned = [place for place, resource in enumerate(resources) if resource.noun.split()[-1] in message.lower()]
    place = max(mentioned, default=len(resources) - 1)
    inside = "".join(f" of {resource}" for resource in reversed(resources[:place]))
    noun = resources[place].noun
    return f"There is no {resources[place]}{inside}, or this token may not see it. {_ADVICE.get(noun, '')}".rstrip()


def _resources_in(segments: Sequence[str]) -> Iterator[_NamedResource]:
    """Yield the resources that a path names, from the organization on."""
    start = segments.index("organizations") if "organizations" in segments else len(segments)
    for collection, id in zip(segments[start::2], segments[start + 1 :: 2], strict=False):
        noun = _NOUNS.get(collection, collection.removesuffix("s").replace("-", " "))
        if noun.strip() and id:
            yield _NamedResource(noun, id)
