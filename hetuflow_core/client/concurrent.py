"""The client for programs that run on asyncio."""

from __future__ import annotations

import asyncio
import copy
import functools
import os
import random
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from hetuflow_core.client import (
    agent_operations,
    audit_operations,
    bulk_operations,
    calendar_operations,
    cluster_operations,
    daemon_operations,
    event_operations,
    explanation_operations,
    flow_operations,
    following,
    identity_operations,
    job_operations,
    operations,
    preview_operations,
    schedule_operations,
    secret_operations,
    task_following,
    watching,
    webhook_operations,
)
from hetuflow_core.client.blocking import with_self
from hetuflow_core.client.endpoint import Endpoint
from hetuflow_core.client.exchange import Answer, Emit, NoAnswer, Now, Open, Pause, Plan, Read, Send, Stream
from hetuflow_core.client.retrying import under_key
from hetuflow_core.client.wire import (
    DEFAULT_TIMEOUT_SECONDS,
    answer_of,
    client_options,
    no_answer,
    request_options,
    stream_options,
)
from hetuflow_core.runtime.clock import Clock, SystemClock
from hetuflow_core.runtime.tls import Trust

P = ParamSpec("P")
T = TypeVar("T")


class AwaitedTransport:
    """Carries plans out, one need after the other. The tasks of one event loop may share it."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        trust: Trust | None = None,
        clock: Clock | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._endpoint = Endpoint.resolve(url, api_key, os.environ, trust)
        self._clock = clock or SystemClock()
        self._draw = draw
        self._key: str | None = None
        self._http = httpx.AsyncClient(**client_options(self._endpoint, timeout))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(url={self._endpoint.url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    @property
    def url(self) -> str:
        return self._endpoint.url

    def once(self, key: str) -> Self:
        """The same client for one call that creates something: with the same key it is done once.

        Its request is then tried again by itself while a server is away.
        """
        keyed = copy.copy(self)
        keyed._key = key  # noqa: SLF001 - one of its own kind
        return keyed

    async def carry_out(self, plan: Plan[T]) -> T:
        if self._key is not None:
            plan = under_key(plan, self._key)
        async with AsyncExitStack() as opened:
            outcome: Any = None
            while True:
                try:
                    need = plan.send(outcome)
                except StopIteration as done:
                    result: T = done.value
                    return result
                outcome = await self._meet(need, opened)

    async def iterate(self, plan: Stream[T]) -> AsyncGenerator[T, None]:
        async with AsyncExitStack() as opened:
            outcome: Any = None
            while True:
                try:
                    need = plan.send(outcome)
                except StopIteration:
                    return
                if isinstance(need, Emit):
                    outcome = None
                    yield need.item
                else:
                    outcome = await self._meet(need, opened)

    async def _meet(self, need: Send | Open | Read | Pause | Now, opened: AsyncExitStack) -> Any:
        match need:
            case Pause(least, spread):
                await asyncio.sleep(least + spread * self._draw())
                return None
            case Now():
                return self._clock.boottime()
        try:
            match need:
                case Send(request):
                    response = await self._http.request(**request_options(self._endpoint, request))
                    return answer_of(self._endpoint, response)
                case Open(request):
                    return await self._open(stream_options(self._endpoint, request), opened)
                case Read(answer):
                    return await anext(answer.chunks, None)
        except httpx.RequestError as error:
            return no_answer(self._endpoint, error)

    async def _open(self, options: dict[str, Any], opened: AsyncExitStack) -> Answer | NoAnswer:
        await opened.aclose()
        response = await opened.enter_async_context(self._http.stream(**options))
        if response.is_success:
            return answer_of(self._endpoint, response, chunks=response.aiter_bytes())
        await response.aread()
        return answer_of(self._endpoint, response)


def _call(build: Callable[P, Plan[T]]) -> Callable[Concatenate[AwaitedTransport, P], Coroutine[Any, Any, T]]:
    @functools.wraps(build)
    async def call(self: AwaitedTransport, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.carry_out(build(*args, **kwargs))

    return with_self(call, build)


def _iteration(
    build: Callable[P, Stream[T]],
) -> Callable[Concatenate[AwaitedTransport, P], AsyncGenerator[T, None]]:
    @functools.wraps(build)
    def iterate(self: AwaitedTransport, /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]:
        return self.iterate(build(*args, **kwargs))

    return with_self(iterate, build)


class AsyncHetuflow(AwaitedTransport):
    """The same as `Hetuflow`, for asyncio: calls are awaited, lists and logs iterated with `async for`.

    Whoever leaves an iteration early closes it (`contextlib.aclosing`), and with it the connection.
    """

    apply = _call(operations.apply)
    jobs = _iteration(operations.jobs)
    job = _call(operations.job)
    job_by_id = _call(operations.job_by_id)
    run = _call(operations.run)
    run_many = _call(operations.run_many)
    enqueue = _call(operations.enqueue)
    task = _call(operations.task)
    tasks = _iteration(operations.tasks)
    cancel = _call(operations.cancel)
    retry = _call(operations.retry)
    set_priority = _call(operations.set_priority)
    follow_tasks = _iteration(task_following.follow_tasks)
    cancel_many = _call(bulk_operations.cancel_many)
    retry_many = _call(bulk_operations.retry_many)
    switch_jobs = _call(bulk_operations.switch_jobs)
    switch_schedules = _call(bulk_operations.switch_schedules)
    task_instances = _iteration(operations.task_instances)
    task_instance = _call(operations.task_instance)
    terminate = _call(operations.terminate)
    explain = _call(explanation_operations.explain)
    wait = _call(watching.wait)
    watch = _iteration(watching.watch)
    follow = _iteration(watching.follow)
    logs = _call(operations.logs)
    log_chunks = _iteration(operations.log_chunks)
    follow_logs = _iteration(following.follow_logs)
    artifacts = _call(operations.artifacts)
    artifact_chunks = _iteration(operations.artifact_chunks)
    limits = _iteration(operations.limits)
    limit = _call(operations.limit)
    create_limit = _call(operations.create_limit)
    set_limit = _call(operations.set_limit)
    delete_limit = _call(operations.delete_limit)
    audit = _iteration(audit_operations.audit)
    verify_audit = _call(audit_operations.verify_audit)
    webhooks = _iteration(webhook_operations.webhooks)
    webhook = _call(webhook_operations.webhook)
    set_webhook = _call(webhook_operations.set_webhook)
    delete_webhook = _call(webhook_operations.delete_webhook)
    webhook_deliveries = _iteration(webhook_operations.webhook_deliveries)
    redeliver_webhook = _call(webhook_operations.redeliver_webhook)
    secrets = _iteration(secret_operations.secrets)
    secret = _call(secret_operations.secret)
    set_secret = _call(secret_operations.set_secret)
    rotate_secret = _call(secret_operations.rotate_secret)
    delete_secret = _call(secret_operations.delete_secret)
    rotate_key = _call(secret_operations.rotate_key)
    calendars = _iteration(calendar_operations.calendars)
    calendar = _call(calendar_operations.calendar)
    calendar_days = _call(calendar_operations.calendar_days)
    create_calendar = _call(calendar_operations.create_calendar)
    change_calendar = _call(calendar_operations.change_calendar)
    delete_calendar = _call(calendar_operations.delete_calendar)
    servers = _iteration(cluster_operations.servers)
    server = _call(cluster_operations.server)
    leader = _call(cluster_operations.leader)
    namespaces = _iteration(cluster_operations.namespaces)
    namespace = _call(cluster_operations.namespace)
    create_namespace = _call(cluster_operations.create_namespace)
    set_namespace = _call(cluster_operations.set_namespace)
    bind_namespace = _call(cluster_operations.bind_namespace)
    unbind_namespace = _call(cluster_operations.unbind_namespace)
    coming_fires_of_job = _call(preview_operations.coming_fires_of_job)
    coming_fires = _call(preview_operations.coming_fires)
    info = _call(operations.info)
    status = _call(operations.status)
    agents = _iteration(agent_operations.agents)
    agent = _call(agent_operations.agent)
    agent_by_id = _call(agent_operations.agent_by_id)
    agent_usage = _iteration(agent_operations.agent_usage)
    approve_agent = _call(agent_operations.approve_agent)
    drain_agent = _call(agent_operations.drain_agent)
    resume_agent = _call(agent_operations.resume_agent)
    kick_agent = _call(agent_operations.kick_agent)
    delete_agent = _call(agent_operations.delete_agent)
    shutdown_agent = _call(agent_operations.shutdown_agent)
    configure_agent = _call(agent_operations.configure_agent)
    agent_metrics = _call(agent_operations.agent_metrics)
    agent_commands = _iteration(agent_operations.agent_commands)
    agent_command = _call(agent_operations.agent_command)
    resend_agent_command = _call(agent_operations.resend_agent_command)
    wait_for_command = _call(agent_operations.wait_for_command)
    emit = _call(event_operations.emit)
    event = _call(event_operations.event)
    events = _iteration(event_operations.events)
    replay = _call(event_operations.replay)
    users = _iteration(identity_operations.users)
    user = _call(identity_operations.user)
    create_user = _call(identity_operations.create_user)
    set_password = _call(identity_operations.set_password)
    change_user = _call(identity_operations.change_user)
    disable_user = _call(identity_operations.disable_user)
    enable_user = _call(identity_operations.enable_user)
    delete_user = _call(identity_operations.delete_user)
    grant = _call(identity_operations.grant)
    revoke = _call(identity_operations.revoke)
    api_keys = _iteration(identity_operations.api_keys)
    api_key = _call(identity_operations.api_key)
    create_api_key = _call(identity_operations.create_api_key)
    revoke_api_key = _call(identity_operations.revoke_api_key)
    rotate_api_key = _call(identity_operations.rotate_api_key)
    agent_tokens = _iteration(identity_operations.agent_tokens)
    agent_token = _call(identity_operations.agent_token)
    create_agent_token = _call(identity_operations.create_agent_token)
    revoke_agent_token = _call(identity_operations.revoke_agent_token)
    login = _call(identity_operations.login)
    refresh = _call(identity_operations.refresh)
    exchange_oidc_code = _call(identity_operations.exchange_oidc_code)
    logout = _call(identity_operations.logout)
    sessions = _iteration(identity_operations.sessions)
    end_session = _call(identity_operations.end_session)
    change_password = _call(identity_operations.change_password)
    who_am_i = _call(identity_operations.who_am_i)
    schedules = _iteration(schedule_operations.schedules)
    schedule = _call(schedule_operations.schedule)
    schedule_by_id = _call(schedule_operations.schedule_by_id)
    add_schedule = _call(schedule_operations.add_schedule)
    change_schedule = _call(schedule_operations.change_schedule)
    enable_schedule = _call(schedule_operations.enable_schedule)
    disable_schedule = _call(schedule_operations.disable_schedule)
    delete_schedule = _call(schedule_operations.delete_schedule)
    create_job = _call(job_operations.create_job)
    change_job = _call(job_operations.change_job)
    job_etag = _call(job_operations.job_etag)
    job_versions = _iteration(job_operations.job_versions)
    enable_job = _call(schedule_operations.enable_job)
    disable_job = _call(schedule_operations.disable_job)
    delete_job = _call(schedule_operations.delete_job)
    backfill = _call(schedule_operations.backfill)
    backfills = _iteration(schedule_operations.backfills)
    backfill_by_id = _call(schedule_operations.backfill_by_id)
    cancel_backfill = _call(schedule_operations.cancel_backfill)
    follow_backfill = _iteration(schedule_operations.follow_backfill)
    daemons = _iteration(daemon_operations.daemons)
    daemon = _call(daemon_operations.daemon)
    daemon_by_id = _call(daemon_operations.daemon_by_id)
    stop_daemon = _call(daemon_operations.stop_daemon)
    start_daemon = _call(daemon_operations.start_daemon)
    scale_daemon = _call(daemon_operations.scale_daemon)
    restart_daemon = _call(daemon_operations.restart_daemon)
    daemon_history = _iteration(daemon_operations.daemon_history)
    flow_runs = _iteration(flow_operations.flow_runs)
    flow_run = _call(flow_operations.flow_run)
    flow_tasks = _iteration(flow_operations.flow_tasks)
    cancel_flow = _call(flow_operations.cancel_flow)
    retry_flow = _call(flow_operations.retry_flow)
    approve_node = _call(flow_operations.approve_node)
    reject_node = _call(flow_operations.reject_node)
    skip_node = _call(flow_operations.skip_node)
    mark_node = _call(flow_operations.mark_node)
