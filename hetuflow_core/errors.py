"""The exceptions that Hetuflow raises on purpose.

    HetuflowError
    ├── ConfigInvalid              the configuration is invalid; lists all faults
    ├── HostBlocked                a problem of this machine prevents the operation
    │   ├── PortTaken
    │   ├── DataDirectoryUnusable
    │   ├── DiskFull
    │   └── BinariesMissing
    ├── DatabaseUnusable
    │   ├── DatabaseUnreachable
    │   ├── DatabaseBusy           a database operation timed out; a later try may succeed
    │   ├── DatabaseTooOld
    │   ├── SchemaBehind           the database needs `hetuflow db upgrade`
    │   └── SchemaBeyondCode       the database needs newer code
    ├── ServerUnreachable          a client or an agent cannot reach any server
    │   └── TooMany                the caller exceeded a rate limit and must retry later
    ├── Invalid                    the input breaks a rule; lists all faults
    ├── NotFound
    ├── Denied
    │   └── Unauthenticated
    ├── Conflict                   the current state does not allow the operation
    │   ├── TaskFailed             a result was requested of a task that did not succeed
    │   ├── Stale                  the object changed after the caller read it
    │   └── Underway               an identical request is in progress; retry in a moment
    └── TooLarge

A message is one sentence: what is wrong and, where possible, what to do. `str()` of an error adds its faults.
`code` is stable: programs may rely on it. HTTP statuses are mapped in `hetuflow_server/http/problems.py`,
exit codes in `hetuflow_core/runtime/exit_codes.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """One problem of an input: its location and a message."""

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

    def __str__(self) -> str:
        return "\n".join([self.message, *(f"  {fault}" for fault in self.faults)])


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
        # Seconds to wait before the next try.
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
        # Seconds to wait before the next try.
        self.retry_after = retry_after


class TooLarge(HetuflowError):
    code = "too_large"


class TaskFailed(Conflict):
    code = "task.failed"
