"""The gateway's promises, asked for by an agent that does everything by hand."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import httpx
import msgspec
import psycopg
import pytest
import zstandard

from hetuflow_core import messages as m
from hetuflow_core.resources.tasks import RunRequest, TaskDetail
from hetuflow_core.states import InstanceStatus
from tests.e2e.conftest import System, command_on
from tests.support.agent.manual_agent import HandAgent
from tests.support.waiting import wait_until

OK, STALE, CANCELLED = m.ReportOutcome.OK, m.ReportOutcome.STALE, m.ReportOutcome.CANCELLED
QUICK = {"run": {"command": ["true"]}}


@pytest.fixture
def agent(lone_server: System) -> Iterator[HandAgent]:
    """An agent of this test alone; whatever others left in the queue is cancelled first."""
    for daemon in lone_server.client.schedules(kind="daemon", enabled=True):
        lone_server.client.disable_schedule(daemon.id)
    cancelled: set[UUID] = set()
    # What is cancelled may be followed by the next of its backfill; what is reserved ends when given back.
    while waiting := {
        task.id
        for status in ("pending", "waiting_retry")
        for task in lone_server.client.tasks(status=status)
        if task.id not in cancelled
    }:
        for task_id in waiting:
            lone_server.client.cancel(task_id)
        cancelled |= waiting
    agent = HandAgent(lone_server.url, lone_server.agent_token)
    agent.register()
    yield agent
    agent.register()  # a test may have put another session in its place
    for assignment in agent.poll().assignments:
        agent.report(m.Release(assignment.instance_id, assignment.token))


def sql(system: System, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(system.database_url, autocommit=True) as connection:
        cursor = connection.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []


def begin(system: System, agent: HandAgent, **spec: object) -> tuple[TaskDetail, m.Assignment]:
    """Trigger a task and claim it."""
    task = system.client.run(system.apply(**{**QUICK, **spec}).id)
    (assignment,) = agent.poll().assignments
    assert assignment.task_id == task.id
    return task, assignment


def test_claim_start_finish(lone_server: System, agent: HandAgent) -> None:
    task, one = begin(lone_server, agent)
    assert agent.start(one) is OK
    assert lone_server.client.task(task.id).status == "running"
    assert agent.finish(one, InstanceStatus.SUCCEEDED, exit_code=0) is OK
    done = lone_server.client.task(task.id)
    assert (done.status, done.exit_code, done.attempts) == ("succeeded", 0, 1)
    assert done.instances[0].agent == agent.name


def test_a_repeated_request_is_given_the_same_rows(lone_server: System, agent: HandAgent) -> None:
    lone_server.client.run_many(lone_server.apply(**QUICK).id, [RunRequest() for _ in range(3)])
    request_id = uuid4()
    first = agent.poll(2, request_id=request_id).assignments
    again = agent.poll(2, request_id=request_id).assignments
    assert {(a.instance_id, a.token) for a in first} == {(a.instance_id, a.token) for a in again}
    assert len(first) == 2
    assert len(agent.poll(2).assignments) == 1


def test_work_comes_by_priority_then_due_time(lone_server: System, agent: HandAgent) -> None:
    job = lone_server.apply(**QUICK)
    low = lone_server.client.run(job.id, priority=100)
    first, second = (lone_server.client.run(job.id, priority=900) for _ in range(2))
    claimed = [assignment.task_id for assignment in agent.poll(3).assignments]
    assert claimed == [first.id, second.id, low.id]


def test_eight_pollers_take_each_instance_exactly_once(lone_server: System, agent: HandAgent) -> None:
    job = lone_server.apply(**QUICK)
    for _ in range(5):
        lone_server.client.run_many(job.id, [RunRequest() for _ in range(100)])
    taken: list[UUID] = []
    lock = threading.Lock()

    def drain() -> None:
        poller = HandAgent(lone_server.url, lone_server.agent_token)
        poller.register()
        while assignments := poller.poll(7).assignments:
            reports = [m.Finish(a.instance_id, a.token, InstanceStatus.SUCCEEDED) for a in assignments]
            assert set(poller.report(*reports)) == {OK}
            with lock:
                taken.extend(a.instance_id for a in assignments)

    pollers = [threading.Thread(target=drain) for _ in range(8)]
    for poller in pollers:
        poller.start()
    for poller in pollers:
        poller.join()
    assert len(taken) == len(set(taken)) == 500


def test_a_waiting_poll_is_answered_when_work_comes(lone_server: System, agent: HandAgent) -> None:
    job = lone_server.apply(**QUICK)
    answers: list[m.Polled] = []
    waiting = threading.Thread(target=lambda: answers.append(agent.poll(1, wait_ms=20_000)))
    waiting.start()
    task = lone_server.client.run(job.id)
    waiting.join(10)
    assert [a.task_id for a in answers[0].assignments] == [task.id]


def test_the_finisher_is_the_one_with_the_token(lone_server: System, agent: HandAgent) -> None:
    task, one = begin(lone_server, agent)
    agent.start(one)
    forged = m.Finish(one.instance_id, uuid4(), InstanceStatus.SUCCEEDED)
    assert agent.report(forged) == [STALE]
    assert lone_server.client.task(task.id).status == "running"
    assert agent.finish(one, InstanceStatus.FAILED, exit_code=7) is OK
    assert agent.finish(one, InstanceStatus.FAILED, exit_code=7) is OK, "told again, answered again"
    assert agent.report(forged) == [STALE]
    done = lone_server.client.task(task.id)
    assert (done.status, done.exit_code, len(done.instances)) == ("failed", 7, 1)
    assert [(late.instance_id, late.status) for late in done.late_results] == [
        (one.instance_id, "succeeded"),
    ], "once, though it was told twice"
    assert done.late_results[0].agent == agent.name


def test_start_needs_the_token_and_may_be_said_twice(lone_server: System, agent: HandAgent) -> None:
    _, one = begin(lone_server, agent)
    assert agent.report(m.Start(one.instance_id, uuid4())) == [STALE]
    # Beside the right token a wrong one is still wrong: only the holder of the claim may spawn.
    right, wrong = m.Start(one.instance_id, one.token), m.Start(one.instance_id, uuid4())
    assert agent.report(wrong, right, wrong) == [STALE, OK, STALE]
    assert agent.start(one) is OK
    assert agent.report(right, right) == [OK, OK]


def test_starts_and_ends_of_one_batch_are_each_answered(lone_server: System, agent: HandAgent) -> None:
    job = lone_server.apply(**QUICK)
    for _ in range(2):
        lone_server.client.run(job.id)
    first, second = agent.poll(2).assignments
    assert agent.start(first) is OK
    end_first = m.Finish(first.instance_id, first.token, InstanceStatus.SUCCEEDED)
    end_second = m.Finish(second.instance_id, second.token, InstanceStatus.SUCCEEDED)
    start = m.Start(second.instance_id, second.token)
    assert agent.report(end_first, start) == [OK, OK]
    assert agent.report(end_second) == [OK]
    assert {lone_server.client.task(one.task_id).status for one in (first, second)} == {"succeeded"}


def test_what_began_and_ended_at_once_begins_first(lone_server: System, agent: HandAgent) -> None:
    job = lone_server.apply(**QUICK)
    lone_server.client.run_many(job.id, [RunRequest()] * 2)
    first, second = sorted(agent.poll(2).assignments, key=lambda one: one.instance_id)
    starts = [m.Start(one.instance_id, one.token) for one in (first, second)]
    end = m.Finish(second.instance_id, second.token, InstanceStatus.SUCCEEDED)
    with (
        psycopg.connect(lone_server.database_url) as rival,
        psycopg.connect(lone_server.database_url, autocommit=True) as onlooker,
        ThreadPoolExecutor(1) as thread,
    ):
        # Starts are held up by one row of another; the end alone would not be.
        rival.execute("SELECT FROM sched_task_instance WHERE id = %s FOR UPDATE", [first.instance_id])
        reporting = thread.submit(agent.report, end, *starts)
        wait_until(
            lambda: (
                onlooker.execute(
                    "SELECT FROM pg_stat_activity "
                    "WHERE datname = current_database() AND wait_event_type = 'Lock'"
                ).fetchone()
                is not None
            ),
            what="starts that wait",
        )
        rival.commit()
        assert reporting.result(60) == [OK, OK, OK]


def test_a_release_spends_nothing(lone_server: System, agent: HandAgent) -> None:
    task, one = begin(lone_server, agent)
    assert agent.report(m.Release(one.instance_id, one.token)) == [OK]
    (again,) = agent.poll().assignments
    assert (again.instance_id, again.attempt, again.claim_no) == (one.instance_id, 1, 2)
    assert again.token != one.token
    assert agent.start(one) is STALE
    assert lone_server.client.task(task.id).attempts == 0


def test_a_direct_finish_counts_while_the_claim_is_held(lone_server: System, agent: HandAgent) -> None:
    """Brief work ends as reserved: in success even if somebody cancelled meanwhile, for it is done."""
    for cancelled, status, expected, attempts in (
        (False, InstanceStatus.SUCCEEDED, "succeeded", 1),
        (True, InstanceStatus.SUCCEEDED, "succeeded", 1),
        (True, InstanceStatus.FAILED, "cancelled", 1),
        (True, InstanceStatus.CANCELLED, "cancelled", 0),
    ):
        task, one = begin(lone_server, agent)
        if cancelled:
            lone_server.client.cancel(task.id)
        assert agent.finish(one, status, started_at=1_000, finished_at=2_000) is OK
        done = lone_server.client.task(task.id)
        assert (done.status, done.attempts) == (expected, attempts)
        assert agent.start(one) is STALE, "it is over"


def test_a_direct_finish_of_a_reservation_that_expired_is_late(lone_server: System, agent: HandAgent) -> None:
    task, one = begin(lone_server, agent)
    sql(
        lone_server,
        "UPDATE sched_task_instance SET reserved_until = clock_timestamp() - interval '1 s' WHERE id = %s",
        one.instance_id,
    )
    (again,) = wait_until(lambda: agent.poll().assignments, what="the rescuer")
    assert agent.finish(one, InstanceStatus.SUCCEEDED) is STALE
    kept = sql(lone_server, "SELECT token FROM sched_late_report WHERE instance_id = %s", one.instance_id)
    assert kept == [(one.token,)]
    assert lone_server.client.task(task.id).status == "pending"
    assert agent.finish(again, InstanceStatus.SUCCEEDED) is OK
    assert lone_server.client.task(task.id).status == "succeeded"


def test_what_was_started_and_has_not_begun_is_given_back_too(lone_server: System, agent: HandAgent) -> None:
    """By the one who holds it, and unless somebody wants it to end."""
    task, one = begin(lone_server, agent)
    assert agent.start(one) is OK
    assert agent.report(m.Release(one.instance_id, uuid4())) == [STALE]
    assert agent.report(m.Release(one.instance_id, one.token)) == [OK]
    (again,) = agent.poll().assignments
    assert (again.instance_id, again.attempt, again.claim_no) == (one.instance_id, 1, 2)
    assert agent.start(again) is OK
    lone_server.client.cancel(task.id)
    assert agent.report(m.Release(again.instance_id, again.token)) == [STALE]
    assert agent.finish(again, InstanceStatus.LOST) is OK
    ended = lone_server.client.task(task.id)
    assert (ended.status, ended.attempts, ended.losses) == ("cancelled", 0, 1)


def test_reports_may_ask_for_work_in_the_same_breath(lone_server: System, agent: HandAgent) -> None:
    task, one = begin(lone_server, agent)
    assert agent.start(one) is OK
    following = lone_server.client.run(task.job_id)
    finish = m.Finish(one.instance_id, one.token, InstanceStatus.SUCCEEDED)
    poll = m.Poll(agent.session_id, uuid4(), free_slots=1, wait_ms=60_000)

    def exchange(*reports: m.Start | m.Finish, poll: m.Poll) -> m.ReportsTaken:
        payload = m.Reports(agent.session_id, list(reports), poll)
        return agent.call("reports", m.MessageKind.REPORTS, payload, m.ReportsTaken)

    taken = exchange(finish, poll=poll)
    assert [result.outcome for result in taken.results] == [OK]
    assert taken.polled is not None
    (given,) = taken.polled.assignments
    assert given.task_id == following.id
    # The answer was lost: the same again brings the same.
    again = exchange(finish, poll=msgspec.structs.replace(poll, repeated=True))
    assert again.polled is not None
    assert [one.token for one in again.polled.assignments] == [given.token]
    # With nothing there it is answered all the same, at once.
    nothing = exchange(
        m.Start(given.instance_id, given.token), poll=msgspec.structs.replace(poll, request_id=uuid4())
    )
    assert nothing.polled is not None
    assert nothing.polled.assignments == []
    assert agent.finish(given, InstanceStatus.SUCCEEDED) is OK


def test_an_expired_reservation_returns_to_the_queue(lone_server: System, agent: HandAgent) -> None:
    task, one = begin(lone_server, agent)
    sql(
        lone_server,
        "UPDATE sched_task_instance SET reserved_until = clock_timestamp() - interval '1 s' WHERE id = %s",
        one.instance_id,
    )
    assert agent.start(one) is STALE, "too late, even before the rescuer has come by"
    again = wait_until(lambda: agent.poll().assignments, what="the rescuer")
    assert again[0].task_id == task.id
    assert lone_server.client.task(task.id).attempts == 0


def test_an_expired_lease_is_a_loss_that_spends_no_attempt(lone_server: System, agent: HandAgent) -> None:
    task, one = begin(lone_server, agent, retry={"delay": "1ms"})
    for loss in (1, 2, 3):
        assert agent.start(one) is OK
        sql(
            lone_server,
            "UPDATE sched_task_instance SET lease_until = clock_timestamp() - interval '1 s' WHERE id = %s",
            one.instance_id,
        )
        wait_until(lambda n=loss: lone_server.client.task(task.id).losses == n, what="the rescuer")
        assert agent.finish(one, InstanceStatus.SUCCEEDED) is STALE, "it was given up"
        late = m.LogChunk(one.instance_id, one.token, "stdout", 0, 4, zstandard.compress(b"late"))
        assert agent.logs(late)[0].outcome is m.LogOutcome.REFUSED
        if loss < 3:
            (one,) = wait_until(lambda: agent.poll().assignments, what="the next attempt")
            assert one.attempt == 1
    done = lone_server.client.task(task.id)
    assert (done.status, done.reason, done.attempts) == ("failed", "quarantined", 0)
    assert [instance.status for instance in done.instances] == ["lost", "lost", "lost"]


def test_a_heartbeat_renews_what_is_held_and_says_what_is_not(lone_server: System, agent: HandAgent) -> None:
    _, one = begin(lone_server, agent)
    agent.start(one)
    query = "SELECT lease_until FROM sched_task_instance WHERE id = %s"
    ((before,),) = sql(lone_server, query, one.instance_id)
    kept = agent.heartbeat(one, fake := msgspec.structs.replace(one, instance_id=uuid4(), token=uuid4()))
    assert kept.kept == [one.instance_id]
    assert fake.instance_id not in kept.kept
    ((after,),) = sql(lone_server, query, one.instance_id)
    assert after > before


def test_a_cancel_reaches_a_poll_that_wants_nothing_else(lone_server: System, agent: HandAgent) -> None:
    task, one = begin(lone_server, agent)
    agent.start(one)
    answers: list[m.Polled] = []
    waiting = threading.Thread(target=lambda: answers.append(agent.poll(0, wait_ms=20_000)))
    waiting.start()
    lone_server.client.cancel(task.id)
    waiting.join(10)
    assert [c.instance_id for c in answers[0].cancels] == [one.instance_id]
    assert agent.heartbeat(one).cancels[0].token == one.token
    assert agent.finish(one, InstanceStatus.CANCELLED) is OK
    assert lone_server.client.task(task.id).status == "cancelled"


def test_cancelled_before_start_never_runs(lone_server: System, agent: HandAgent) -> None:
    task, one = begin(lone_server, agent)
    lone_server.client.cancel(task.id)
    assert agent.start(one) is CANCELLED
    assert lone_server.client.task(task.id).status == "cancelled"
    assert agent.start(one) is STALE


def test_a_cancelled_reservation_of_a_vanished_agent_ends_cancelled(
    lone_server: System, agent: HandAgent
) -> None:
    task, one = begin(lone_server, agent)
    lone_server.client.cancel(task.id)
    sql(
        lone_server,
        "UPDATE sched_task_instance SET reserved_until = clock_timestamp() - interval '1 s' WHERE id = %s",
        one.instance_id,
    )
    wait_until(lambda: lone_server.client.task(task.id).status == "cancelled", what="the rescuer")


def test_a_failure_after_a_cancel_is_not_retried(lone_server: System, agent: HandAgent) -> None:
    task, one = begin(lone_server, agent, retry={"max_attempts": 5, "delay": "1ms"})
    agent.start(one)
    lone_server.client.cancel(task.id)
    agent.finish(one, InstanceStatus.FAILED, exit_code=1)
    done = lone_server.client.task(task.id)
    assert (done.status, len(done.instances)) == ("cancelled", 1)


def test_registering_again_takes_the_place_of_the_earlier_session(
    lone_server: System, agent: HandAgent
) -> None:
    task, running = begin(lone_server, agent)
    agent.start(running)
    other, reserved = begin(lone_server, agent)
    successor = HandAgent(lone_server.url, lone_server.agent_token, name=agent.name)
    held = m.Held(running.instance_id, running.token)
    registered = successor.register(running=[held, m.Held(reserved.instance_id, uuid4())])
    assert registered.adopted == [running.instance_id]
    refused = agent.send("poll", m.MessageKind.POLL, m.Poll(agent.session_id, uuid4(), 1, 0))
    assert (refused.status_code, refused.json()["code"]) == (409, "agent.session_replaced")
    (again,) = successor.poll().assignments
    assert again.task_id == other.id
    assert successor.finish(running, InstanceStatus.SUCCEEDED) is OK
    assert lone_server.client.task(task.id).status == "succeeded"


def test_a_name_belongs_to_the_token_it_was_registered_with(lone_server: System, agent: HandAgent) -> None:
    token = command_on(lone_server.database_url, "agent", "token", "create", "-q")
    thief = HandAgent(lone_server.url, token, name=agent.name)
    payload = m.Register(agent.name, thief.session_id, "1", ["default"], 1)
    answer = thief.send("register", m.MessageKind.REGISTER, payload)
    assert (answer.status_code, answer.json()["code"]) == (409, "agent.name_taken")


def test_a_token_names_the_namespaces_its_agents_serve(lone_server: System, agent: HandAgent) -> None:
    lone_server.client.apply([{"kind": "namespace", "name": "other"}])
    token = command_on(lone_server.database_url, "agent", "token", "create", "-n", "other", "-q")
    stranger = HandAgent(lone_server.url, token)
    payload = m.Register(stranger.name, stranger.session_id, "1", ["default"], 1)
    answer = stranger.send("register", m.MessageKind.REGISTER, payload)
    assert answer.status_code == 403
    stranger.register(namespaces=["other"])
    both = command_on(
        lone_server.database_url, "agent", "token", "create", "-n", "other", "-n", "default", "-q"
    )
    picky = HandAgent(lone_server.url, both)
    picky.register(namespaces=["other"])
    lone_server.client.run(lone_server.apply(**QUICK).id)
    assert stranger.poll().assignments == []
    assert picky.poll().assignments == [], "its token would allow it, it did not ask for it"
    assert len(agent.poll().assignments) == 1


@pytest.mark.parametrize("credential", ["nonsense", "ha_000000000000_x"])
def test_the_gateway_answers_nobody_without_a_token(lone_server: System, credential: str) -> None:
    stranger = HandAgent(lone_server.url, credential)
    payload = m.Poll(stranger.session_id, uuid4(), 1, 0)
    assert stranger.send("poll", m.MessageKind.POLL, payload).status_code == 401
    key_holder = HandAgent(lone_server.url, lone_server.api_key)
    assert key_holder.send("poll", m.MessageKind.POLL, payload).status_code == 401


def test_what_breaks_the_rules_is_refused_and_changes_nothing(lone_server: System, agent: HandAgent) -> None:
    task, one = begin(lone_server, agent)
    live = m.Finish(one.instance_id, one.token, InstanceStatus.RUNNING)
    answer = agent.send("reports", m.MessageKind.REPORTS, m.Reports(agent.session_id, [live]))
    assert answer.status_code == 422
    assert agent.send("poll", m.MessageKind.REPORTS, {"x": 1}).status_code == 422
    unreadable = httpx.post(
        f"{lone_server.url}{m.GATEWAY_PATH}/poll",
        content=b"{",
        headers={"Authorization": f"Bearer {lone_server.agent_token}"},
    )
    assert (unreadable.status_code, unreadable.json()["code"]) == (400, "request.malformed")
    many = m.Reports(agent.session_id, [m.Start(one.instance_id, one.token)] * 201)
    assert agent.send("reports", m.MessageKind.REPORTS, many).status_code == 422
    assert lone_server.client.task(task.id).instances[0].status == "reserved"


def test_a_log_grows_only_from_where_it_stands(lone_server: System, agent: HandAgent) -> None:
    _, one = begin(lone_server, agent)
    agent.start(one)

    def chunk(offset: int, text: bytes, token: UUID = one.token) -> m.LogChunk:
        return m.LogChunk(one.instance_id, token, "stdout", offset, len(text), zstandard.compress(text))

    results = agent.logs(chunk(0, b"one\n"), chunk(4, b"two\n"), chunk(4, b"two\n"), chunk(99, b"far"))
    assert [(r.outcome.value, r.length) for r in results] == [
        ("appended", 4),
        ("appended", 8),
        ("offset", 8),
        ("offset", 8),
    ]
    assert agent.logs(chunk(8, b"no", uuid4()))[0].outcome is m.LogOutcome.REFUSED
    agent.finish(one, InstanceStatus.SUCCEEDED)
    assert agent.logs(chunk(8, b"late\n"))[0].outcome is m.LogOutcome.APPENDED
    assert lone_server.client.logs(one.instance_id) == b"one\ntwo\nlate\n"
    assert lone_server.client.logs(one.instance_id, "stdout", offset=5) == b"wo\nlate\n"


def test_chunks_that_are_not_what_they_say_are_refused(lone_server: System, agent: HandAgent) -> None:
    _, one = begin(lone_server, agent)
    for wrong in (
        m.LogChunk(one.instance_id, one.token, "stdout", 0, 5, b"not zstd"),
        m.LogChunk(one.instance_id, one.token, "stdout", 0, 99, zstandard.compress(b"short")),
        m.LogChunk(one.instance_id, one.token, "screen", 0, 5, zstandard.compress(b"short")),
        m.LogChunk(one.instance_id, one.token, "stdout", -1, 5, zstandard.compress(b"short")),
        m.LogChunk(one.instance_id, one.token, "stdout", 0, 2_000_000, zstandard.compress(bytes(2_000_000))),
    ):
        answer = agent.send("logs", m.MessageKind.LOG_CHUNKS, m.LogChunks(agent.session_id, [wrong]))
        assert answer.status_code == 422
    assert lone_server.client.logs(one.instance_id) == b""


def test_what_would_go_to_an_agent_that_hung_up_goes_to_another(
    lone_server: System, agent: HandAgent
) -> None:
    leaver = HandAgent(lone_server.url, lone_server.agent_token)
    leaver.register()
    envelope = m.Envelope(uuid4(), 0, m.MessageKind.POLL, m.Poll(leaver.session_id, uuid4(), 50, 20_000))
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{lone_server.url}{m.GATEWAY_PATH}/poll",
            content=msgspec.json.encode(envelope),
            headers={"Authorization": f"Bearer {lone_server.agent_token}"},
            timeout=0.3,
        )
    tasks = [lone_server.client.run(lone_server.apply(**QUICK).id).id for _ in range(3)]
    assert {one.task_id for one in agent.poll(wait_ms=2_000).assignments} == set(tasks)


def test_leases_are_extended_after_the_servers_were_away(lone_server: System, agent: HandAgent) -> None:
    """An outage of the servers is not the agents' fault: nothing is lost that came back within a lease."""
    task, one = begin(lone_server, agent, lease="4s")
    agent.start(one)
    lone_server.server.signal(signal.SIGSTOP)
    try:
        ended = "SELECT lease_until < clock_timestamp() FROM sched_task_instance WHERE id = %s"
        wait_until(lambda: sql(lone_server, ended, one.instance_id) == [(True,)], what="the end of the lease")
    finally:
        lone_server.server.signal(signal.SIGCONT)
    extended = "SELECT lease_until > clock_timestamp() FROM sched_task_instance WHERE id = %s"
    wait_until(lambda: sql(lone_server, extended, one.instance_id) == [(True,)], what="the extension")
    assert lone_server.client.task(task.id).losses == 0
    assert agent.finish(one, InstanceStatus.SUCCEEDED) is OK


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "poll", b"{", 400, "request.malformed"),
        ("POST", "poll", b"{}", 422, "invalid"),
        ("POST", "poll", b"register", 422, "invalid"),
        ("GET", "poll", b"", 405, "request.method"),
        ("POST", "nothing", b"{}", 404, "not_found"),
        ("POST", "reports", b" " * 10_485_761, 413, "too_large"),
    ],
)
def test_what_is_no_call_is_told_why(
    lone_server: System, method: str, path: str, body: bytes, status: int, code: str
) -> None:
    if body == b"register":
        asked = m.Poll(uuid4(), uuid4(), 1, 0)
        body = msgspec.json.encode(m.Envelope(uuid4(), 0, m.MessageKind.REGISTER, asked))
    answer = httpx.request(
        method,
        f"{lone_server.url}{m.GATEWAY_PATH}/{path}",
        content=body,
        headers={"Authorization": f"Bearer {lone_server.agent_token}", "X-Request-Id": "mine-7"},
    )
    problem = answer.json()
    assert (answer.status_code, problem["status"], problem["code"]) == (status, status, code), problem
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-request-id"] == "mine-7"
    assert problem["trace_id"]


def test_without_a_credential_no_call_is_answered(lone_server: System) -> None:
    answer = httpx.post(f"{lone_server.url}{m.GATEWAY_PATH}/poll", content=b"{}")
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
