"""Users, keys and logins as one server sees them, without the server."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hetuflow_core.access.roles import Role
from hetuflow_core.resources.identity import UserRequest
from hetuflow_core.runtime.clock import ManualClock
from hetuflow_server.identity.access import Access
from hetuflow_server.identity.keys.agent_tokens import AgentTokens
from hetuflow_server.identity.keys.api_keys import ApiKeys
from hetuflow_server.identity.logins.access_tokens import AccessTokens
from hetuflow_server.identity.logins.passwords import Passwords
from hetuflow_server.identity.logins.service import LoginLimits, Logins
from hetuflow_server.identity.request_rates import RequestRates
from hetuflow_server.identity.users.service import Users
from hetuflow_server.postgres.database import Database
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal

# Somebody who has not logged in yet.
ANONYMOUS = RequestContext.internal()
ROOT = RequestContext.internal(Principal.with_role("root", Role.ADMIN))
PASSWORD = "correct horse"
SOURCE = "192.0.2.7"
PASSWORDS = Passwords()


@dataclass
class Identities:
    """One server's view; two of them share a database."""

    url: str
    database: Database
    clock: ManualClock
    users: Users
    keys: ApiKeys
    tokens: AgentTokens
    access: Access
    logins: Logins

    def pass_a_moment(self) -> None:
        """Let what was believed be asked for again."""
        self.clock.advance(1.5)

    async def principal(self, credential: str) -> Principal:
        self.pass_a_moment()
        return await self.access.principal(credential, SOURCE)


def one_server(url: str, database: Database) -> Identities:
    clock = ManualClock(datetime.now(UTC))
    tokens = AccessTokens("s" * 48, clock, lifetime=timedelta(minutes=15))
    return Identities(
        url,
        database,
        clock,
        Users(database, PASSWORDS, clock),
        ApiKeys(database, clock),
        AgentTokens(database, clock),
        Access(database, clock, RequestRates(clock, requests_per_second=1_000), tokens),
        Logins(
            database,
            PASSWORDS,
            tokens,
            clock,
            session_lifetime=timedelta(days=7),
            limits=LoginLimits(per_user=3, per_source=50),
        ),
    )


async def make_user(
    here: Identities, name: str, role: Role | None = None, namespace: str | None = None
) -> None:
    await here.users.create(ROOT, UserRequest(name, PASSWORD, None, role, namespace))


async def log_in(here: Identities, name: str) -> RequestContext:
    answer = await here.logins.log_in(ANONYMOUS, name, PASSWORD, SOURCE)
    return RequestContext.internal(await here.principal(answer.access_token))
