"""What an error of the database driver means."""

from __future__ import annotations

import re

import psycopg

from hetuflow_core.errors import DatabaseBusy, DatabaseUnreachable

# Connection exceptions, and the server saying that it is going, coming or has no connection to spare.
_AWAY = re.compile(r"08|57P0[1-5]|53300")


def sqlstate(error: BaseException) -> str | None:
    state: str | None = getattr(_driver_error(error), "sqlstate", None)
    return state


def lost_connection(error: BaseException) -> bool:
    """Tell whether the database was not to be had, as opposed to having refused a statement."""
    state = sqlstate(error)
    if state is None:
        return isinstance(_driver_error(error), psycopg.OperationalError | psycopg.InterfaceError)
    return bool(_AWAY.match(state))


def deadlocked(error: BaseException) -> bool:
    """Tell whether the database broke a ring of waiting transactions by ending this one: try again."""
    return isinstance(error, psycopg.errors.DeadlockDetected)


def passing(error: BaseException) -> bool:
    """Tell whether the database may take the same statements later: it was slow, or busy with others."""
    return isinstance(error, psycopg.Error) and not (sqlstate(error) or "").startswith(("22", "23"))


# A statement took longer than it may, a lock was not to be had, a ring of waiting transactions was broken.
_BUSY = frozenset({"57014", "55P03", "40P01", "40001"})


def busy(error: BaseException) -> DatabaseBusy | None:
    """Return what to say of an error that the same request may not meet again, or None for any other."""
    if not isinstance(error, psycopg.Error) or sqlstate(error) not in _BUSY:
        return None
    return DatabaseBusy("The database was too busy to answer in time: try again, or ask for less at once.")


def _driver_error(error: BaseException) -> BaseException:
    """Migrations go through SQLAlchemy, which wraps what the driver says; a server never loads it."""
    wrapped = getattr(error, "orig", None)
    return wrapped if isinstance(wrapped, BaseException) else error


def unreachable(error: Exception) -> DatabaseUnreachable:
    """Say in one sentence why the database cannot be reached; the driver's message holds no password."""
    lines = str(getattr(error, "orig", None) or error).strip().splitlines()
    reason = lines[0].rstrip(".") if lines else type(error).__name__
    return DatabaseUnreachable(
        f"The database cannot be reached ({reason}): check HETUFLOW_DATABASE__URL and that it is running.",
    )
