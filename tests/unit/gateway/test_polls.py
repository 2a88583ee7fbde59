"""What becomes of a poll: an agent knows best what it has free, within what it may be given at all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from hetuflow_core import messages as m
from hetuflow_core.placement import Resources, RunningJob
from hetuflow_core.states import AgentStatus
from hetuflow_server.agents.store import AgentCapabilities, AgentSession
from hetuflow_server.gateway.polls import _waiting_poll
from hetuflow_server.identity.access import AgentCredential
from hetuflow_server.queue.waiting_polls import WaitingPoll

CREDENTIAL = AgentCredential(uuid4(), {"mine": 1, "ours": 2})
HAS = Resources(cpu=4, memory=100, gpu=1)


async def asked(
    *, free: int = 1, prefetch_ms: int = 0, status: str = "online", slots: int = 4, **said: Any
) -> WaitingPoll:
    session = AgentSession(
        uuid4(),
        "one",
        status,
        slots,
        {},
        AgentCapabilities(namespaces=["mine", "theirs"], resources=HAS),
        datetime.now(UTC),
    )
    poll = m.Poll(
        session_id=uuid4(), request_id=uuid4(), free_slots=free, wait_ms=0, prefetch_ms=prefetch_ms, **said
    )
    return _waiting_poll(CREDENTIAL, session, poll, repeated=False)


@pytest.mark.parametrize(
    ("free", "slots", "given"), [(3, 4, 3), (260, 4, 260), (261, 4, 260), (900, 400, 500), (0, 4, 0)]
)
async def test_a_poll_takes_little_more_than_the_slots(free: int, slots: int, given: int) -> None:
    """However much it asks for: what is given to one is kept from all others."""
    assert (await asked(free=free, slots=slots)).free == given


@pytest.mark.parametrize("status", sorted(set(AgentStatus) - {AgentStatus.ONLINE}))
async def test_who_takes_no_work_is_given_none(status: AgentStatus) -> None:
    assert (await asked(free=3, status=status)).free == 0


@pytest.mark.parametrize(("asked_for", "given"), [(2_000, 2_000), (60_000, 5_000), (-1, 0)])
async def test_nothing_is_taken_long_before_it_is_due(asked_for: int, given: int) -> None:
    assert (await asked(prefetch_ms=asked_for)).prefetch == timedelta(milliseconds=given)


async def test_what_is_free_is_what_it_says_but_no_more_than_it_has() -> None:
    assert (await asked()).free_resources == HAS
    some = Resources(cpu=1, memory=50, gpu=0)
    assert (await asked(free_resources=some)).free_resources == some
    more = Resources(cpu=9, memory=900, gpu=9)
    assert (await asked(free_resources=more)).free_resources == HAS


async def test_it_serves_what_it_asked_for_of_what_it_may() -> None:
    neighbours = [RunningJob("mine", "a"), RunningJob("theirs", "b"), RunningJob("ours", "c")]
    one = await asked(running=neighbours)
    assert one.served == {1}
    assert one.running == {1: neighbours[:1], 2: neighbours[2:]}, "of others' namespaces it can tell nothing"
