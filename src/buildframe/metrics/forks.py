"""Find builds for pull requests from forks.

The branch of a fork is not the pipeline's branch of that name.
"""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import TEXT, check_is_pandas, typed_column

PULL_REQUEST = ("pull_request", "pull_request_base", "pull_request_repository")
"""Columns of which at least one has a value if a build is for a pull request."""

COLUMNS = (*PULL_REQUEST, "pipeline_repository")
"""Columns that show whether a build is from a fork.

Each may be missing, and then counts as null.
"""

_REPOSITORY = "pipeline_repository"

# scheme://user:secret@host:port/path. The secret may contain an unquoted @, the host be an IPv6
# address in brackets, and the path begin after a colon, as in the other form.
_URL = re.compile(
    r"[a-z][a-z0-9+.-]*://(?:[^/]*@)?(?P<host>\[[^]/]*\]|[^/:]*)(?::\d*(?=/|$))?(?P<path>.*)",
    re.DOTALL,
)
# user@host:path, user@host/path, or a path
_WITHOUT_SCHEME = re.compile(r"(?:[^@/]*@)?(?P<host>[^/:]*)(?P<path>.*)", re.DOTALL)


@checked_names
def is_from_fork(builds: pd.DataFrame) -> pd.Series[bool]:
    """
    Return whether each build is for a pull request from a fork.

    The branch of a fork can be called `main`, too, and says nothing about the pipeline's own
    `main`. `outages`, `recovery_time`, `red_share` and plots of a branch leave these builds out.

    Parameters
    ----------
    builds : pandas.DataFrame
        Builds. Uses `pull_request`, `pull_request_base`, `pull_request_repository` and
        `pipeline_repository` if the frame has them.

    Returns
    -------
    pandas.Series
        `bool` on the index of the frame.

    Raises
    ------
    BadInput
        If the frame is not a pandas frame, or a column occurs twice.

    See Also
    --------
    outages : Times in which a branch was red.

    Notes
    -----
    A build with a pull request is from a fork if `pull_request_repository` is another repository
    than `pipeline_repository`. URLs are compared by host and path, without regard to case, user
    information, port, `.git` and a slash at the end, so `git@github.com:acme/web.git` and
    `https://user:token@github.com/Acme/web` are one repository. If one of them is unknown, every
    build with a pull request counts as from a fork.

    Examples
    --------
    >>> metrics.is_from_fork(builds).sum().item()
    0
    """
    check_is_pandas(builds, "row metrics need.")
    has_pull_request = pd.Series(False, builds.index)
    for name in PULL_REQUEST:
        if name in builds:
            has_pull_request |= typed_column(builds, name).fillna("").ne("").astype(bool)
    source = _repository_keys(builds, "pull_request_repository")
    target = _repository_keys(builds, "pipeline_repository")
    return has_pull_request & ~(source.notna() & source.eq(target))


def repository_key(url: Any) -> str | None:
    """Return host and path of a repository's URL, such as `github.com/acme/web`, or None."""
    text = url.strip().lower() if isinstance(url, str) else ""
    match = _URL.fullmatch(text) or _WITHOUT_SCHEME.fullmatch(text)
    if match is None:
        return None
    path = re.sub("/+", "/", match["path"].lstrip(":/"))
    path = path.rstrip("/").removesuffix(".git").rstrip("/")
    return "/".join([match["host"], path]).rstrip("/") or None


def _repository_keys(builds: pd.DataFrame, name: str) -> pd.Series[Any]:
    """Return the key of each repository in a column, computed once for each URL."""
    if name not in builds:
        return pd.Series(None, builds.index, dtype=TEXT)
    urls = typed_column(builds, name)
    keys = {url: repository_key(url) for url in urls.dropna().unique()}
    return urls.map(keys).astype(TEXT)


def without_forks(builds: pd.DataFrame, pipelines: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return the builds that are not from forks.

    Repositories that they lack are those of the listed pipelines.
    """
    if pipelines is not None:
        builds_with_targets = with_repositories(
            builds,
            pipelines,
            *find_shared_keys(builds, pipelines),
        )
        return builds[~is_from_fork(builds_with_targets).to_numpy()]
    return builds[~is_from_fork(builds).to_numpy()]


def with_repositories(
    builds: pd.DataFrame,
    listed: pd.DataFrame | None,
    left: list[str],
    right: list[str],
) -> pd.DataFrame:
    """Return builds with the repository of their pipeline, from the listed pipelines if missing.

    `left` and `right` are the columns by which builds and pipelines match.
    """
    # Without rows, pandas cannot join columns of text.
    if builds.empty or listed is None or "repository" not in listed:
        return builds
    repositories = listed.drop_duplicates(right).set_index(right)["repository"]
    found = builds[left].join(repositories, on=left)["repository"]
    if _REPOSITORY in builds:
        found = builds[_REPOSITORY].fillna(found)
    return builds.assign(**{_REPOSITORY: found})


def find_shared_keys(builds: pd.DataFrame, listed: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Return the columns by which builds and listed pipelines match."""
    if is_complete(builds, "pipeline_id") and is_complete(listed, "id"):
        return ["pipeline_id"], ["id"]
    if is_complete(builds, "organization") and is_complete(listed, "organization"):
        return ["organization", "pipeline"], ["organization", "slug"]
    return ["pipeline"], ["slug"]


def is_complete(frame: pd.DataFrame, name: str) -> bool:
    """Return whether the frame has a column, and no nulls in it."""
    return name in frame and bool(frame[name].notna().all())
