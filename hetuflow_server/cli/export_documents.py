"""Export the objects of a server as documents; applying them again changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hetuflow_core.client import Hetuflow
from hetuflow_core.durations import parse_duration
from hetuflow_core.errors import Denied
from hetuflow_core.jobfile import Kind, LimitSpec, NamespaceSpec, WebhookSpec, to_document
from hetuflow_core.jobfile.shortening import shortened_document
from hetuflow_core.resources.jobs import Job
from hetuflow_core.resources.limits import Limit
from hetuflow_core.resources.namespaces import Namespace
from hetuflow_core.resources.schedules import Calendar
from hetuflow_core.resources.webhooks import Webhook

# In reading order: objects come before the jobs that use them.
EXPORTED: Final = (Kind.NAMESPACE, Kind.CALENDAR, Kind.LIMIT, Kind.WEBHOOK, Kind.JOB)


@dataclass(frozen=True, slots=True)
class Exported:
    kind: Kind
    # None for a namespace.
    namespace: str | None
    name: str
    document: dict[str, Any]
    # Comments on state that a document cannot express.
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExportFilter:
    kinds: Sequence[Kind] = EXPORTED
    namespace: str | None = None
    names: frozenset[str] = frozenset()
    labels: Mapping[str, str] | None = None
    owner: str | None = None

    @property
    def only_jobs(self) -> bool:
        """Only jobs have labels and owners."""
        return self.labels is not None or self.owner is not None


def exported(client: Hetuflow, export_filter: ExportFilter, note: Callable[[str], None]) -> list[Exported]:
    """Return the selected objects; note the kinds that the caller has no access to."""
    objects: list[Exported] = []
    for kind in export_filter.kinds:
        if export_filter.only_jobs and kind is not Kind.JOB:
            continue
        try:
            objects += [
                candidate
                for candidate in _of_kind(client, kind, export_filter)
                if not export_filter.names or candidate.name in export_filter.names
            ]
        except Denied:
            note(f"Left out objects of kind {kind}: you have no permission to read them.")
    return objects


def secret_names(client: Hetuflow, namespace: str | None, note: Callable[[str], None]) -> list[str]:
    """Return the names of secrets; their values cannot be read."""
    try:
        return [f"{secret.namespace}/{secret.name}" for secret in client.secrets(namespace=namespace)]
    except Denied:
        note("Left out the names of secrets: you have no permission to list them.")
        return []


def _of_kind(client: Hetuflow, kind: Kind, export_filter: ExportFilter) -> Iterator[Exported]:
    namespace = export_filter.namespace
    match kind:
        case Kind.JOB:
            jobs = client.jobs(namespace=namespace, labels=export_filter.labels)
            yield from (job_of(job) for job in jobs if export_filter.owner in {None, job.owner})
        case Kind.CALENDAR:
            yield from map(calendar_of, client.calendars(namespace=namespace))
        case Kind.LIMIT:
            yield from map(limit_of, client.limits(namespace=namespace))
        case Kind.WEBHOOK:
            yield from map(webhook_of, client.webhooks(namespace=namespace))
        case Kind.NAMESPACE:
            yield from namespaces_of(row for row in client.namespaces() if namespace in {None, row.name})


def job_of(job: Job) -> Exported:
    notes = (
        () if job.enabled else ("This job is disabled. Files do not store that: use hetuflow job disable.",)
    )
    return Exported(Kind.JOB, job.namespace, job.name, shortened_document(job.spec), notes)


def calendar_of(calendar: Calendar) -> Exported:
    document = shortened_document(calendar.spec)
    return Exported(Kind.CALENDAR, calendar.namespace, calendar.name, document)


def limit_of(limit: Limit) -> Exported:
    spec = LimitSpec(namespace=limit.namespace, name=limit.name, max=limit.max)
    return Exported(Kind.LIMIT, limit.namespace, limit.name, shortened_document(to_document(spec)))


def webhook_of(webhook: Webhook) -> Exported:
    spec = WebhookSpec(
        namespace=webhook.namespace,
        name=webhook.name,
        url=webhook.url,
        events=tuple(webhook.events),
        jobs=tuple(webhook.jobs),
        receives=webhook.receives,
        secret=webhook.secret,
        enabled=webhook.enabled,
    )
    return Exported(Kind.WEBHOOK, webhook.namespace, webhook.name, shortened_document(to_document(spec)))


def namespaces_of(namespaces: Iterable[Namespace]) -> Iterator[Exported]:
    """Export namespaces that differ from the default namespace of a new server."""
    plain = NamespaceSpec(name="default")
    for namespace_row in namespaces:
        lease = None if namespace_row.lease is None else parse_duration(namespace_row.lease)
        spec = NamespaceSpec(
            name=namespace_row.name, weight=namespace_row.weight, lease=lease, labels=namespace_row.labels
        )
        if spec != plain:
            yield Exported(Kind.NAMESPACE, None, namespace_row.name, shortened_document(to_document(spec)))
