"""Every error Hetuflow raises on purpose.

    HetuflowError
    ├── ConfigInvalid              configuration that cannot be accepted, all faults at once
    ├── HostBlocked                something on this machine is in the way
    │   ├── PortTaken
    │   ├── DataDirectoryUnusable
    │   ├── DiskFull
    │   └── BinariesMissing
    ├── DatabaseUnusable
    │   ├── DatabaseUnreachable
    │   ├── DatabaseBusy           it took too long for something; the same may go well later
    │   ├── DatabaseTooOld
    │   ├── SchemaBehind           the database needs `hetuflow db upgrade`
    │   └── SchemaBeyondCode       the database needs newer code
    ├── ServerUnreachable          a client or an agent cannot reach any server
    │   └── TooMany                it asked too often, and is to ask again later
    ├── Invalid                    input that breaks a rule
    ├── NotFound
    ├── Denied
    │   └── Unauthenticated
    ├── Conflict                   the state does not allow it (any more)
    │   ├── TaskFailed             the result of a task is wanted that has none
    │   ├── Stale                  somebody has changed it since it was read
    │   └── Underway               the same is being done; ask again in a moment
    └── TooLarge

A message is one sentence that says what is wrong, and ends with what to do when there is something to do.
`code` is stable: programs may rely on it. HTTP statuses are mapped in `hetuflow_server/http/problems.py`,
exit codes in `hetuflow_core/runtime/exit_codes.py`, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with an input: where it is, and what is wrong with it."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class HetuflowError(Exception):
    code = "internal"

    def __init__(self, message: str, *, code: str | None = None, faults: Sequence[Fault] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.faults = tuple(faults)
        if code is not None:
            self.code = code


class ConfigInvalid(HetuflowError):
    code = "config.invalid"


class HostBlocked(HetuflowError):
    code = "host.blocked"


class PortTaken(HostBlocked):
    code = "host.port_taken"


class DataDirectoryUnusable(HostBlocked):
    code = "host.data_directory"


class DiskFull(HostBlocked):
    code = "host.disk_full"


class BinariesMissing(HostBlocked):
    code = "host.binaries_missing"


class DatabaseUnusable(HetuflowError):
    code = "database.unusable"


class DatabaseUnreachable(DatabaseUnusable):
    code = "database.unreachable"


class DatabaseBusy(DatabaseUnusable):
    code = "database.busy"


class DatabaseTooOld(DatabaseUnusable):
    code = "database.too_old"


class SchemaBehind(DatabaseUnusable):
    code = "database.schema_behind"


class SchemaBeyondCode(DatabaseUnusable):
    code = "database.schema_beyond_code"


class ServerUnreachable(HetuflowError):
    code = "server.unreachable"


class TooMany(ServerUnreachable):
    code = "too_many_requests"

    def __init__(
        self, message: str, *, code: str | None = None, faults: Sequence[Fault] = (), retry_after: int = 1
    ) -> None:
        super().__init__(message, code=code, faults=faults)
        # Seconds until it makes sense to ask again.
        self.retry_after = retry_after


class Invalid(HetuflowError):
    code = "invalid"


class NotFound(HetuflowError):
    code = "not_found"


class Denied(HetuflowError):
    code = "denied"


class Unauthenticated(Denied):
    code = "unauthenticated"


class Conflict(HetuflowError):
    code = "conflict"


class Stale(Conflict):
    code = "stale"


class Underway(Conflict):
    code = "underway"

    def __init__(self, message: str, *, code: str | None = None, retry_after: int = 1) -> None:
        super().__init__(message, code=code)
        # Seconds until it makes sense to ask again.
        self.retry_after = retry_after


class TooLarge(HetuflowError):
    code = "too_large"


class TaskFailed(Conflict):
    code = "task.failed"
