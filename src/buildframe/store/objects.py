"""Write one frame to one Parquet or CSV file in an object store. Does not know the Delta store."""

from __future__ import annotations

import tempfile
from pathlib import Path, PurePosixPath

import pandas as pd
from pyarrow import fs

from buildframe.errors import BadInput
from buildframe.guards.extras import needs_extra
from buildframe.store import files
from buildframe.store.location import Location, import_deltalake, import_deltalake_for_use, store_errors

_SCHEMES = ("s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss", "adl", "file")


def is_url(path: str) -> bool:
    """Return whether this is the URL of an object store, not a path."""
    return "://" in path


def check(url: str) -> Location:
    """Return the location of a file in an object store; raise BadInput or MissingExtra if none can be written there."""
    scheme = url.partition("://")[0]
    if scheme.lower() not in _SCHEMES:  # the message does not contain the URL, which may contain a password
        raise BadInput(
            f"URLs that begin with {scheme}:// cannot be written. Use a path, or a URL of s3://, gs://, az:// or abfss://."
        )
    with needs_extra(f"{url!r}: exporting to an object store", "store"):
        import_deltalake()
    location = Location.of(url, None)
    if not PurePosixPath(location.url.partition("://")[2]).parent.name:
        raise BadInput(f"{url!r} names no bucket. Use a URL such as 's3://bucket/builds.parquet'.")
    return location


def upload(url: str, frame: pd.DataFrame) -> None:
    """Write a frame to a file in an object store, which the environment gives access to: completely or not at all."""
    location = check(url)
    import_deltalake_for_use()
    folder, _, name = location.url.rpartition("/")
    with (
        tempfile.TemporaryDirectory() as temporary,
        store_errors("written", location, "The file", "An older file is unchanged."),
    ):
        local = files.save(Path(temporary, f"frame{PurePosixPath(name).suffix}"), frame)
        target = Location.of(folder, None).files("")
        fs.copy_files(str(local), name, fs.LocalFileSystem(), target)  # in one call, which no interrupt cuts
