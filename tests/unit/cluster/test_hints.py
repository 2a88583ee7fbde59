"""Hints wake who waits for just that, and everybody once the server stops."""

from __future__ import annotations

from uuid import uuid4

from hetuflow_server.cluster.hints import Hints, Topic, instance_topic, namespace_topic


async def test_news_wakes_who_waits_for_it_once_and_nobody_else() -> None:
    hints, told = Hints(), list[tuple[Topic, ...]]()
    hints.listen(lambda topics, *, relayed: told.append(tuple(topics)))
    with (
        hints.waiting([namespace_topic(1), namespace_topic(2)]) as one,
        hints.waiting([namespace_topic(3)]) as other,
    ):
        hints.give([namespace_topic(2)])
        assert (await one.wait(0), await other.wait(0)) == (True, False)
        assert not await one.wait(0), "it was told"
        hints.give([])
        assert not await one.wait(0)
    assert told == [(namespace_topic(2),)], "who listens hears of all there is"


async def test_what_has_ended_is_told_to_who_follows_it_alone() -> None:
    hints, ended, goes_on = Hints(), uuid4(), uuid4()
    hints.give_ended([ended])
    with hints.waiting([instance_topic(ended)]) as one, hints.waiting([instance_topic(goes_on)]) as other:
        hints.give_ended([ended])
        assert (await one.wait(0), await other.wait(0)) == (True, False)


async def test_a_server_that_stops_wakes_who_waits_and_lets_nobody_wait_any_more() -> None:
    hints = Hints()
    with hints.waiting([namespace_topic(1)]) as waiter:
        hints.close()
        assert await waiter.wait(0)
    assert hints.closed
    with hints.waiting([namespace_topic(1)]) as late:
        assert await late.wait(0)


async def test_nothing_is_kept_of_who_has_gone() -> None:
    hints = Hints()
    with hints.waiting([namespace_topic(1)]), hints.waiting([namespace_topic(1)]):
        pass
    assert not hints._waiters
