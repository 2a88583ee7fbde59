"""Scopes and how a batch is admitted: pure decisions."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from hypothesis import given, strategies as st

from hetuflow_core.limits import Scope, admit, job_scope, key_scope, key_scopes, room

JOB, OTHER = UUID(int=1), UUID(int=2)
A, B, C = Scope(1, "tool:a"), Scope(1, "tool:b"), Scope(2, "tool:a")


def test_keys_are_the_jobs_own_and_of_any_length() -> None:
    scopes = {key_scope(job, key) for job in (JOB, OTHER) for key in ("", "a", "b", "a" * 100_000, "\ud800")}
    assert len(scopes) == 10
    assert len({key_scope(JOB, str(key)) for key in range(1_000)}) == 1_000
    assert all(len(scope) < 100 for scope in scopes)
    assert key_scope(JOB, "a").startswith(key_scopes(JOB))
    assert not key_scope(OTHER, "a").startswith(key_scopes(JOB))
    assert job_scope(JOB) not in scopes


def test_room_is_that_of_the_tightest_scope() -> None:
    free = {A: 3, B: 1, C: -2}
    assert room([A, B], free) == 1
    assert room([A, C], free) == 0
    assert room([], free) is None
    assert room([Scope(9, "tool:a")], free) is None, "what has no row is not limited"


def test_a_row_goes_only_with_all_of_its_scopes_and_the_rest_is_returned() -> None:
    admitted, unused = admit([[A, B], [A], [B], [], [A]], {A: 2, B: 1})
    assert admitted == [True, True, False, True, False]
    assert unused == Counter()
    admitted, unused = admit([[A, B], [A, C]], {A: 2, B: 0, C: 1})
    assert admitted == [False, True]
    assert unused == Counter({A: 1})


@given(
    wanted=st.lists(st.lists(st.sampled_from([A, B, C]), unique=True), max_size=20),
    taken=st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 8)),
)
def test_nothing_is_used_that_was_not_taken_and_nothing_is_lost(
    wanted: list[list[Scope]], taken: dict[Scope, int]
) -> None:
    admitted, unused = admit(wanted, taken)
    used = Counter(scope for scopes, goes in zip(wanted, admitted, strict=True) if goes for scope in scopes)
    assert used + unused == Counter(taken)
    assert all(goes or scopes for scopes, goes in zip(wanted, admitted, strict=True))
