"""What an error of the database driver means."""

from __future__ import annotations

import re

from sqlalchemy.exc import DBAPIError

from hetuflow_core.errors import DatabaseUnreachable

# Connection exceptions, and the server saying that it is going, coming or has no connection to spare.
_AWAY = re.compile(r"08|57P0[1-5]|53300")


def sqlstate(error: DBAPIError) -> str | None:
    return getattr(error.orig, "sqlstate", None)


def lost_connection(error: DBAPIError) -> bool:
    """Tell whether the database was not to be had, as opposed to having refused a statement."""
    state = sqlstate(error)
    return error.connection_invalidated or state is None or bool(_AWAY.match(state))


def unreachable(error: Exception) -> DatabaseUnreachable:
    """Say in one sentence why the database cannot be reached; the driver's message holds no password."""
    lines = str(getattr(error, "orig", None) or error).strip().splitlines()
    reason = lines[0].rstrip(".") if lines else type(error).__name__
    return DatabaseUnreachable(
        f"The database cannot be reached ({reason}): check HETUFLOW_DATABASE__URL and that it is running.",
    )
