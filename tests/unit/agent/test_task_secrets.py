"""Where values of secrets go on the agent, and what is masked of them."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

from hetuflow_agent.logs.masking import Masking
from hetuflow_agent.logs.tail import ClaimLog
from hetuflow_agent.runner.secrets import SECRETS_VARIABLE, given_versions, with_secrets
from hetuflow_agent.workdir import ClaimDirectory
from hetuflow_core.messages import RunSpec, SecretPlace


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
    log = ClaimLog(uuid4(), uuid4(), directory, veiled=True)
    log.close()
    assert log.chunks(1000) == []
    assert not log.drained
    log.unveil(Masking(values=["hunter22"]))
    assert log.streams["stdout"].read(1000) == b"a ******** b"


def test_versions_on_disk_are_told_from_none(tmp_path: Path) -> None:
    directory = ClaimDirectory(tmp_path)
    assert given_versions(directory) is None
    directory.secrets.write_text('{"token": 3}')
    assert given_versions(directory) == {"token": 3}
    directory.secrets.write_text("{")
    assert given_versions(directory) == {}
