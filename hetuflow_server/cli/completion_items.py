"""Shell completion of object names, which are read from the server."""

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

# Completion is interactive: give up after this time.
_TIMEOUT_SECONDS: Final = 1.5
_MAX_ITEMS: Final = 200

Lister = Callable[[Hetuflow, str], Iterable[str | CompletionItem]]


def _tasks(client: Hetuflow, namespace: str) -> Iterator[CompletionItem]:
    for task in client.tasks(namespace=namespace, page_size=_MAX_ITEMS):
        yield CompletionItem(str(task.id), help=f"{task.job} {task.status}")


def _runs(client: Hetuflow, namespace: str) -> Iterator[CompletionItem]:
    for run in client.flow_runs(namespace=namespace, page_size=_MAX_ITEMS):
        yield CompletionItem(str(run.id), help=f"{run.job} {run.status}")


_LISTERS: Final[Mapping[str, Lister]] = {
    "agent": lambda client, _: (item.name for item in client.agents(page_size=_MAX_ITEMS)),
    "calendar": lambda client, namespace: (item.name for item in client.calendars(namespace=namespace)),
    "job": lambda client, namespace: (
        item.name for item in client.jobs(namespace=namespace, page_size=_MAX_ITEMS)
    ),
    "limit": lambda client, namespace: (item.name for item in client.limits(namespace=namespace)),
    "namespace": lambda client, _: (item.name for item in client.namespaces(page_size=_MAX_ITEMS)),
    "run": _runs,
    "schedule": lambda client, namespace: (
        f"{item.job}/{item.name}" for item in client.schedules(namespace=namespace, page_size=_MAX_ITEMS)
    ),
    "secret": lambda client, namespace: (item.name for item in client.secrets(namespace=namespace)),
    "task": _tasks,
    "user": lambda client, _: (item.name for item in client.users(page_size=_MAX_ITEMS)),
    "webhook": lambda client, namespace: (item.name for item in client.webhooks(namespace=namespace)),
}


def completion_items(ctx: click.Context, kind: str, incomplete: str) -> list[CompletionItem]:
    """Return names that start with `incomplete`; errors are ignored, since the shell cannot show them."""
    items: list[CompletionItem] = []
    with suppress(Exception), _time_limit():
        for name in islice(_names(ctx, kind), _MAX_ITEMS):
            item = name if isinstance(name, CompletionItem) else CompletionItem(name)
            if str(item.value).startswith(incomplete):
                items.append(item)
    return items


def _names(ctx: click.Context, kind: str) -> Iterator[str | CompletionItem]:
    if kind == "profile":
        yield from sorted(Profiles.of_user(os.environ).all())
        return
    given: dict[str, Any] = {**ctx.params, **early_values(ctx)}
    connection = connect(given.get("url"), given.get("api_key"), given.get("profile"), SystemClock())
    with Hetuflow(connection.url, connection.api_key, timeout=_TIMEOUT_SECONDS) as client:
        yield from _LISTERS[kind](client, given.get("namespace") or DEFAULT_NAMESPACE)


@contextmanager
def _time_limit() -> Iterator[None]:
    """Limit the total time, including retries and their delays."""

    def on_alarm(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, _TIMEOUT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
