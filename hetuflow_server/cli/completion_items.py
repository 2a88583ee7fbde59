"""What the shell offers behind TAB: commands and options, and names that only the server knows."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from types import FrameType
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from hetuflow_core.client import Hetuflow
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_server.cli.invocation import connect
from hetuflow_server.cli.options.shared import DEFAULT_NAMESPACE, early_values
from hetuflow_server.cli.profiles import Profiles

# Nobody waits longer for a list behind TAB.
_PATIENCE_SECONDS: Final = 1.5
_MOST: Final = 200

Lister = Callable[[Hetuflow, str], Iterable[str | CompletionItem]]


def _tasks(client: Hetuflow, namespace: str) -> Iterator[CompletionItem]:
    for task in client.tasks(namespace=namespace, page_size=_MOST):
        yield CompletionItem(str(task.id), help=f"{task.job} {task.status}")


def _runs(client: Hetuflow, namespace: str) -> Iterator[CompletionItem]:
    for run in client.flow_runs(namespace=namespace, page_size=_MOST):
        yield CompletionItem(str(run.id), help=f"{run.job} {run.status}")


_LISTERS: Final[Mapping[str, Lister]] = {
    "agent": lambda client, _: (one.name for one in client.agents(page_size=_MOST)),
    "calendar": lambda client, namespace: (one.name for one in client.calendars(namespace=namespace)),
    "job": lambda client, namespace: (one.name for one in client.jobs(namespace=namespace, page_size=_MOST)),
    "limit": lambda client, namespace: (one.name for one in client.limits(namespace=namespace)),
    "namespace": lambda client, _: (one.name for one in client.namespaces(page_size=_MOST)),
    "run": _runs,
    "schedule": lambda client, namespace: (
        f"{one.job}/{one.name}" for one in client.schedules(namespace=namespace, page_size=_MOST)
    ),
    "secret": lambda client, namespace: (one.name for one in client.secrets(namespace=namespace)),
    "task": _tasks,
    "user": lambda client, _: (one.name for one in client.users(page_size=_MOST)),
    "webhook": lambda client, namespace: (one.name for one in client.webhooks(namespace=namespace)),
}


def offered(ctx: click.Context, kind: str, incomplete: str) -> list[CompletionItem]:
    """Names that begin like this; none rather than an error, since nobody could read it."""
    found: list[CompletionItem] = []
    with suppress(Exception), _hurried():
        for one in islice(_names(ctx, kind), _MOST):
            item = one if isinstance(one, CompletionItem) else CompletionItem(one)
            if str(item.value).startswith(incomplete):
                found.append(item)
    return found


def _names(ctx: click.Context, kind: str) -> Iterator[str | CompletionItem]:
    if kind == "profile":
        yield from sorted(Profiles.of_user(os.environ).all())
        return
    given: dict[str, Any] = {**ctx.params, **early_values(ctx)}
    connection = connect(given.get("url"), given.get("api_key"), given.get("profile"), SystemClock())
    with Hetuflow(connection.url, connection.api_key, timeout=_PATIENCE_SECONDS) as client:
        yield from _LISTERS[kind](client, given.get("namespace") or DEFAULT_NAMESPACE)


@contextmanager
def _hurried() -> Iterator[None]:
    """An end to it all, tries and pauses included."""

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
