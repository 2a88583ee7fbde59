"""The meaning of errors of the database driver."""

from __future__ import annotations

import re

import psycopg

from hetuflow_core.errors import DatabaseBusy, DatabaseUnreachable

# Connection exceptions; the server is stopping, starting, or has no free connection.
_AWAY = re.compile(r"08|57P0[1-5]|53300")


def sqlstate(error: BaseException) -> str | None:
    state: str | None = getattr(_driver_error(error), "sqlstate", None)
    return state


def lost_connection(error: BaseException) -> bool:
    """Whether the database was unreachable, as opposed to having refused a statement."""
    state = sqlstate(error)
    if state is None:
        return isinstance(_driver_error(error), psycopg.OperationalError | psycopg.InterfaceError)
    return bool(_AWAY.match(state))


def deadlocked(error: BaseException) -> bool:
    """Whether the database resolved a deadlock by ending this transaction: try again."""
    return isinstance(error, psycopg.errors.DeadlockDetected)


def passing(error: BaseException) -> bool:
    """Whether the same statements may succeed later, because the database was slow or busy."""
    return isinstance(error, psycopg.Error) and not (sqlstate(error) or "").startswith(("22", "23"))


# A statement timed out, a lock was not available, a deadlock was resolved.
_BUSY = frozenset({"57014", "55P03", "40P01", "40001"})


def busy(error: BaseException) -> DatabaseBusy | None:
    """Return the error to report if the same request may succeed later, else None."""
    if not isinstance(error, psycopg.Error) or sqlstate(error) not in _BUSY:
        return None
    return DatabaseBusy("The database was too busy to answer in time: try again, or ask for less at once.")


def _driver_error(error: BaseException) -> BaseException:
    """Unwrap errors of migrations: SQLAlchemy wraps the driver's error. A server never loads SQLAlchemy."""
    wrapped = getattr(error, "orig", None)
    return wrapped if isinstance(wrapped, BaseException) else error


def unreachable(error: Exception) -> DatabaseUnreachable:
    """Return an error that explains why the database cannot be reached; it contains no password."""
    lines = str(getattr(error, "orig", None) or error).strip().splitlines()
    reason = lines[0].rstrip(".") if lines else type(error).__name__
    return DatabaseUnreachable(
        f"The database cannot be reached ({reason}): check HETUFLOW_DATABASE__URL and that it is running.",
    )
