"""Verifiers of other packages: the example of the page is found and asked."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from hetuflow_core.access.roles import Role
from hetuflow_core.errors import ConfigInvalid
from hetuflow_server.identity.verifiers import VERIFIER_GROUP, load_verifiers, remote_id

PAGE = (Path(__file__).parents[3] / "docs/howto/access.md").read_text(encoding="utf-8")


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package of the page, installed as packages are."""
    (example,) = re.findall(r"```python\n(.*?class AcmeVerifier.*?)```", PAGE, re.DOTALL)
    (tmp_path / "acme_hetuflow.py").write_text(example)
    facts = tmp_path / "acme_hetuflow-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-hetuflow\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[{VERIFIER_GROUP}]\nacme = acme_hetuflow:AcmeVerifier\n")
    assert VERIFIER_GROUP in PAGE
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "acme_hetuflow", raising=False)


@pytest.mark.usefixtures("acme")
async def test_the_example_of_the_page_vouches() -> None:
    (verifier,) = load_verifiers(["acme"])
    user, agent = await verifier.user("acme-ci"), await verifier.agent("acme-rack")
    assert user is not None
    assert (user.name, user.grants[0].role) == ("ci", Role.OPERATOR)
    assert agent is not None
    assert list(agent.namespaces) == ["default"]
    assert await verifier.user("something else") is None
    assert await verifier.agent("acme-ci") is None


@pytest.mark.usefixtures("acme")
def test_one_that_nobody_brings_is_named() -> None:
    with pytest.raises(ConfigInvalid, match=r"names other, .*there are: acme"):
        load_verifiers(["acme", "other"])


def test_whoever_has_no_row_has_the_same_id_always() -> None:
    assert remote_id("oidc", "a") == remote_id("oidc", "a")
    assert len({remote_id("oidc", "a"), remote_id("oidc", "b"), remote_id("acme", "a")}) == 3
