"""Which fires are generated: misfires by policy, the rest ahead of time, the same however it is cut up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from hetuflow_core.schedule import Misfire, MisfirePolicy, ScheduleSpec
from hetuflow_core.schedule.planning import Fires, Planned, ScheduleProgress, first_fire, plan

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
HORIZON = timedelta(seconds=60)
PLENTY = 100_000


def every(
    step: timedelta, end: datetime | None = None, excluded: Callable[[datetime], bool] = lambda _: False
) -> Fires:
    def fires_after(after: datetime) -> Iterator[datetime]:
        fire = after + step - (after - NOW) % step
        while end is None or fire <= end:
            yield fire
            fire += step

    return Fires(fires_after, excluded)


def spec(misfire: str = "latest", cap: int = 100, max_count: int | None = None) -> ScheduleSpec:
    policy = Misfire(policy=MisfirePolicy(misfire), cap=cap)
    return ScheduleSpec(name="s", every=MINUTE, misfire=policy, max_count=max_count)


def planned(
    wanted: ScheduleSpec, cursor: datetime, step: timedelta = MINUTE, *, room: int = PLENTY, fired: int = 0
) -> Planned:
    progress = ScheduleProgress(cursor, None, fired)
    return plan(wanted, progress, every(step), now=NOW, horizon=HORIZON, room=room)


def minutes(*numbers: float) -> tuple[datetime, ...]:
    return tuple(NOW + number * MINUTE for number in numbers)


def test_what_is_due_within_the_horizon_is_generated_once() -> None:
    first = planned(spec(), NOW, 20 * SECOND)
    assert first.fires == minutes(1 / 3, 2 / 3, 1)
    assert first.progress == ScheduleProgress(NOW + HORIZON, None, 3)
    assert first.next_fire_at == NOW + HORIZON + 20 * SECOND
    again = plan(spec(), first.progress, every(20 * SECOND), now=NOW, horizon=HORIZON, room=PLENTY)
    assert again.fires == ()
    assert again.progress == first.progress


@pytest.mark.parametrize(
    ("misfire", "cap", "made_up_for"),
    [("skip", 9, ()), ("latest", 9, (-2,)), ("all", 3, (-4, -3, -2)), ("all", 1, (-2,))],
)
def test_six_hours_without_a_leader(misfire: str, cap: int, made_up_for: tuple[int, ...]) -> None:
    """A minute late is on time, with the default grace; everything before is a misfire."""
    after = planned(spec(misfire, cap), NOW - 6 * HOUR)
    assert after.fires == minutes(*made_up_for, -1, 0, 1)
    assert after.progress == ScheduleProgress(NOW + HORIZON, None, len(after.fires))
    assert after.missed_from == NOW - 6 * HOUR + MINUTE
    assert after.missed_until == (minutes(made_up_for[0])[0] if made_up_for else NOW - MINUTE) - timedelta(
        microseconds=1
    )


def test_fewer_misfires_than_the_cap_are_all_made_up_for() -> None:
    after = planned(spec("all", cap=1000), NOW - 6 * HOUR)
    assert len(after.fires) == 361
    assert after.missed_from is None


def test_a_rare_fire_long_ago_is_found() -> None:
    after = planned(spec("latest"), NOW - timedelta(days=3000), timedelta(days=365))
    assert after.fires == (NOW - timedelta(days=365), NOW)


def test_an_outage_of_years_costs_no_walk_through_them() -> None:
    asked = 0

    def seconds(after: datetime) -> Iterator[datetime]:
        nonlocal asked
        for fire in every(SECOND).after(after):
            asked += 1
            yield fire

    progress = ScheduleProgress(NOW - timedelta(days=3650), None, 0)
    after = plan(
        spec("latest"), progress, Fires(seconds, lambda _: False), now=NOW, horizon=HORIZON, room=PLENTY
    )
    assert len(after.fires) == 1 + 61 + 60
    assert asked < 2_000


@pytest.mark.parametrize("misfire", ["skip", "latest", "all"])
@pytest.mark.parametrize("room", [1, 2, 7, 50])
def test_batches_do_not_change_how_many(misfire: str, room: int) -> None:
    """Nor does time that passes between them: each batch comes five seconds after the one before."""
    wanted = spec(misfire, cap=40)
    progress, now, fires, until = (
        ScheduleProgress(NOW - 6 * HOUR, None, 0),
        NOW,
        list[datetime](),
        NOW + HORIZON,
    )
    while progress.cursor < until:
        step = plan(wanted, progress, every(10 * SECOND), now=now, horizon=HORIZON, room=room)
        fires += step.fires
        progress, now = step.progress, now + (5 * SECOND if room > 1 else timedelta(milliseconds=400))
    fires = [fire for fire in fires if fire <= until]
    kept = {"skip": 0, "latest": 1, "all": 40}[misfire]
    assert fires == [NOW - MINUTE + n * 10 * SECOND for n in range(-kept, 13)]


def test_a_crash_between_the_decision_and_the_rest_of_the_batch_loses_nothing() -> None:
    """What was decided stays decided, however long nobody goes on; what came after is decided anew."""
    wanted = spec("all", cap=5)
    begun = planned(wanted, NOW - 6 * HOUR, room=2)
    assert begun.fires == minutes(-6, -5)
    later = NOW + HOUR
    rest = plan(wanted, begun.progress, every(MINUTE), now=later, horizon=HORIZON, room=PLENTY)
    assert rest.fires == (*minutes(-4, -3, -2), *minutes(*range(54, 62)))


@pytest.mark.parametrize("misfire", ["skip", "latest", "all"])
def test_max_count_counts_what_is_generated(misfire: str) -> None:
    after = planned(spec(misfire, cap=4, max_count=10), NOW - 6 * HOUR, fired=8)
    expected = {"skip": (-1, 0), "latest": (-2, -1), "all": (-5, -4)}[misfire]
    assert after.fires == minutes(*expected)
    assert after.next_fire_at is None
    assert after.progress.fired_count == 10
    more = plan(
        spec(misfire, max_count=10), after.progress, every(MINUTE), now=NOW, horizon=HORIZON, room=PLENTY
    )
    assert (more.fires, more.next_fire_at) == ((), None)


def test_the_first_fire_of_a_schedule() -> None:
    assert first_fire(spec(), every(MINUTE), NOW, 0) == NOW + MINUTE
    assert first_fire(spec(max_count=3), every(MINUTE), NOW, 3) is None
    assert first_fire(spec(), every(MINUTE, end=NOW), NOW, 0) is None


def test_what_a_calendar_leaves_out_is_neither_generated_nor_a_misfire() -> None:
    odd = every(MINUTE, excluded=lambda fire: fire.minute % 2 == 1)
    progress = ScheduleProgress(NOW - 6 * HOUR, None, 0)
    after = plan(spec("all", cap=3), progress, odd, now=NOW, horizon=HORIZON, room=PLENTY)
    assert after.fires == minutes(-6, -4, -2, 0)
    assert after.next_fire_at == NOW + 2 * MINUTE


def test_a_schedule_that_is_left_out_for_years_is_looked_at_now_and_then() -> None:
    asked = 0

    def never(_: datetime) -> bool:
        nonlocal asked
        asked += 1
        return True

    progress = ScheduleProgress(NOW - timedelta(days=3650), None, 0)
    after = plan(spec("all"), progress, every(SECOND, excluded=never), now=NOW, horizon=HORIZON, room=PLENTY)
    assert after.fires == ()
    assert after.next_fire_at is not None
    assert after.next_fire_at > NOW + HORIZON
    assert asked < 300_000


def test_nothing_is_planned_without_room() -> None:
    with pytest.raises(ValueError, match="room"):
        planned(spec(), NOW, room=0)


@given(
    step=st.integers(1, 400),
    behind=st.integers(-60, 4000),
    rooms=st.lists(st.integers(1, 30), min_size=1, max_size=5),
    cap=st.integers(1, 20),
    misfire=st.sampled_from(["skip", "latest", "all"]),
    max_count=st.none() | st.integers(0, 30),
)
def test_cut_up_anyhow_the_fires_are_those_of_one_plan(
    step: int, behind: int, rooms: list[int], cap: int, misfire: str, max_count: int | None
) -> None:
    wanted, source = spec(misfire, cap, max_count), every(step * SECOND)
    start = ScheduleProgress(NOW - behind * SECOND, None, 0)
    whole = plan(wanted, start, source, now=NOW, horizon=HORIZON, room=PLENTY)
    cut, progress = list[datetime](), start
    for turn in range(PLENTY):
        part = plan(wanted, progress, source, now=NOW, horizon=HORIZON, room=rooms[turn % len(rooms)])
        assert list(part.fires) == sorted(set(part.fires))
        assert part.progress.cursor >= progress.cursor
        assert all(progress.cursor < fire <= part.progress.cursor for fire in part.fires)
        assert part.next_fire_at is None or part.next_fire_at > part.progress.cursor
        cut += part.fires
        progress = part.progress
        if not part.fires:
            break
    assert tuple(cut) == whole.fires
    late = [fire for fire in cut if fire < NOW - MINUTE]
    assert len(late) <= {"skip": 0, "latest": 1, "all": cap}[misfire]
    assert max_count is None or len(cut) <= max_count
