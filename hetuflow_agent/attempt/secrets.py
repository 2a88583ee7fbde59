"""Secrets of tasks on the agent: fetched with the claim token, kept in memory, masked in the log.

Only the versions of the secrets are written to disk, in the work folder. After a restart the agent fetches
the values again before it ships more of that log. If the server refuses them, the rest is not shipped.
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

# A JSON object of values by name, for secrets without a separate variable or header.
SECRETS_VARIABLE: Final = "HETUFLOW_SECRETS"
# How often a request without an answer is repeated: several minutes in all.
_MOST_TRIES: Final = 60


class SecretFault(Exception):
    """Why the secrets of a task could not be fetched; the message is for the owner of the job."""


class SecretGateway(Protocol):
    async def fetch_secrets(self, request: FetchSecrets) -> SecretsFetched: ...


class TaskSecrets:
    """Fetches the secrets of claims."""

    name = "secrets"

    def __init__(
        self, gateway: SecretGateway, session: Session, shipper: LogShipper, rng: random.Random
    ) -> None:
        self._gateway = gateway
        self._session = session
        self._shipper = shipper
        self._rng = rng
        self._fetches: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        for task in tuple(self._fetches):
            task.cancel()
        await asyncio.gather(*self._fetches, return_exceptions=True)

    async def fetch(self, assignment: Assignment, directory: ClaimDirectory) -> dict[str, str]:
        """The values of a claim's secrets by name; raises SecretFault if the server does not return them."""
        try:
            fetched = await self._request(assignment.instance_id, assignment.token, {})
        except HetuflowError as error:
            raise SecretFault(f"The secrets of the task cannot be fetched: {error.message}") from error
        versions = {secret.name: secret.version for secret in fetched.secrets}
        await asyncio.to_thread(_write, directory, versions)
        values = {secret.name: secret.value for secret in fetched.secrets}
        self._set_secrets(assignment.token, values)
        return values

    def fetch_again(self, instance_id: UUID, token: UUID, directory: ClaimDirectory) -> None:
        """Fetch the secrets to mask in a log that an earlier process of this agent has left."""
        versions = given_versions(directory)
        if versions is None:
            return
        task = asyncio.create_task(
            self._fetch_again(instance_id, token, versions), name=f"secrets of {instance_id}"
        )
        self._fetches.add(task)
        task.add_done_callback(self._fetches.discard)

    async def _fetch_again(self, instance_id: UUID, token: UUID, versions: Mapping[str, int]) -> None:
        try:
            fetched = await self._request(instance_id, token, versions)
        except HetuflowError as error:
            log.warning(
                "secrets to mask are unknown, the rest of the log is not shipped",
                instance_id=str(instance_id),
                error=error.message,
            )
            self._shipper.withhold(token)
        else:
            self._set_secrets(token, {secret.name: secret.value for secret in fetched.secrets})

    async def _request(self, instance_id: UUID, token: UUID, versions: Mapping[str, int]) -> SecretsFetched:
        backoff = Backoff(self._rng, longest=10.0)
        request = FetchSecrets(self._session.session_id, instance_id, token, dict(versions))
        for _ in range(_MOST_TRIES):
            try:
                return await self._gateway.fetch_secrets(request)
            except Unanswered as error:
                await asyncio.sleep(backoff.fail(error))
        return await self._gateway.fetch_secrets(request)

    def _set_secrets(self, token: UUID, values: Mapping[str, str]) -> None:
        self._shipper.set_secrets(token, [form for value in values.values() for form in masked_forms(value)])


def given_versions(directory: ClaimDirectory) -> dict[str, int] | None:
    """The versions of the secrets that the task was given; None if it has no secrets."""
    try:
        return msgspec.json.decode(directory.secrets.read_bytes(), type=dict[str, int])
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError):
        return {}


def with_secrets(run: RunSpec, values: Mapping[str, str]) -> RunSpec:
    """The run specification with the values of secrets; it must not be written to disk."""
    if not run.secrets:
        return run
    env, headers, named = dict(run.env), {}, {}
    for place in run.secrets:
        if place.name not in values:
            continue  # a probe of a task that an earlier process of this agent has started
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
