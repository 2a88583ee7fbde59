"""Commands that write to the database directly if no key is available, to create the first key."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from hetuflow_core.access.roles import Role
from hetuflow_core.client import Hetuflow
from hetuflow_core.runtime.clock import Clock, SystemClock
from hetuflow_core.runtime.config.loading import load_settings
from hetuflow_server.app.direct_database import open_store
from hetuflow_server.cli.invocation import Invocation
from hetuflow_server.postgres.database import Database
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal
from hetuflow_server.settings import StoreSettings

T = TypeVar("T")

# A caller with access to the database has all permissions.
DATABASE_OPERATOR: Final = RequestContext.internal(Principal.with_role("database", Role.ADMIN))


def on_server_or_database(
    invocation: Invocation,
    config_path: Path | None,
    on_server: Callable[[Hetuflow], T],
    on_database: Callable[[Database, Clock], Awaitable[T]],
) -> T:
    """Call the server if a key is available, otherwise use the database directly."""
    if invocation.connection.api_key is not None:
        with invocation.client() as client:
            return on_server(client)
    settings = load_settings(StoreSettings, config_path=config_path)

    async def call_on_database() -> T:
        async with open_store(settings.database) as database:
            return await on_database(database, SystemClock())

    return asyncio.run(call_on_database())
