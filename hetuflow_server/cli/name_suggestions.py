"""Resolve names: suggestions for unknown names, and the newest task or flow run of a job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from difflib import get_close_matches
from itertools import islice
from typing import Final, TypeVar
from uuid import UUID

from hetuflow_core.client import Hetuflow
from hetuflow_core.errors import HetuflowError, NotFound
from hetuflow_core.resources.agents import AgentDetail
from hetuflow_core.resources.jobs import Job
from hetuflow_core.resources.tasks import Task
from hetuflow_server.cli.invocation import Invocation
from hetuflow_server.cli.output.long_lists import LARGEST_PAGE

T = TypeVar("T")

# Fires of the near future already have tasks; the newest started task is among this many.
_NEWEST_TASKS: Final = 50
_POLL_SECONDS: Final = 0.5


def with_suggestions(look_up: Callable[[], T], typed: str, names: Callable[[], Iterable[str]]) -> T:
    """Return the result of `look_up`; if it raises NotFound, add names similar to `typed` to the error."""
    try:
        return look_up()
    except NotFound as error:
        near: list[str] = []
        with suppress(HetuflowError):  # suggestions are optional, the first error matters
            near = get_close_matches(typed, islice(names(), LARGEST_PAGE))
        if not near:
            raise
        meant = " or ".join(map(repr, near))
        # The suggestion replaces the general advice after the colon.
        problem = error.message.partition(": ")[0].rstrip(".")
        raise NotFound(f"{problem}: did you mean {meant}?", code=error.code) from None


def named_job(invocation: Invocation, client: Hetuflow, name: str) -> Job:
    namespace = invocation.namespace
    return with_suggestions(
        lambda: client.job(namespace, name),
        name,
        lambda: (job.name for job in client.jobs(namespace=namespace, page_size=LARGEST_PAGE)),
    )


def named_agent(client: Hetuflow, name: str) -> AgentDetail:
    return with_suggestions(
        lambda: client.agent(name),
        name,
        lambda: (agent.name for agent in client.agents(page_size=LARGEST_PAGE)),
    )


def resolve_task(invocation: Invocation, client: Hetuflow, named: str, *, wait: bool = False) -> UUID:
    """Return the task with this id, or the newest started task of the job with this name.

    With `wait`, wait for the first task of the job.
    """
    id_ = _as_id(named)
    if id_ is not None:
        return id_
    job = named_job(invocation, client, named)
    task = _newest_task(client, job)
    if task is None and wait:
        invocation.note(f"The job {job.name!r} has no tasks yet: waiting for the first one.")
    while task is None and wait:
        time.sleep(_POLL_SECONDS)
        task = _newest_task(client, job)
    if task is None:
        raise NotFound(
            f"The job {job.name!r} has no tasks yet: create one with `hetuflow job run {job.name}`."
        )
    invocation.note(f"Using the newest task of {job.namespace}/{job.name}: {task.id}")
    return task.id


def resolve_flow_run(invocation: Invocation, client: Hetuflow, named: str) -> UUID:
    """Return the flow run with this id, or the newest run of the flow with this name."""
    id_ = _as_id(named)
    if id_ is not None:
        return id_
    job = named_job(invocation, client, named)
    run = next(client.flow_runs(namespace=job.namespace, job=job.name, page_size=1), None)
    if run is None:
        raise NotFound(
            f"The flow {job.name!r} has no runs yet: start one with `hetuflow job run {job.name}`."
        )
    invocation.note(f"Using the newest run of {job.namespace}/{job.name}: {run.id}")
    return run.id


def _newest_task(client: Hetuflow, job: Job) -> Task | None:
    tasks = client.tasks(namespace=job.namespace, job=job.name, page_size=_NEWEST_TASKS)
    newest = list(islice(tasks, _NEWEST_TASKS))
    # The list is newest first, so the last unstarted task is the next one to start.
    return next((task for task in newest if task.attempts), newest[-1] if newest else None)


def _as_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
