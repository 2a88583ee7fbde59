"""When answers to a probe become a verdict."""

from __future__ import annotations

from uuid import uuid4

import pytest

from hetuflow_agent.attempt.readiness import ReadinessReports
from hetuflow_agent.probes.tally import Tally
from hetuflow_core.messages import Probe

YES, NO = True, False


@pytest.mark.parametrize(
    ("answers", "verdicts"),
    [
        ([YES], [YES]),
        ([NO, NO], [None, None]),
        ([NO, NO, NO], [None, None, NO]),
        ([NO, NO, YES, NO, NO], [None, None, YES, YES, YES]),
        ([YES, NO, NO, NO, NO, YES], [YES, YES, YES, NO, NO, YES]),
    ],
)
def test_enough_in_a_row_make_a_verdict(answers: list[bool], verdicts: list[bool | None]) -> None:
    tally = Tally(Probe(failure_threshold=3, success_threshold=1))
    found = []
    for answer in answers:
        before = tally.verdict
        changed = tally.note(answer)
        assert changed is (tally.verdict is not before)
        found.append(tally.verdict)
    assert found == verdicts


def test_success_may_need_several_too() -> None:
    tally = Tally(Probe(success_threshold=2))
    assert [tally.note(YES), tally.note(YES), tally.note(YES)] == [False, True, False]


def test_what_was_told_is_not_told_again() -> None:
    book, instance, token = ReadinessReports(), uuid4(), uuid4()
    (news,) = book.changed({(instance, token): True})
    assert book.changed({(instance, token): True}) == [news], "as long as nobody has heard it"
    book.note_reported([news], {token})
    assert book.changed({(instance, token): True}) == []
    assert [one.ready for one in book.changed({(instance, token): False})] == [False]
    book.note_reported([], set())
    assert book.changed({(instance, token): True}) == [news], "of another claim nothing is known"
