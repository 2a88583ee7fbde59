"""What an agent holds, and how short the shortest lease of it is."""

from __future__ import annotations

from uuid import uuid4

from hetuflow_agent.attempt.claims import Claims
from hetuflow_core.messages import Held


def test_the_shortest_lease_counts_as_long_as_it_is_held() -> None:
    claims = Claims()
    long, short, unknown = (Held(uuid4(), uuid4()) for _ in range(3))
    for held, lease in ((long, 300.0), (short, 4.0), (unknown, None)):
        claims.hold(held.instance_id, held.token, lease)
    assert claims.snapshot() == ([long, short, unknown], 4.0)
    claims.let_go(short.token)
    assert claims.snapshot() == ([long, unknown], 300.0)
    assert (claims.holds(short.token), claims.holds(long.token), len(claims)) == (False, True, 2)
    claims.let_go(long.token)
    assert claims.snapshot() == ([unknown], None)


def test_a_result_of_what_is_held_keeps_its_lease() -> None:
    """Until the server has it, the work is ours, and so is its lease."""
    claims, held = Claims(), Held(uuid4(), uuid4())
    claims.hold(held.instance_id, held.token, 4.0)
    claims.hold(held.instance_id, held.token)
    assert claims.snapshot() == ([held], 4.0)
