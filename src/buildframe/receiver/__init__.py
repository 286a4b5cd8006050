"""Receive webhook deliveries over HTTP and write them to a store in batches.

    buildframe receive ci-history --port 8080
    uvicorn --factory buildframe.receiver:app          # BUILDFRAME_STORE, BUILDFRAME_WEBHOOK_TOKEN

A delivery is on disk before it is acknowledged. The next sync adds deliveries that were lost before.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from buildframe.errors import BadInput, StoreFailed
from buildframe.guards.arguments import checked_names
from buildframe.guards.extras import needs_extra
from buildframe.guards.secrets import confined, environment
from buildframe.receiver.inbox import Inbox
from buildframe.receiver.store_writer import WRITE_INTERVAL_S, StoreWriter
from buildframe.store.reader import id_of
from buildframe.store.store import Store
from buildframe.webhooks import HEADER_NAMES, HeaderNames

if TYPE_CHECKING:
    from starlette.applications import Starlette

__all__ = ["app", "application", "secrets_set"]

STORE = "BUILDFRAME_STORE"
WRITE_AHEAD = "BUILDFRAME_WRITE_AHEAD"
TOKENS = "BUILDFRAME_WEBHOOK_TOKEN"


def app() -> Starlette:
    """
    Return the application that is configured by environment variables, for any ASGI server.

    Reads `BUILDFRAME_STORE` (path or URL of the store), `BUILDFRAME_WEBHOOK_TOKEN` and `BUILDFRAME_WRITE_AHEAD`.

    Returns
    -------
    starlette.applications.Starlette
        ASGI application.

    Raises
    ------
    BadInput
        If a required variable is not set or invalid.

    See Also
    --------
    application : The same with arguments.
    """
    store = environment(STORE)
    if not store:
        raise BadInput(f"{STORE} is not set. Set it to the path or URL of the store.")
    return application(Store(store), secrets_set(), write_ahead=environment(WRITE_AHEAD) or None)


def secrets_set() -> list[str]:
    """
    Return the tokens of the webhook from `BUILDFRAME_WEBHOOK_TOKEN`.

    Returns
    -------
    list of str
        One token, or several that are separated by spaces, such as the old and the new one.

    Raises
    ------
    BadInput
        If the variable is not set.
    """
    secrets = environment(TOKENS).split()
    if not secrets:
        raise BadInput(
            f"{TOKENS} is not set. Set it to the token that the service shows in the settings of the webhook."
        )
    return secrets


@checked_names
@confined
def application(
    store: Store,
    secrets: Sequence[str],
    *,
    personal: bool = False,
    env: bool = False,
    every: float = WRITE_INTERVAL_S,
    names: HeaderNames = HEADER_NAMES,
    write_ahead: str | os.PathLike[str] | None = None,
) -> Starlette:
    """
    Return an ASGI application that verifies webhook deliveries and writes them to a store.

    `POST /` receives deliveries. `GET /health` returns counts as JSON, with status 503 while writes fail.

    Parameters
    ----------
    store : Store
        Store that has been synced at least once.
    secrets : sequence of str
        Tokens of the webhook: one, or the old and the new one.
    personal : bool, default False
        Whether to store names and e-mail addresses.
    env : bool, default False
        Whether to store environment variables, which may contain secrets.
    every : float, default 60.0
        Maximum time in seconds that a delivery waits before it is written. Many deliveries are written earlier.
    names : HeaderNames
        Names of the headers that carry token, signature and event.
    write_ahead : str or path-like, optional
        Local folder that holds acknowledged deliveries until the store has them. By default `_deliveries` in the
        folder of the store. Required for object stores.

    Returns
    -------
    starlette.applications.Starlette
        ASGI application.

    Raises
    ------
    BadInput
        If `store` is not a Store or was never synced, a token is invalid, or an object store has no `write_ahead`.
    StoreFailed
        If the folder `write_ahead` cannot be written, or other users can write to it.
    MissingExtra
        If the extra `receiver` is not installed.

    See Also
    --------
    app : The same, configured by environment variables.
    """
    with needs_extra("The webhook receiver", "receiver", "starlette"):
        from buildframe.receiver.asgi import ReceiverApp
    if not isinstance(store, Store):
        raise BadInput(
            f"store is of type {type(store).__name__}. Pass buildframe.Store(...) with the path or URL of the store."
        )
    inbox = Inbox(database_of(store, write_ahead), id_of(store))
    return ReceiverApp(StoreWriter(store, inbox, personal=personal, env=env, every=every), secrets, names)


def database_of(store: Store, write_ahead: str | os.PathLike[str] | None) -> Path:
    """Return the path of the database of waiting deliveries. In a chosen folder, each store has a name of its own."""
    if write_ahead is not None:
        address = store.url if "://" in store.url else os.path.realpath(store.url)
        return Path(write_ahead, f"deliveries-{hashlib.sha256(address.encode()).hexdigest()[:16]}.sqlite")
    if "://" in store.url:
        raise BadInput(
            f"The store at {store.url} is not a local folder. Set a persistent local folder for waiting deliveries "
            "with --write-ahead (write_ahead= in Python, or BUILDFRAME_WRITE_AHEAD)."
        )
    if _is_writable_by_all(store.url):
        raise StoreFailed(
            f"Every user can write to {store.url!r}, and so replace deliveries that wait in it. "
            "Choose another local folder with --write-ahead (write_ahead= in Python), or run "
            "`chmod o-w` on the store's folder."
        )
    return Path(store.url, "_deliveries", "deliveries.sqlite")


def _is_writable_by_all(folder: str) -> bool:
    with suppress(OSError):  # an error of the store says more
        mode = os.stat(folder).st_mode
        return os.name == "posix" and bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX
    return False
