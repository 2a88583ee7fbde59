"""What a server has as documents that change nothing when they are applied again."""

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

# In the order in which a reader wants to meet them.
EXPORTED: Final = (Kind.NAMESPACE, Kind.CALENDAR, Kind.LIMIT, Kind.WEBHOOK, Kind.JOB)


@dataclass(frozen=True, slots=True)
class Exported:
    kind: Kind
    # None of a namespace itself.
    namespace: str | None
    name: str
    document: dict[str, Any]
    # What a document cannot say.
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    kinds: Sequence[Kind] = EXPORTED
    namespace: str | None = None
    names: frozenset[str] = frozenset()
    labels: Mapping[str, str] | None = None
    owner: str | None = None

    @property
    def only_jobs(self) -> bool:
        """Labels and owners are shown of jobs only."""
        return self.labels is not None or self.owner is not None


def exported(client: Hetuflow, wanted: Wanted, note: Callable[[str], None]) -> list[Exported]:
    """Everything that is wanted and may be seen; what may not is noted."""
    found: list[Exported] = []
    for kind in wanted.kinds:
        if wanted.only_jobs and kind is not Kind.JOB:
            continue
        try:
            found += [
                one for one in _of_kind(client, kind, wanted) if not wanted.names or one.name in wanted.names
            ]
        except Denied:
            note(f"You may not see objects of the kind {kind}: they are left out.")
    return found


def secret_names(client: Hetuflow, namespace: str | None, note: Callable[[str], None]) -> list[str]:
    """The names of secrets: their values are nobody's to read again."""
    try:
        return [f"{one.namespace}/{one.name}" for one in client.secrets(namespace=namespace)]
    except Denied:
        note("You may not see names of secrets: they are left out.")
        return []


def _of_kind(client: Hetuflow, kind: Kind, wanted: Wanted) -> Iterator[Exported]:
    namespace = wanted.namespace
    match kind:
        case Kind.JOB:
            jobs = client.jobs(namespace=namespace, labels=wanted.labels)
            yield from (job_of(one) for one in jobs if wanted.owner in {None, one.owner})
        case Kind.CALENDAR:
            yield from map(calendar_of, client.calendars(namespace=namespace))
        case Kind.LIMIT:
            yield from map(limit_of, client.limits(namespace=namespace))
        case Kind.WEBHOOK:
            yield from map(webhook_of, client.webhooks(namespace=namespace))
        case Kind.NAMESPACE:
            yield from namespaces_of(one for one in client.namespaces() if namespace in {None, one.name})


def job_of(job: Job) -> Exported:
    notes = () if job.enabled else ("This job is disabled, which no file says: hetuflow job disable.",)
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
    """Those that are not as every server has them."""
    plain = NamespaceSpec(name="default")
    for one in namespaces:
        lease = None if one.lease is None else parse_duration(one.lease)
        spec = NamespaceSpec(name=one.name, weight=one.weight, lease=lease, labels=one.labels)
        if spec != plain:
            yield Exported(Kind.NAMESPACE, None, one.name, shortened_document(to_document(spec)))
