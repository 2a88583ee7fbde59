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

from hetuflow_core.client import log_following, task_following, task_waiting
from hetuflow_core.client.endpoint import Endpoint
from hetuflow_core.client.exchange import Answer, Emit, NoAnswer, Now, Open, Pause, Plan, Read, Send, Stream
from hetuflow_core.client.httpx_transport import (
    DEFAULT_TIMEOUT_SECONDS,
    answer_of,
    client_options,
    no_answer,
    request_options,
    stream_options,
)
from hetuflow_core.client.operations import (
    agents as operation_agents,
    artifacts as operation_artifacts,
    audit as operation_audit,
    bulk,
    calendars as operation_calendars,
    cluster,
    daemons as operation_daemons,
    events as operation_events,
    explanations,
    flows,
    identity,
    jobs as operation_jobs,
    limits as operation_limits,
    previews,
    schedules as operation_schedules,
    secrets as operation_secrets,
    system,
    task_instances as operation_task_instances,
    tasks as operation_tasks,
    webhooks as operation_webhooks,
)
from hetuflow_core.client.retry import under_key
from hetuflow_core.client.sync_client import with_self
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

    apply = _call(operation_jobs.apply)
    jobs = _iteration(operation_jobs.jobs)
    job = _call(operation_jobs.job)
    job_by_id = _call(operation_jobs.job_by_id)
    run = _call(operation_jobs.run)
    run_many = _call(operation_jobs.run_many)
    enqueue = _call(operation_jobs.enqueue)
    task = _call(operation_tasks.task)
    tasks = _iteration(operation_tasks.tasks)
    cancel = _call(operation_tasks.cancel)
    retry = _call(operation_tasks.retry)
    set_priority = _call(operation_tasks.set_priority)
    follow_tasks = _iteration(task_following.follow_tasks)
    cancel_many = _call(bulk.cancel_many)
    retry_many = _call(bulk.retry_many)
    switch_jobs = _call(bulk.switch_jobs)
    switch_schedules = _call(bulk.switch_schedules)
    task_instances = _iteration(operation_task_instances.task_instances)
    task_instance = _call(operation_task_instances.task_instance)
    terminate = _call(operation_task_instances.terminate)
    explain = _call(explanations.explain)
    wait = _call(task_waiting.wait)
    watch = _iteration(task_waiting.watch)
    follow = _iteration(task_waiting.follow)
    logs = _call(operation_task_instances.logs)
    log_chunks = _iteration(operation_task_instances.log_chunks)
    follow_logs = _iteration(log_following.follow_logs)
    artifacts = _call(operation_artifacts.artifacts)
    artifact_chunks = _iteration(operation_artifacts.artifact_chunks)
    limits = _iteration(operation_limits.limits)
    limit = _call(operation_limits.limit)
    create_limit = _call(operation_limits.create_limit)
    set_limit = _call(operation_limits.set_limit)
    delete_limit = _call(operation_limits.delete_limit)
    audit = _iteration(operation_audit.audit)
    verify_audit = _call(operation_audit.verify_audit)
    webhooks = _iteration(operation_webhooks.webhooks)
    webhook = _call(operation_webhooks.webhook)
    set_webhook = _call(operation_webhooks.set_webhook)
    delete_webhook = _call(operation_webhooks.delete_webhook)
    webhook_deliveries = _iteration(operation_webhooks.webhook_deliveries)
    redeliver_webhook = _call(operation_webhooks.redeliver_webhook)
    secrets = _iteration(operation_secrets.secrets)
    secret = _call(operation_secrets.secret)
    set_secret = _call(operation_secrets.set_secret)
    rotate_secret = _call(operation_secrets.rotate_secret)
    delete_secret = _call(operation_secrets.delete_secret)
    rotate_key = _call(operation_secrets.rotate_key)
    calendars = _iteration(operation_calendars.calendars)
    calendar = _call(operation_calendars.calendar)
    calendar_days = _call(operation_calendars.calendar_days)
    create_calendar = _call(operation_calendars.create_calendar)
    change_calendar = _call(operation_calendars.change_calendar)
    delete_calendar = _call(operation_calendars.delete_calendar)
    servers = _iteration(cluster.servers)
    server = _call(cluster.server)
    leader = _call(cluster.leader)
    namespaces = _iteration(cluster.namespaces)
    namespace = _call(cluster.namespace)
    create_namespace = _call(cluster.create_namespace)
    set_namespace = _call(cluster.set_namespace)
    bind_namespace = _call(cluster.bind_namespace)
    unbind_namespace = _call(cluster.unbind_namespace)
    coming_fires_of_job = _call(previews.coming_fires_of_job)
    coming_fires = _call(previews.coming_fires)
    info = _call(system.info)
    status = _call(system.status)
    agents = _iteration(operation_agents.agents)
    agent = _call(operation_agents.agent)
    agent_by_id = _call(operation_agents.agent_by_id)
    agent_usage = _iteration(operation_agents.agent_usage)
    approve_agent = _call(operation_agents.approve_agent)
    drain_agent = _call(operation_agents.drain_agent)
    resume_agent = _call(operation_agents.resume_agent)
    kick_agent = _call(operation_agents.kick_agent)
    delete_agent = _call(operation_agents.delete_agent)
    shutdown_agent = _call(operation_agents.shutdown_agent)
    configure_agent = _call(operation_agents.configure_agent)
    agent_metrics = _call(operation_agents.agent_metrics)
    agent_commands = _iteration(operation_agents.agent_commands)
    agent_command = _call(operation_agents.agent_command)
    resend_agent_command = _call(operation_agents.resend_agent_command)
    wait_for_command = _call(operation_agents.wait_for_command)
    emit = _call(operation_events.emit)
    event = _call(operation_events.event)
    events = _iteration(operation_events.events)
    replay = _call(operation_events.replay)
    users = _iteration(identity.users)
    user = _call(identity.user)
    create_user = _call(identity.create_user)
    set_password = _call(identity.set_password)
    change_user = _call(identity.change_user)
    disable_user = _call(identity.disable_user)
    enable_user = _call(identity.enable_user)
    delete_user = _call(identity.delete_user)
    grant = _call(identity.grant)
    revoke = _call(identity.revoke)
    api_keys = _iteration(identity.api_keys)
    api_key = _call(identity.api_key)
    create_api_key = _call(identity.create_api_key)
    revoke_api_key = _call(identity.revoke_api_key)
    rotate_api_key = _call(identity.rotate_api_key)
    agent_tokens = _iteration(identity.agent_tokens)
    agent_token = _call(identity.agent_token)
    create_agent_token = _call(identity.create_agent_token)
    revoke_agent_token = _call(identity.revoke_agent_token)
    login = _call(identity.login)
    refresh = _call(identity.refresh)
    exchange_oidc_code = _call(identity.exchange_oidc_code)
    logout = _call(identity.logout)
    sessions = _iteration(identity.sessions)
    end_session = _call(identity.end_session)
    change_password = _call(identity.change_password)
    who_am_i = _call(identity.who_am_i)
    schedules = _iteration(operation_schedules.schedules)
    schedule = _call(operation_schedules.schedule)
    schedule_by_id = _call(operation_schedules.schedule_by_id)
    add_schedule = _call(operation_schedules.add_schedule)
    change_schedule = _call(operation_schedules.change_schedule)
    enable_schedule = _call(operation_schedules.enable_schedule)
    disable_schedule = _call(operation_schedules.disable_schedule)
    delete_schedule = _call(operation_schedules.delete_schedule)
    create_job = _call(operation_jobs.create_job)
    change_job = _call(operation_jobs.change_job)
    job_etag = _call(operation_jobs.job_etag)
    job_versions = _iteration(operation_jobs.job_versions)
    enable_job = _call(operation_schedules.enable_job)
    disable_job = _call(operation_schedules.disable_job)
    delete_job = _call(operation_schedules.delete_job)
    backfill = _call(operation_schedules.backfill)
    backfills = _iteration(operation_schedules.backfills)
    backfill_by_id = _call(operation_schedules.backfill_by_id)
    cancel_backfill = _call(operation_schedules.cancel_backfill)
    follow_backfill = _iteration(operation_schedules.follow_backfill)
    daemons = _iteration(operation_daemons.daemons)
    daemon = _call(operation_daemons.daemon)
    daemon_by_id = _call(operation_daemons.daemon_by_id)
    stop_daemon = _call(operation_daemons.stop_daemon)
    start_daemon = _call(operation_daemons.start_daemon)
    scale_daemon = _call(operation_daemons.scale_daemon)
    restart_daemon = _call(operation_daemons.restart_daemon)
    daemon_history = _iteration(operation_daemons.daemon_history)
    flow_runs = _iteration(flows.flow_runs)
    flow_run = _call(flows.flow_run)
    flow_tasks = _iteration(flows.flow_tasks)
    cancel_flow = _call(flows.cancel_flow)
    retry_flow = _call(flows.retry_flow)
    approve_node = _call(flows.approve_node)
    reject_node = _call(flows.reject_node)
    skip_node = _call(flows.skip_node)
    mark_node = _call(flows.mark_node)
