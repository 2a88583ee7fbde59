"""Secrets of tasks on the agent: fetched by whoever holds the claim, kept in memory, masked in the log.

On disk there is only which versions a task was given, beside its log: after a restart their values are asked
for again before anything more of that log leaves the host. Where they are not to be had any more, the rest of
the log stays here.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Mapping
from typing import Any, Final, Protocol
from uuid import UUID

import msgspec
import structlog

from hetuflow_agent.folders.workdir import ClaimDirectory
from hetuflow_agent.gateway import Backoff, Session, Unanswered
from hetuflow_agent.logs.shipper import LogShipper
from hetuflow_core.errors import HetuflowError
from hetuflow_core.messages import Assignment, FetchSecrets, RunSpec, SecretsFetched
from hetuflow_core.secret_values import masked_forms

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.secrets")

# By name, for work that has neither variables nor headers to name them in.
SECRETS_VARIABLE: Final = "HETUFLOW_SECRETS"
# How often a question that finds no server is asked again: several minutes in all.
_MOST_TRIES: Final = 60


class SecretFault(Exception):
    """Why the secrets of a task are not to be had; the message is for the user of the job."""


class SecretGateway(Protocol):
    async def fetch_secrets(self, request: FetchSecrets) -> SecretsFetched: ...


class TaskSecrets:
    """What is known of the secrets of the claims that are here, by token."""

    name = "secrets"

    def __init__(
        self, gateway: SecretGateway, session: Session, shipper: LogShipper, rng: random.Random
    ) -> None:
        self._gateway = gateway
        self._session = session
        self._shipper = shipper
        self._rng = rng
        self._recalls: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        for task in tuple(self._recalls):
            task.cancel()
        await asyncio.gather(*self._recalls, return_exceptions=True)

    async def bring(self, assignment: Assignment, directory: ClaimDirectory) -> dict[str, str]:
        """The values of a claim's secrets, by name; raises SecretFault when there are none to be had."""
        try:
            found = await self._fetch(assignment.instance_id, assignment.token, {})
        except HetuflowError as error:
            raise SecretFault(f"The secrets of the task cannot be had: {error.message}") from error
        versions = {one.name: one.version for one in found.secrets}
        await asyncio.to_thread(_write, directory, versions)
        values = {one.name: one.value for one in found.secrets}
        self._unveil(assignment.token, values)
        return values

    def recall(self, instance_id: UUID, token: UUID, directory: ClaimDirectory) -> None:
        """Learn again what to mask in a log that an earlier life of this agent has left."""
        versions = given_versions(directory)
        if versions is None:
            return
        task = asyncio.create_task(
            self._recall(instance_id, token, versions), name=f"secrets of {instance_id}"
        )
        self._recalls.add(task)
        task.add_done_callback(self._recalls.discard)

    async def _recall(self, instance_id: UUID, token: UUID, versions: Mapping[str, int]) -> None:
        try:
            found = await self._fetch(instance_id, token, versions)
        except HetuflowError as error:
            log.warning(
                "What to mask in a log is not known any more; the rest of it is not shipped.",
                instance_id=str(instance_id),
                error=error.message,
            )
            self._shipper.withhold(token)
        else:
            self._unveil(token, {one.name: one.value for one in found.secrets})

    async def _fetch(self, instance_id: UUID, token: UUID, versions: Mapping[str, int]) -> SecretsFetched:
        backoff = Backoff(self._rng, longest=10.0)
        request = FetchSecrets(self._session.session_id, instance_id, token, dict(versions))
        for _ in range(_MOST_TRIES):
            try:
                return await self._gateway.fetch_secrets(request)
            except Unanswered as error:
                await asyncio.sleep(backoff.fail(error))
        return await self._gateway.fetch_secrets(request)

    def _unveil(self, token: UUID, values: Mapping[str, str]) -> None:
        self._shipper.unveil(token, [form for value in values.values() for form in masked_forms(value)])


def given_versions(directory: ClaimDirectory) -> dict[str, int] | None:
    """Which versions of which secrets the claim's task was given; None when it has none."""
    try:
        return msgspec.json.decode(directory.secrets.read_bytes(), type=dict[str, int])
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError):
        return {}


def with_secrets(run: RunSpec, values: Mapping[str, str]) -> RunSpec:
    """What to execute with the values in their places; to be kept in memory alone."""
    if not run.secrets:
        return run
    env, headers, named = dict(run.env), {}, {}
    for place in run.secrets:
        if place.name not in values:
            continue  # a probe of a task that an earlier life of this agent has started
        value = place.prefix + values[place.name]
        if place.env is not None:
            env[place.env] = value
        elif place.header is not None:
            headers[place.header] = value
        else:
            named[place.name] = value
    if named:
        env[SECRETS_VARIABLE] = msgspec.json.encode(named).decode()
    options: dict[str, Any] = run.options
    if headers:
        given = {**options.get("headers", {}), **headers}
        options = {**options, "headers": given, "private_headers": sorted(headers)}
    return msgspec.structs.replace(run, env=env, options=options)


def _write(directory: ClaimDirectory, versions: Mapping[str, int]) -> None:
    descriptor = os.open(directory.secrets, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(versions))
