"""Documents of kind `limit`, and names of limits wherever they are written."""

from __future__ import annotations

from typing import Any

import pytest

from hetuflow_core.errors import Invalid
from hetuflow_core.jobfile import LimitSpec, digest, load_documents, raw_documents, to_document


def load(*documents: dict[str, Any]) -> list[Any]:
    return load_documents(raw_documents(documents))


def faults(*documents: dict[str, Any]) -> list[str]:
    with pytest.raises(Invalid) as caught:
        load(*documents)
    return [str(fault) for fault in caught.value.faults]


def test_a_limit_is_read_and_written_the_same() -> None:
    (spec,) = load({"kind": "limit", "namespace": "team-a", "name": "tool:claude", "max": 4})
    assert spec == LimitSpec(namespace="team-a", name="tool:claude", max=4)
    assert load(to_document(spec)) == [spec]
    (other,) = load({"kind": "limit", "name": "tool:claude", "max": 0})
    assert (other.namespace, other.max) == ("default", 0)
    assert digest(other) != digest(spec)


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        ({"name": "tool:claude"}, '"max" is missing'),
        ({"max": 1}, '"name" is missing'),
        ({"name": "claude", "max": 1}, "use a kind and a name, such as tool:claude"),
        ({"name": "tool:claude", "max": -1}, "must be between 0 and 1000000"),
        ({"name": "tool:claude", "max": "4"}, "must be a whole number"),
        ({"name": "job:x", "max": 1}, "limits of the kind job are made by concurrency"),
        ({"name": "key:x", "max": 1}, "limits of the kind key are made by concurrency"),
        ({"name": "tool:claude", "max": 1, "in_use": 0}, '"in_use" is not a known key'),
    ],
)
def test_every_fault_of_a_limit_is_told(document: dict[str, Any], fault: str) -> None:
    (told,) = faults({"kind": "limit", **document})
    assert fault in told


def test_a_limit_written_twice_is_refused_and_one_of_another_namespace_is_not() -> None:
    one = {"kind": "limit", "name": "tool:claude", "max": 1}
    assert "is written twice" in faults(one, {**one, "max": 2})[0]
    assert len(load(one, {**one, "namespace": "team-a"})) == 2


def test_a_job_names_no_limits_that_concurrency_makes() -> None:
    job = {"kind": "job", "name": "j", "run": {"command": ["true"]}}
    assert "made by concurrency" in faults({**job, "limits": ["tool:a", "job:b"]})[0]
