"""Where values of secrets go on the agent, and what is masked of them."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from hetuflow_agent.attempt.secrets import (
    SECRETS_VARIABLE,
    SecretFault,
    TaskSecrets,
    given_versions,
    with_secrets,
)
from hetuflow_agent.folders.workdir import ClaimDirectory
from hetuflow_agent.gateway import Session, Unanswered
from hetuflow_agent.logs.masking import Masking
from hetuflow_agent.logs.tail import ClaimLog
from hetuflow_core.errors import Denied
from hetuflow_core.messages import DeliveredSecret, FetchSecrets, RunSpec, SecretPlace, SecretsFetched
from tests.support.agent.assignments import assignment_of


def test_each_value_goes_to_its_place() -> None:
    run = RunSpec(
        command=["x"],
        env={"A": "b"},
        options={"headers": {"Accept": "c"}},
        secrets=[
            SecretPlace("one", env="TOKEN", prefix="t="),
            SecretPlace("two", header="X-Key"),
            SecretPlace("three"),
        ],
    )
    made = with_secrets(run, {"one": "1111", "two": "2222", "three": "3333"})
    assert made.command == ["x"]
    assert made.env["TOKEN"] == "t=1111"
    assert json.loads(made.env[SECRETS_VARIABLE]) == {"three": "3333"}
    assert made.options["headers"] == {"Accept": "c", "X-Key": "2222"}
    assert made.options["private_headers"] == ["X-Key"]
    assert run.env == {"A": "b"}
    assert with_secrets(RunSpec(command=["x"]), {}) == RunSpec(command=["x"])


def test_masking_is_extended_and_cleans_other_texts() -> None:
    host = Masking(["pw=[a-z]+"], values=["agent-token"])
    both = host.extended(["hunter22", "abc"])
    assert both.cleaned("hunter22 agent-token pw=xy abc") == "******** *********** ***** abc"
    assert host.cleaned("hunter22") == "hunter22"


def test_a_veiled_log_waits_until_it_is_known_what_to_mask(tmp_path: Path) -> None:
    directory = ClaimDirectory(tmp_path / "claim")
    directory.make()
    directory.stream("stdout").write_bytes(b"a hunter22 b")
    log = ClaimLog(uuid4(), uuid4(), directory, needs_secrets=True)
    log.close()
    assert log.chunks(1000) == []
    assert not log.drained
    log.set_masking(Masking(values=["hunter22"]))
    assert log.streams["stdout"].read(1000) == b"a ******** b"


def test_versions_on_disk_are_told_from_none(tmp_path: Path) -> None:
    directory = ClaimDirectory(tmp_path)
    assert given_versions(directory) is None
    directory.secrets.write_text('{"token": 3}')
    assert given_versions(directory) == {"token": 3}
    directory.secrets.write_text("{")
    assert given_versions(directory) == {}


class Vault:
    """Gives what it is asked for, or says why not."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.asked: list[FetchSecrets] = []

    async def fetch_secrets(self, request: FetchSecrets) -> SecretsFetched:
        self.asked.append(request)
        if self.failures:
            raise self.failures.pop(0)
        return SecretsFetched(0, [DeliveredSecret("token", 3, "hunter22")])


class Shipper:
    """What becomes known of a log."""

    def __init__(self) -> None:
        self.unveiled: list[tuple[UUID, list[str]]] = []
        self.withheld: list[UUID] = []

    def set_secrets(self, token: UUID, values: Iterable[str]) -> None:
        self.unveiled.append((token, list(values)))

    def withhold(self, token: UUID) -> None:
        self.withheld.append(token)


def room_of(vault: Vault) -> tuple[TaskSecrets, Shipper]:
    shipper: Any = Shipper()
    return TaskSecrets(vault, Session(uuid4()), shipper, random.Random(1)), shipper


async def test_values_are_brought_masked_and_written_nowhere(tmp_path: Path) -> None:
    """On disk is which versions they were, for who has to mask them after a restart."""
    directory, assignment = ClaimDirectory(tmp_path), assignment_of(["true"])
    room, shipper = room_of(Vault(Unanswered("gone")))
    assert await room.fetch(assignment, directory) == {"token": "hunter22"}
    assert given_versions(directory) == {"token": 3}
    assert directory.secrets.stat().st_mode & 0o777 == 0o600
    [(token, forms)] = shipper.unveiled
    assert token == assignment.token
    assert "hunter22" in forms


async def test_a_task_without_its_secrets_is_told_why(tmp_path: Path) -> None:
    room, shipper = room_of(Vault(Denied("This secret is not for this job.")))
    with pytest.raises(SecretFault, match="not for this job"):
        await room.fetch(assignment_of(["true"]), ClaimDirectory(tmp_path))
    assert shipper.unveiled == []


@pytest.mark.parametrize("known", [True, False])
async def test_what_to_mask_is_asked_for_again_in_the_versions_that_were_given(
    tmp_path: Path, known: bool
) -> None:
    """Where it is not to be had any more, the rest of the log stays here."""
    directory, instance, token = ClaimDirectory(tmp_path), uuid4(), uuid4()
    directory.secrets.write_text('{"token": 2}')
    vault = Vault() if known else Vault(Denied("It is gone."))
    room, shipper = room_of(vault)
    room.fetch_again(instance, token, directory)
    await asyncio.gather(*room._fetches)
    assert [request.versions for request in vault.asked] == [{"token": 2}]
    assert [one for one, _ in shipper.unveiled] == ([token] if known else [])
    assert shipper.withheld == ([] if known else [token])
