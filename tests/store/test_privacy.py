"""No byte of a store contains names, addresses or secrets unless they were requested."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import buildframe as bf

pytestmark = pytest.mark.long

SECRETS = {"SESAME_KEY", "open-sesame-4711", "a-line-of-secrets"}
AUTHOR = {"Wanda Wanderer", "wanda@example.com"}


@pytest.fixture(scope="module")
def ci() -> Iterator[bf.workspace.Workspace]:
    with bf.sandbox(builds=120, days=4) as workspace:
        workspace.pipeline("web").update(env={"SESAME_KEY": "a-line-of-secrets"})
        workspace.pipeline("web").create_build(
            commit="HEAD",
            branch="main",
            env={"SESAME_KEY": "open-sesame-4711"},
            author={"name": "Wanda Wanderer", "email": "wanda@example.com"},
        )
        yield workspace


@pytest.fixture(scope="module")
def people(ci) -> set[str]:
    """Names and addresses of all who belong to the service, or did something there."""
    builds, jobs = ci.history(progress=False)
    pipelines, members = ci.pipelines(progress=False), ci.members(progress=False)
    columns = [builds[name] for name in ("creator", "creator_email", "author", "author_email")]
    columns += [jobs["unblocked_by"], pipelines["created_by"], pipelines["created_by_email"]]
    columns += [members["name"], members["email"]]
    found = {text for column in columns for text in column.dropna()}
    assert found > AUTHOR
    return found


def texts(folder: Path) -> str:
    """All that is in a store's files: columns of Parquet files with their names and statistics, and the logs."""
    parts = []
    for file in sorted(folder.rglob("*")):
        if file.suffix == ".parquet":
            table = pq.read_table(file, partitioning=None)
            parts += [json.dumps(table.to_pylist(), default=str, ensure_ascii=False), str(table.schema.metadata)]
            parts.append(file.read_bytes().decode("latin-1"))
        elif file.is_file():
            parts.append(file.read_text(encoding="utf-8", errors="replace"))
    return "\n".join(parts)


def occurring(folder: Path, needles: set[str]) -> set[str]:
    text = texts(folder)
    return {needle for needle in needles if needle in text}


def test_by_default_no_name_and_no_secret_is_stored(ci, people, tmp_path):
    store = bf.Store(tmp_path)
    store.sync(ci, suites=["rspec"], progress=False)
    assert len(list(tmp_path.rglob("*.parquet"))) > 10
    assert occurring(tmp_path, people | SECRETS) == set()
    ids = set(ci.builds(progress=False)["creator_id"].dropna())
    assert set(store.builds()["creator_id"].dropna()) == ids
    with pytest.raises(bf.BadInput, match="personal=True"):
        store.members()


def test_with_personal_names_are_stored_and_secrets_are_not(ci, people, tmp_path):
    store = bf.Store(tmp_path)
    store.sync(ci, suites=["rspec"], personal=True, progress=False)
    assert occurring(tmp_path, people) == people
    assert occurring(tmp_path, SECRETS) == set()
    assert set(store.members()["email"]) == set(ci.members(progress=False)["email"])


def test_with_env_secrets_are_stored_and_names_are_not(ci, people, tmp_path):
    bf.Store(tmp_path).sync(ci, env=True, progress=False)
    assert occurring(tmp_path, SECRETS) == SECRETS
    assert occurring(tmp_path, people) == set()
