"""Who is logged in from where: one's own sessions for everybody, those of others for who manages users."""

from __future__ import annotations

from uuid import UUID

import msgspec

from hetuflow_core.access.permissions import Permission
from hetuflow_core.errors import NotFound
from hetuflow_core.resources.identity import Session
from hetuflow_server.identity.logins import store
from hetuflow_server.postgres.database import Database
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import PrincipalKind


class UserSessions:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def list_sessions(
        self, context: RequestContext, user: str | None, *, before: UUID | None, limit: int, cap: int
    ) -> tuple[list[Session], int]:
        """Return one's own or, for who manages users, a user's; one more than `limit` when there are more.

        A key has none: it is not logged in, and what its owner does elsewhere is not its business.
        """
        if user is not None and not _is(context, user):
            context.principal.needing(Permission.USERS_MANAGE)
        elif context.principal.kind is PrincipalKind.USER:
            user = context.principal.name
        else:
            return [], 0
        async with self._database.transaction(context) as connection:
            found = await store.listed(connection, user, before=before, limit=limit + 1)
            total = await store.count(connection, user, cap + 1)
        shown = [
            msgspec.structs.replace(one, current=one.id == context.principal.session_id) for one in found
        ]
        return shown, total

    async def end(self, context: RequestContext, session_id: UUID) -> None:
        """End a session, as logging out there would; those of others do not exist for who may not."""
        async with self._database.transaction(context) as connection:
            found = await store.lock(connection, session_id)
            if found is None or not (
                _is(context, found.name)
                or context.principal.rights.allows_everywhere(Permission.USERS_MANAGE)
            ):
                raise NotFound("There is no such session.", code="session.not_found")
            context.audit.note_change("session", session_id, before={"user": found.name})
            await store.end(connection, session_id)


def _is(context: RequestContext, user: str) -> bool:
    return context.principal.kind is PrincipalKind.USER and context.principal.name == user
