"""The example files are what people copy: each loads as it is and means what its comments say."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetuflow_core.jobfile import Document, JobSpec, NamespaceSpec, load_documents, parse_documents
from hetuflow_core.templates.rendering import render

EXAMPLES = Path(__file__).parents[3] / "examples"


def example(name: str) -> list[Document]:
    return load_documents(parse_documents((EXAMPLES / name).read_text(encoding="utf-8"), None, name))


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.yaml")))
def test_every_example_loads(name: str) -> None:
    assert example(name)


def test_hello_greets_whom_it_is_told_to() -> None:
    (job,) = example("hello.yaml")
    assert isinstance(job, JobSpec)
    assert render(job.run.env["WHO"], {"params": job.params}) == "world"


def test_retries_retries() -> None:
    (job,) = example("retries.yaml")
    assert isinstance(job, JobSpec)
    assert (job.retry.max_attempts, job.skip_exit_codes) == (5, (75,))


def test_team_brings_a_namespace_and_its_jobs() -> None:
    namespace, *jobs = example("team.yaml")
    assert isinstance(namespace, NamespaceSpec)
    assert namespace.weight == 200
    assert {job.namespace for job in jobs if isinstance(job, JobSpec)} == {"analytics"}
