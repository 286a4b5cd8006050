"""The receiver of webhooks: an ASGI application that writes what deliveries tell into a store, in batches.

    buildframe receive ci-history --port 8080
    uvicorn --factory buildframe.receiving:app          # BUILDFRAME_STORE, BUILDFRAME_WEBHOOK_TOKEN

A delivery that was answered is on disk, and the store has it soon. What is lost on the way, the next sync brings.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from buildframe.arguments import checked_names
from buildframe.errors import BadInput, MissingExtra
from buildframe.receiving.inbox import EVERY, Inbox
from buildframe.secret import confined, environment
from buildframe.store.history import Store
from buildframe.webhooks import HEADER_NAMES, HeaderNames

if TYPE_CHECKING:
    from starlette.applications import Starlette

__all__ = ["app", "application", "secrets_set"]

STORE = "BUILDFRAME_STORE"
WRITE_AHEAD = "BUILDFRAME_WRITE_AHEAD"
TOKENS = "BUILDFRAME_WEBHOOK_TOKEN"


def app() -> Starlette:
    """The application as the environment describes it, for any ASGI server."""
    store = environment(STORE)
    if not store:
        raise BadInput(f"{STORE} is not set: where the store is, a folder or an object store's URL.")
    return application(Store(store), secrets_set(), write_ahead=environment(WRITE_AHEAD) or None)


def secrets_set() -> list[str]:
    """The webhook's token from the environment; several, with spaces between, while it is exchanged for another."""
    secrets = environment(TOKENS).split()
    if not secrets:
        raise BadInput(f"{TOKENS} is not set: the token of the webhook, as the service shows it where that is set up.")
    return secrets


@checked_names
@confined
def application(
    store: Store,
    secrets: Sequence[str],
    *,
    personal: bool = False,
    env: bool = False,
    every: float = EVERY,
    names: HeaderNames = HEADER_NAMES,
    write_ahead: str | os.PathLike[str] | None = None,
) -> Starlette:
    """An application that takes deliveries signed with one of `secrets`, or carrying it, and writes them to a store.

    It writes when the oldest has waited for `every` seconds, or when many wait, and once more when it ends.
    `personal` and `env` as for `store.sync`. Before a delivery is answered, it is written to a file in the folder
    `write_ahead` of this machine, by default `_deliveries` in the store's folder, until the store has it.

    BadInput: the store was never synced, a secret cannot be one, or a store that is no folder has no `write_ahead`.
    StoreFailed: that folder cannot be written.
    """
    try:
        from buildframe.receiving.door import Door
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] != "starlette":
            raise
        raise MissingExtra("The receiver of webhooks", "receiver") from None
    return Door(
        Inbox(store, personal=personal, env=env, every=every, write_ahead=write_ahead), secrets, names
    ).application()
