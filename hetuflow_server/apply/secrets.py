"""Applying what documents say about secrets: their values, and which of them jobs use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hetuflow_core.errors import Fault, Invalid
from hetuflow_core.jobfile import Document, JobSpec, SecretSpec
from hetuflow_core.jobfile.run import Run
from hetuflow_core.resources.apply import AppliedDocument
from hetuflow_server.identity import access_store
from hetuflow_server.postgres.database import Connection
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.secrets import store
from hetuflow_server.secrets.service import Secrets, refuse_sources


async def apply_secrets(
    connection: Connection, context: RequestContext, specs: Sequence[Document], secrets: Secrets | None
) -> list[AppliedDocument]:
    """Write the secrets of these documents, in the order of their names."""
    given = [spec for spec in specs if isinstance(spec, SecretSpec)]
    if given and secrets is None:
        raise Invalid("There is no key to encrypt secrets with.", code="secret.no_key")
    refuse_sources(given)
    items: list[AppliedDocument] = []
    if secrets is None:
        return items
    for spec in sorted(given, key=lambda one: (one.namespace, one.name)):
        namespace_id = (await access_store.namespace_ids(connection, [spec.namespace]))[spec.namespace]
        action = await secrets.put(connection, context, namespace_id, spec)
        items.append(AppliedDocument(spec.kind.value, spec.namespace, spec.name, action))
    return items


async def refuse_unknown_secrets(connection: Connection, specs: Sequence[Document]) -> None:
    """Name every place where a job uses a secret there is not; keep the others from being deleted now."""
    wanted: dict[str, set[str]] = {}
    for spec in specs:
        if isinstance(spec, JobSpec):
            wanted.setdefault(spec.namespace, set()).update(name for _, name in _uses(spec))
    defined: dict[str, set[str]] = {}
    for namespace, names in sorted(wanted.items()):
        if names:
            namespace_id = (await access_store.namespace_ids(connection, [namespace]))[namespace]
            defined[namespace] = await store.defined(connection, namespace_id, sorted(names))
    faults = [
        Fault(
            f"documents[{place}].{path}",
            f"the namespace {spec.namespace} has no secret {name}: set it with hetuflow secret set {name}, "
            "or a document of kind secret.",
        )
        for place, spec in enumerate(specs)
        if isinstance(spec, JobSpec)
        for path, name in _uses(spec)
        if name not in defined[spec.namespace]
    ]
    if faults:
        raise Invalid("Jobs use secrets that are not there.", code="secret.not_defined", faults=faults)


def uses_secrets(spec: JobSpec) -> bool:
    return any(True for _ in _uses(spec))


def _uses(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Where a job names secrets, and which."""
    if spec.run is not None:
        yield from _uses_of(spec.run, "run")
    for place, node in enumerate(spec.flow.nodes if spec.flow is not None else ()):
        if node.work is not None and node.work.run is not None:
            yield from _uses_of(node.work.run, f"flow.nodes[{place}].run")


def _uses_of(run: Run, path: str) -> Iterator[tuple[str, str]]:
    yield from ((f"{path}.env.{variable}", use.secret) for variable, use in run.secret_env.items())
    if run.http is not None:
        headers = run.http.secret_headers.items()
        yield from ((f"{path}.http.headers.{header}", use.secret) for header, use in headers)
    yield from ((f"{path}.secrets", name) for name in run.secrets)
