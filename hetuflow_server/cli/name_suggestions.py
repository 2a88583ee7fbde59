"""What people mean by a name: suggestions for one that is not there; a job's newest task by its job."""

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

# Fires of the near future are tasks already; the newest that has begun is among these.
_NEWEST_LOOKED_AT: Final = 50
_LOOK_AGAIN_SECONDS: Final = 0.5


def suggesting(look_up: Callable[[], T], typed: str, names: Callable[[], Iterable[str]]) -> T:
    """What `look_up` finds; if nothing, the error names what `typed` may have been meant to be."""
    try:
        return look_up()
    except NotFound as error:
        near: list[str] = []
        with suppress(HetuflowError):  # names are a courtesy: the error itself is what has to be told
            near = get_close_matches(typed, islice(names(), LARGEST_PAGE))
        if not near:
            raise
        meant = " or ".join(map(repr, near))
        # Instead of the advice behind the colon, which is for who has no idea.
        told = error.message.partition(": ")[0].rstrip(".")
        raise NotFound(f"{told}: did you mean {meant}?", code=error.code) from None


def named_job(invocation: Invocation, client: Hetuflow, name: str) -> Job:
    namespace = invocation.namespace
    return suggesting(
        lambda: client.job(namespace, name),
        name,
        lambda: (job.name for job in client.jobs(namespace=namespace, page_size=LARGEST_PAGE)),
    )


def named_agent(client: Hetuflow, name: str) -> AgentDetail:
    return suggesting(
        lambda: client.agent(name), name, lambda: (one.name for one in client.agents(page_size=LARGEST_PAGE))
    )


def task_meant(invocation: Invocation, client: Hetuflow, named: str, *, patiently: bool = False) -> UUID:
    """The task of this id, or the newest that has begun of the job of this name.

    With `patiently` a job that has none yet is waited for.
    """
    found = _as_id(named)
    if found is not None:
        return found
    job = named_job(invocation, client, named)
    task = _newest_task(client, job)
    if task is None and patiently:
        invocation.note(f"The job {job.name!r} has no tasks yet: waiting for the first.")
    while task is None and patiently:
        time.sleep(_LOOK_AGAIN_SECONDS)
        task = _newest_task(client, job)
    if task is None:
        raise NotFound(f"The job {job.name!r} has no tasks yet: `hetuflow job run {job.name}` makes one.")
    invocation.note(f"Task {task.id} is the newest of {job.namespace}/{job.name}.")
    return task.id


def run_meant(invocation: Invocation, client: Hetuflow, named: str) -> UUID:
    """The run of a flow of this id, or the newest of the flow of this name."""
    found = _as_id(named)
    if found is not None:
        return found
    job = named_job(invocation, client, named)
    run = next(client.flow_runs(namespace=job.namespace, job=job.name, page_size=1), None)
    if run is None:
        raise NotFound(f"The flow {job.name!r} has no runs yet: `hetuflow job run {job.name}` starts one.")
    invocation.note(f"Run {run.id} is the newest of {job.namespace}/{job.name}.")
    return run.id


def _newest_task(client: Hetuflow, job: Job) -> Task | None:
    tasks = client.tasks(namespace=job.namespace, job=job.name, page_size=_NEWEST_LOOKED_AT)
    newest = list(islice(tasks, _NEWEST_LOOKED_AT))
    # Of those that have not begun the next one comes last.
    return next((one for one in newest if one.attempts), newest[-1] if newest else None)


def _as_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
