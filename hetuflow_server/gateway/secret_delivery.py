"""Secrets to the agent that holds the claim, and to nobody else."""

from __future__ import annotations

from hetuflow_core import ids, messages as m
from hetuflow_core.errors import Conflict, NotFound
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.agents.sessions import AgentSessions
from hetuflow_server.identity.access import AgentCredential
from hetuflow_server.jobs.versions import JobVersions
from hetuflow_server.postgres.database import Database
from hetuflow_server.secrets import store
from hetuflow_server.secrets.keyring import Keyring
from hetuflow_server.secrets.service import open_row


class SecretDelivery:
    def __init__(
        self,
        database: Database,
        sessions: AgentSessions,
        versions: JobVersions,
        keyring: Keyring,
        clock: Clock,
    ) -> None:
        self._database = database
        self._sessions = sessions
        self._versions = versions
        self._keyring = keyring
        self._clock = clock

    async def deliver(self, credential: AgentCredential, asked: m.FetchSecrets) -> m.SecretsFetched:
        """Return the values the job of this claim uses; what it does not name is not to be had."""
        session = await self._sessions.current(credential, asked.session_id)
        async with self._database.transaction() as connection:
            claim = await store.claim_of(connection, asked.instance_id, asked.token, session.id)
            if claim is None:
                raise Conflict("This instance is not the agent's.", code="secret.stale")
            version = await self._versions.get(connection, claim.job_id, claim.job_version, claim.flow_node)
            names = sorted(version.run.secret_names)
            if asked.versions:
                wanted: dict[str, int | None] = {n: asked.versions[n] for n in names if n in asked.versions}
            else:
                wanted = dict.fromkeys(names)
            rows = await store.values(connection, claim.namespace_id, wanted)
        missing = sorted(set(wanted) - {row.name for row in rows})
        if missing:
            raise NotFound(
                f"The namespace {version.namespace} has no secret {missing[0]} (any more): set it, or "
                "correct the job.",
                code="secret.not_found",
            )
        found = [m.DeliveredSecret(row.name, row.version, open_row(self._keyring, row)) for row in rows]
        return m.SecretsFetched(ids.milliseconds(self._clock.now()), found)
