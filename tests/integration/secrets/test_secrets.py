"""Secrets on a database: versions, users, delivery to the holder of a claim, and changing the key."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from hetuflow_core import messages as m
from hetuflow_core.access.roles import Role
from hetuflow_core.errors import Conflict, Invalid, NotFound
from hetuflow_core.resources.apply import ApplyAction
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_server.agents.sessions import AgentSessions
from hetuflow_server.app.schedule_edits import schedule_edits
from hetuflow_server.apply.documents import DocumentApplier
from hetuflow_server.gateway.secret_delivery import SecretDelivery
from hetuflow_server.identity.access import AgentCredential
from hetuflow_server.jobs.versions import JobVersions
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal
from hetuflow_server.secrets.keyring import Keyring
from hetuflow_server.secrets.service import Secrets
from tests.support.queue.engine import WHO, Engine

OLD, NEW = "o" * 40, "n" * 40
VALUE, LATER = "hunter22-first", "hunter22-second"
USER = {"kind": "job", "name": "user", "run": {"command": ["true"], "env": {"T": {"secret": "token"}}}}


class Vault:
    def __init__(self, engine: Engine, key: str = OLD, *former: str) -> None:
        self.engine, self.database, self.clock = engine, engine.database, SystemClock()
        self.keyring = Keyring([key, *former])
        self.secrets = Secrets(self.database, self.keyring, self.clock)
        self.applying = DocumentApplier(self.database, self.clock, schedule_edits(), self.secrets)
        sessions = AgentSessions(self.database, engine.hints, engine.finisher, self.clock)
        self.sessions = sessions
        self.delivery = SecretDelivery(self.database, sessions, JobVersions(), self.keyring, self.clock)

    async def apply(self, *documents: dict[str, Any], dry_run: bool = False) -> list[ApplyAction]:
        result = await self.applying.apply(WHO, documents, dry_run=dry_run)
        return [item.action for item in result.items]


@pytest.fixture
async def vault(scheduling: Engine) -> Vault:
    return Vault(scheduling)


async def test_values_have_versions_and_are_stored_unreadable(vault: Vault) -> None:
    made = await vault.secrets.create(WHO, "default", "token", VALUE)
    assert (made.version, made.updated_by, made.used_by) == (1, "test", [])
    assert (await vault.secrets.set(WHO, "default", "token", VALUE)).version == 1
    assert (await vault.secrets.set(WHO, "default", "token", LATER)).version == 2
    with pytest.raises(Conflict, match="already"):
        await vault.secrets.create(WHO, "default", "token", VALUE)
    with pytest.raises(NotFound):
        await vault.secrets.set(WHO, "default", "other", VALUE, must_exist=True)
    rows = vault.engine.all("SELECT * FROM sched_secret s JOIN sched_secret_version v ON v.secret_id = s.id")
    assert len(rows) == 2
    assert VALUE not in str(rows)
    assert LATER not in str(rows)
    # Only the one before is kept.
    await vault.secrets.set(WHO, "default", "token", "hunter22-third")
    kept = vault.engine.all("SELECT version FROM sched_secret_version ORDER BY version")
    assert [row["version"] for row in kept] == [2, 3]


async def test_documents_set_secrets_and_jobs_may_use_them(vault: Vault) -> None:
    token = {"kind": "secret", "name": "token", "value": VALUE}
    assert await vault.apply(USER, token, dry_run=True) == [ApplyAction.CREATED, ApplyAction.CREATED]
    assert vault.engine.all("SELECT FROM sched_secret") == []
    assert await vault.apply(USER, token) == [ApplyAction.CREATED, ApplyAction.CREATED]
    assert await vault.apply(USER, token) == [ApplyAction.UNCHANGED, ApplyAction.UNCHANGED]
    assert await vault.apply({**token, "value": LATER}) == [ApplyAction.CHANGED]
    with pytest.raises(Invalid) as refused:
        await vault.apply({"kind": "secret", "name": "x", "from": {"env": "HOME"}})
    assert refused.value.code == "secret.no_value"


async def test_unknown_secrets_are_named_with_their_places(vault: Vault) -> None:
    http = {"url": "https://a.b", "headers": {"X": {"secret": "two"}}}
    other = {"kind": "job", "name": "http", "run": {"http": http}}
    with pytest.raises(Invalid) as refused:
        await vault.apply(USER, other)
    assert refused.value.code == "secret.not_defined"
    assert [fault.field for fault in refused.value.faults] == [
        "documents[0].run.env.T",
        "documents[1].run.http.headers.X",
    ]
    assert vault.engine.all("SELECT FROM sched_job") == []


async def test_a_secret_in_use_is_not_deleted(vault: Vault) -> None:
    await vault.secrets.create(WHO, "default", "token", VALUE)
    await vault.apply(USER)
    assert (await vault.secrets.secret(WHO, "default", "token")).used_by == ["user"]
    with pytest.raises(Conflict, match="used by user"):
        await vault.secrets.delete(WHO, "default", "token")
    await vault.apply({**USER, "run": {"command": ["true"]}})
    await vault.secrets.delete(WHO, "default", "token")
    assert vault.engine.all("SELECT FROM sched_secret_version") == []


async def test_another_namespace_is_not_there(vault: Vault) -> None:
    vault.engine.rows.execute("INSERT INTO sched_namespace (name) VALUES ('theirs')")
    await vault.secrets.create(WHO, "default", "token", VALUE)
    stranger = RequestContext.internal(Principal.with_role("stranger", Role.ADMIN, "theirs"))
    assert await vault.secrets.list_secrets(stranger, namespace=None, after=None, limit=10, cap=10) == ([], 0)
    for attempt in (
        vault.secrets.secret(stranger, "default", "token"),
        vault.secrets.set(stranger, "default", "token", LATER),
        vault.secrets.delete(stranger, "default", "token"),
    ):
        with pytest.raises(NotFound):
            await attempt


class Holder:
    """An agent with one claimed instance of a job that uses the secret."""

    def __init__(self, vault: Vault) -> None:
        self.vault = vault
        self.credential = AgentCredential(uuid4(), {"default": 1})
        self.session, self.token, self.instance = uuid4(), uuid4(), uuid4()

    async def claim(self, document: dict[str, Any] = USER, node: str | None = None) -> None:
        """`node`: of the flow that the document is."""
        rows = self.vault.engine.rows
        rows.execute(
            "INSERT INTO sched_agent_token (id, prefix, digest, name) VALUES (%s, %s, %s, 'x')",
            [self.credential.token_id, uuid4().hex[:12], uuid4().bytes * 2],
        )
        register = m.Register(f"agent-{uuid4().hex[:6]}", self.session, "1", ["default"], 4)
        registered = await self.vault.sessions.register(self.credential, register)
        await self.vault.secrets.set(WHO, "default", "token", VALUE)
        await self.vault.apply(document)
        job = self.vault.engine.one("SELECT id FROM sched_job WHERE name = %s", document["name"])["id"]
        task = await self.vault.engine.run(job)
        if node is not None:
            rows.execute(
                "UPDATE sched_task SET flow_node = %s, flow_context = '{}' WHERE id = %s", [node, task]
            )
        self.instance = self.vault.engine.one(
            "UPDATE sched_task_instance SET status = 'running', token = %s, claim_no = 1, agent_id = %s, "
            "held_reason = NULL, session_id = %s, started_at = now(), "
            "lease_until = now() + interval '1 hour' "
            "WHERE task_id = %s RETURNING id",
            self.token,
            registered.agent_id,
            self.session,
            task,
        )["id"]

    async def fetch(self, versions: dict[str, int] | None = None, token: UUID | None = None) -> list[Any]:
        asked = m.FetchSecrets(self.session, self.instance, token or self.token, versions or {})
        answer = await self.vault.delivery.deliver(self.credential, asked)
        return [(one.name, one.version, one.value) for one in answer.secrets]


@pytest.fixture
async def holder(vault: Vault) -> Holder:
    holder = Holder(vault)
    await holder.claim()
    return holder


async def test_only_the_holder_of_the_claim_is_given_values(vault: Vault, holder: Holder) -> None:
    assert await holder.fetch() == [("token", 1, VALUE)]
    with pytest.raises(Conflict) as stale:
        await holder.fetch(token=uuid4())
    assert stale.value.code == "secret.stale"
    other = Holder(vault)
    await other.claim()
    other.instance, other.token = holder.instance, holder.token
    with pytest.raises(Conflict):
        await other.fetch()
    vault.engine.rows.execute("DELETE FROM sched_task_instance WHERE id = %s", [holder.instance])
    with pytest.raises(Conflict):
        await holder.fetch()


async def test_a_node_of_a_flow_gets_what_it_names_itself(vault: Vault) -> None:
    nodes = [
        {"name": "with", "run": {"command": ["true"], "env": {"T": {"secret": "token"}}}},
        {"name": "without", "run": {"command": ["true"]}},
    ]
    flow = {"kind": "job", "name": "graph", "flow": {"nodes": nodes}}
    for node, given in (("with", [("token", 1, VALUE)]), ("without", [])):
        holder = Holder(vault)
        await holder.claim(flow, node)
        assert await holder.fetch() == given
    assert (await vault.secrets.secret(WHO, "default", "token")).used_by == ["graph"]


async def test_what_a_task_was_started_with_can_be_asked_for_again(vault: Vault, holder: Holder) -> None:
    await vault.secrets.set(WHO, "default", "token", LATER)
    assert await holder.fetch() == [("token", 2, LATER)]
    assert await holder.fetch({"token": 1, "foreign": 1}) == [("token", 1, VALUE)]
    with pytest.raises(NotFound) as gone:
        await holder.fetch({"token": 7})
    assert gone.value.code == "secret.not_found"


async def test_the_key_is_changed_while_both_are_in_use(vault: Vault, holder: Holder) -> None:
    await vault.secrets.set(WHO, "default", "token", LATER)
    new = Vault(vault.engine, NEW, OLD)
    assert await holder.fetch() == [("token", 2, LATER)]
    step = await new.secrets.rotate_key(WHO)
    assert (step.rewrapped, step.remaining) == (2, 0)
    assert (await new.secrets.rotate_key(WHO)).rewrapped == 0
    holder.vault = Vault(vault.engine, NEW)
    holder.vault.delivery._sessions = vault.sessions
    assert await holder.fetch() == [("token", 2, LATER)]
    holder.vault = vault
    with pytest.raises(Conflict) as unknown:
        await holder.fetch()
    assert unknown.value.code == "secret.key_unknown"
